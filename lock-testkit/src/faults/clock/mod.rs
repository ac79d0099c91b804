//! A wall clock of a server's own, which can be stepped.

mod fault;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use lock_testkit_proxy::{Effect, Injected, Proof};

use crate::error::Missing;
use crate::processes::fresh_directory;

pub use self::fault::ClockFault;

/// Read by the shim.
const VARIABLE: &str = "LOCK_TESTKIT_CLOCK";
/// C, because there is a compiler for it wherever Rust can link, and no unsafe Rust is needed to have it.
const SHIM: &str = include_str!("shim.c");
/// The offset in the shared file of the number of readings, behind the clock's own offset.
const READINGS: u64 = 8;
/// The offset of the time at which the clock stands still, behind the readings.
const STANDS_AT: u64 = 16;

/// A wall clock for processes of the suite's own, such as servers (`RedisOptions::with_clock` in `lock-testkit-servers`):
/// the machine's, until it is stepped or stopped.
///
/// It is a small library that is preloaded into the server's process, so this is for Linux and needs `cc`. The clocks
/// that measure durations are not changed, nor is anybody else's.
#[derive(Debug, Clone)]
pub struct WallClock(Arc<ShiftFile>);

#[derive(Debug)]
struct ShiftFile {
    directory: PathBuf,
    file: File,
}

impl WallClock {
    /// A clock that shows what the machine's shows.
    ///
    /// # Errors
    /// [`Missing`] if the library cannot be compiled here.
    pub fn new() -> Result<Self, Missing> {
        let missing = |error: io::Error| Missing::new(format!("no clock of a server's own: {error}"));
        let directory = fresh_directory("clock").map_err(missing)?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(directory.join("offset"));
        let clock = Self(Arc::new(ShiftFile { file: file.map_err(missing)?, directory }));
        clock.set(0).map_err(missing)?;
        clock.stand_at(Duration::ZERO).map_err(missing)?;
        compile(&clock.0.directory).map_err(missing)?;
        Ok(clock)
    }

    /// Puts the clock forward or back, until the guard is dropped: that is another step, back to the machine's time.
    ///
    /// The proof is that the clock was read since.
    ///
    /// # Errors
    /// If the file that is shared with the servers is gone.
    pub fn inject(&self, fault: ClockFault) -> io::Result<Injected<'static>> {
        self.set(fault.ahead_ms * 1_000_000)?;
        Ok(Injected::new(format!("{fault:?}"), Stepped { clock: self.clone(), fault, readings: 0 }))
    }

    /// Lets the clock stand still at this time since the epoch, until the next call: for tests of what happens in the very
    /// millisecond in which something ends.
    ///
    /// # Errors
    /// If the file that is shared with the servers is gone.
    pub fn stand_at(&self, since_epoch: Duration) -> io::Result<()> {
        let ns = i64::try_from(since_epoch.as_nanos()).map_err(io::Error::other)?;
        self.0.file.write_all_at(&ns.to_ne_bytes(), STANDS_AT)
    }

    /// Returns the beginning of a server's command line, if it goes by this clock.
    #[must_use]
    pub fn prefix(&self) -> Vec<OsString> {
        let set = |name: &str, path: PathBuf| {
            let mut variable = OsString::from(name);
            variable.push("=");
            variable.push(path);
            variable
        };
        let directory = &self.0.directory;
        vec!["env".into(), set("LD_PRELOAD", library(directory)), set(VARIABLE, directory.join("offset"))]
    }

    fn set(&self, offset_ns: i64) -> io::Result<()> {
        let bytes = [offset_ns.to_ne_bytes(), 0_u64.to_ne_bytes()].concat();
        self.0.file.write_all_at(&bytes, 0)
    }

    fn readings(&self) -> u64 {
        let mut bytes = [0; 8];
        self.0.file.read_exact_at(&mut bytes, READINGS).map(|()| u64::from_ne_bytes(bytes)).unwrap_or_default()
    }
}

impl Drop for ShiftFile {
    fn drop(&mut self) {
        // Best effort: a directory that is left does no harm.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn library(directory: &Path) -> PathBuf {
    directory.join("clock.so")
}

fn compile(directory: &Path) -> io::Result<()> {
    let source = directory.join("clock.c");
    std::fs::write(&source, SHIM)?;
    let mut compiler = Command::new("cc");
    let output = compiler.args(["-shared", "-fPIC", "-O2", "-o"]).arg(library(directory)).arg(source).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("cc: {}", String::from_utf8_lossy(&output.stderr).trim_end())))
}

struct Stepped {
    clock: WallClock,
    fault: ClockFault,
    /// The number of readings when it was healed.
    readings: u64,
}

impl Effect for Stepped {
    fn proof(&self) -> Proof {
        match self.readings.max(self.clock.readings()) {
            0 => Proof::default(),
            readings => Proof::of(format!("the clock was read {readings} times, {} ms ahead", self.fault.ahead_ms)),
        }
    }

    fn heal(&mut self) {
        self.readings = self.clock.readings();
        // As long as the file is open, it can be written to.
        let _ = self.clock.set(0);
    }
}
