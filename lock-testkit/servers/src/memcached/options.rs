//! The options of a server of the suite's own.

use std::ffi::OsString;
use std::path::Path;

/// The options of a server of the suite's own. By default as locks want it: it refuses new items when its memory is full,
/// rather than evict old ones.
///
/// ```
/// use lock_testkit_servers::memcached::MemcachedOptions;
///
/// let starved = MemcachedOptions::new().with_memory(2);
/// let cache = MemcachedOptions::new().evicting().with_flag("-C");
/// # drop((starved, cache));
/// ```
#[derive(Debug, Clone)]
pub struct MemcachedOptions {
    megabytes: u32,
    evicts: bool,
    flags: Vec<OsString>,
}

impl MemcachedOptions {
    /// The defaults: 64 MB, no eviction.
    #[must_use]
    pub fn new() -> Self {
        Self { megabytes: 64, evicts: false, flags: Vec::new() }
    }

    /// With so much memory, in MB; 2 is the least that a server starts with.
    #[must_use]
    pub fn with_memory(mut self, megabytes: u32) -> Self {
        self.megabytes = megabytes;
        self
    }

    /// A cache as most are: when its memory is full, it evicts old items.
    #[must_use]
    pub fn evicting(mut self) -> Self {
        self.evicts = true;
        self
    }

    /// With another flag of its command line, such as `"-C"`.
    #[must_use]
    pub fn with_flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.into());
        self
    }

    pub(super) fn command(&self, program: &Path, port: u16) -> Vec<OsString> {
        let (port, memory) = (port.to_string(), self.megabytes.to_string());
        let mut command = vec![program.into()];
        // Without `-u` it does not start as root; otherwise the flag is ignored.
        let fixed = ["-l", "127.0.0.1", "-p", &port, "-U", "0", "-u", "root", "-t", "2", "-c", "4096", "-m", &memory];
        command.extend(fixed.map(OsString::from));
        // As the README of lock-memcached wants it: a server that has moved memory between its slabs, which it does of itself now and then,
        // cannot show that it has forgotten nothing.
        command.extend(["-o", "slab_automove=0"].map(OsString::from));
        if !self.evicts {
            command.push("-M".into());
        }
        command.extend(self.flags.iter().cloned());
        command
    }
}

impl Default for MemcachedOptions {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_evicts_only_if_it_is_told_to() {
        let command = |options: MemcachedOptions| {
            let words = options.command(Path::new("memcached"), 7);
            words.into_iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let safe = command(MemcachedOptions::new().with_memory(2).with_flag("-C"));
        assert!(safe.windows(2).any(|pair| pair == ["-m", "2"]) && safe.windows(2).any(|pair| pair == ["-p", "7"]));
        assert!(safe.contains(&"-M".to_owned()) && safe.contains(&"-C".to_owned()));
        assert!(safe.windows(2).any(|pair| pair == ["-o", "slab_automove=0"]));
        assert!(!command(MemcachedOptions::new().evicting()).contains(&"-M".to_owned()));
    }
}
