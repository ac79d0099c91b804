//! The options of a server of the suite's own.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use lock_testkit::faults::WallClock;

use super::program::Program;
use crate::certificates::{Certificates, ClientCertificates};
use crate::url::{Credentials, authority};

/// The options of a server of the suite's own. By default: without persistence, users and TLS.
///
/// ```
/// use lock_testkit_servers::redis::RedisOptions;
///
/// let starved = RedisOptions::new().with_max_memory("2mb", "noeviction");
/// let durable = RedisOptions::new().persistent().with_user("worker", "secret");
/// # drop((starved, durable));
/// ```
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    directives: Vec<String>,
    credentials: Option<Credentials>,
    tls: Option<(Certificates, ClientCertificates)>,
    unix_socket: bool,
    sentinel: bool,
    clock: Option<WallClock>,
}

/// The ports of one server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) plain: u16,
    pub(super) tls: u16,
}

impl RedisOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A server that starts as a sentinel.
    pub(super) fn sentinel() -> Self {
        Self { sentinel: true, ..Self::default() }
    }

    /// With this directive of `redis.conf`, such as `("maxclients", "10")`. It overrules what was said before.
    #[must_use]
    pub fn with_directive(mut self, name: &str, value: &str) -> Self {
        self.directives.push(format!("{name} {value}"));
        self
    }

    /// With these directives of `redis.conf`, unless something else was said.
    pub(super) fn with_defaults(mut self, directives: &[(&str, &str)]) -> Self {
        self.directives.splice(0..0, directives.iter().map(|(name, value)| format!("{name} {value}")));
        self
    }

    /// With at most so much memory, such as `"4mb"`, and what happens when it is full, such as `"allkeys-lru"`.
    #[must_use]
    pub fn with_max_memory(self, bytes: &str, policy: &str) -> Self {
        self.with_directive("maxmemory", bytes).with_directive("maxmemory-policy", policy)
    }

    /// Everything that was answered is there again after a kill and a restart (an append-only file, written through
    /// at every command).
    #[must_use]
    pub fn persistent(self) -> Self {
        self.with_directive("appendonly", "yes").with_directive("appendfsync", "always")
    }

    /// Only this user is let in, who may do everything. The server's URL carries both words, which must not have
    /// blanks or characters with a meaning in URLs.
    #[must_use]
    pub fn with_user(mut self, user: &str, password: &str) -> Self {
        self.credentials = Some(Credentials { user: user.to_owned(), password: password.to_owned() });
        self.with_directive("user", &format!("{user} on >{password} ~* &* +@all"))
            .with_directive("user", "default off")
            .with_directive("masteruser", user)
            .with_directive("masterauth", password)
    }

    /// The server's URL is one for TLS (`rediss://`). The suite's own client uses another port, without TLS.
    #[must_use]
    pub fn with_tls(mut self, certificates: &Certificates, clients: ClientCertificates) -> Self {
        self.tls = Some((certificates.clone(), clients));
        self
    }

    /// The server's URL is one of a Unix socket (`unix://`). The suite's own client uses a port.
    #[must_use]
    pub fn on_unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// The server goes by this wall clock, which can be stepped while it runs.
    #[must_use]
    pub fn with_clock(mut self, clock: &WallClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    pub(super) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// The URL that the suite's own client connects to.
    pub(super) fn plain_url(&self, ports: Ports) -> String {
        format!("redis://{}127.0.0.1:{}/", authority(self.credentials()), ports.plain)
    }

    /// The URL that clients under test connect to.
    pub(super) fn url(&self, ports: Ports, directory: &Path) -> String {
        if self.tls.is_some() {
            return format!("rediss://{}127.0.0.1:{}/", authority(self.credentials()), ports.tls);
        }
        if !self.unix_socket {
            return self.plain_url(ports);
        }
        let query = match self.credentials() {
            Some(Credentials { user, password }) => format!("?user={user}&pass={password}"),
            None => String::new(),
        };
        format!("unix://{}{query}", socket(directory))
    }

    /// Writes the server's files, and answers its command line. (With a file and not with arguments, what a sentinel
    /// or an operator changes by `CONFIG REWRITE` lasts over a restart, as it does in earnest.)
    pub(super) fn write(&self, program: &Program, ports: Ports, directory: &Path) -> io::Result<Vec<OsString>> {
        if let Some((certificates, _)) = &self.tls {
            certificates.write(directory)?;
        }
        let file = directory.join("redis.conf");
        std::fs::write(&file, self.configuration(program, ports, directory))?;
        let mut command = self.clock.as_ref().map(WallClock::prefix).unwrap_or_default();
        command.extend([program.path.clone().into(), file.into()]);
        if self.sentinel {
            command.push("--sentinel".into());
        }
        Ok(command)
    }

    fn configuration(&self, program: &Program, ports: Ports, directory: &Path) -> String {
        let path = |name: &str| format!("\"{}\"", directory.join(name).display());
        let mut lines = vec!["bind 127.0.0.1".to_owned(), format!("port {}", ports.plain)];
        lines.extend([format!("dir {}", path("")), format!("logfile {}", path("log"))]);
        if !self.sentinel {
            lines.push("save \"\"".to_owned());
            // Replicas that wait for each other before they begin would only cost a test its time.
            lines.push("repl-diskless-sync-delay 0".to_owned());
        }
        // Before 7 everybody may debug.
        if program.major >= 7 && !self.sentinel {
            lines.push("enable-debug-command yes".to_owned());
        }
        if let Some((_, clients)) = &self.tls {
            let asked = if *clients == ClientCertificates::Required { "yes" } else { "no" };
            lines.extend([format!("tls-port {}", ports.tls), format!("tls-auth-clients {asked}")]);
            lines.push(format!("tls-ca-cert-file {}", path("ca.pem")));
            lines.push(format!("tls-cert-file {}", path("server.pem")));
            lines.push(format!("tls-key-file {}", path("server.key")));
        }
        if self.unix_socket {
            lines.push(format!("unixsocket \"{}\"", socket(directory)));
        }
        lines.extend(self.directives.iter().cloned());
        lines.join("\n") + "\n"
    }
}

fn socket(directory: &Path) -> String {
    directory.join("redis.sock").display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: Ports = Ports { plain: 1, tls: 2 };

    fn url(options: &RedisOptions) -> String {
        options.url(PORTS, Path::new("/d"))
    }

    #[test]
    fn a_url_names_the_door_that_clients_use() {
        let certificates = Certificates::new().unwrap();
        let options = RedisOptions::new().with_user("me", "secret");
        assert_eq!(url(&RedisOptions::new()), "redis://127.0.0.1:1/");
        assert_eq!(url(&options), "redis://me:secret@127.0.0.1:1/");
        assert_eq!(url(&options.clone().on_unix_socket()), "unix:///d/redis.sock?user=me&pass=secret");
        let tls = options.with_tls(&certificates, ClientCertificates::Required);
        assert_eq!(url(&tls), "rediss://me:secret@127.0.0.1:2/");
        assert_eq!(tls.plain_url(PORTS), "redis://me:secret@127.0.0.1:1/");
    }

    #[test]
    fn what_an_old_server_does_not_know_is_left_out() {
        let configuration = |major| {
            let program = Program { path: "redis-server".into(), major };
            RedisOptions::new().configuration(&program, PORTS, Path::new("/d"))
        };
        assert!(configuration(7).contains("enable-debug-command"));
        assert!(!configuration(6).contains("enable-debug-command"));
    }
}
