//! The program that is started.

use std::path::PathBuf;

use lock_testkit::Missing;

use crate::path::on_path;

/// The variable that names the program to start instead of the one on the `PATH`. It may be a script that ends with
/// `exec`: the server has to run under the process id of the program.
pub const SERVER_VARIABLE: &str = "LOCK_TESTKIT_MEMCACHED_SERVER";

/// The program that is to be used.
pub(super) fn find() -> Result<PathBuf, Missing> {
    if let Some(path) = std::env::var_os(SERVER_VARIABLE) {
        return Ok(path.into());
    }
    on_path(&["memcached"])
        .ok_or_else(|| Missing::new("memcached is not installed (Debian package memcached), and no URL is given"))
}
