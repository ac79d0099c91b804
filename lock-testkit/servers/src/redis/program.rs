//! The program that is started.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use lock_testkit::{HarnessError, Missing};

use crate::path::on_path;

/// The variable that names the program to start instead of the one on the `PATH`. It may be a script that ends with
/// `exec`: the server has to run under the process id of the program.
pub const SERVER_VARIABLE: &str = "LOCK_TESTKIT_REDIS_SERVER";

const NAMES: &[&str] = &["redis-server", "valkey-server"];

/// A server's program.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// The first number of its version: 6 for 6.2.14.
    pub(crate) major: u32,
}

impl Program {
    /// The one that is to be used. It is looked for once.
    pub(crate) fn find() -> Result<Self, Missing> {
        static PROGRAM: LazyLock<Result<Program, Missing>> = LazyLock::new(Program::look);
        PROGRAM.clone()
    }

    fn look() -> Result<Self, Missing> {
        let path = match std::env::var_os(SERVER_VARIABLE) {
            Some(path) => path.into(),
            None => on_path(NAMES).ok_or_else(|| {
                Missing::new("redis-server is not installed (Debian package redis-server), and no URL is given")
            })?,
        };
        let major = major_version(&path)?;
        Ok(Self { path, major })
    }
}

fn major_version(program: &Path) -> Result<u32, Missing> {
    let failed = |why: &dyn std::fmt::Display| HarnessError::new(format!("{} --version: {why}", program.display()));
    let output = Command::new(program).arg("--version").output().map_err(|error| failed(&error))?;
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(parse_major(&said).ok_or_else(|| failed(&format!("{said:?} tells no version")))?)
}

/// Out of `Redis server v=7.0.15 sha=...` or `Valkey server v=8.1.1 sha=...`.
fn parse_major(said: &str) -> Option<u32> {
    said.split_once(" v=")?.1.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        assert_eq!(parse_major("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0"), Some(7));
        assert_eq!(parse_major("Valkey server v=8.1.1 sha=00000000:0"), Some(8));
        assert_eq!(parse_major("sleep (GNU coreutils) 9.1"), None);
    }

    #[test]
    fn a_program_that_is_no_server_is_refused() {
        let refused = major_version(Path::new("true")).unwrap_err();
        assert!(refused.to_string().contains("tells no version"), "{refused}");
        assert!(major_version(Path::new("/nonexistent/redis-server")).is_err());
    }
}
