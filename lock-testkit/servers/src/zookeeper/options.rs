//! The options of a server of the suite's own.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::program::Program;
use crate::certificates::{Certificates, ClientCertificates};
use crate::url::Credentials;

/// Enough for a suite, and quick to start: the whole of it, the Java machine included, takes about half a second.
///
/// By default every packet of a connection passes from one thread to another and back. On a machine that is busy each time
/// costs some milliseconds, and a connection serves a hundred requests a second. Without those threads it serves thousands.
const FRUGAL: &[&str] =
    &["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.nio.numWorkerThreads=0"];
/// With the compiler that optimizes.
const FAST: &[&str] = &["-Xmx256m", "-XX:+UseSerialGC"];

/// The file with the users of SASL.
const JAAS: &str = "jaas.conf";

/// The options of a server of the suite's own. By default: ticks of 200 ms, session timeouts from 400 ms to 60 s, no
/// limit to connections, every word of four letters, and nothing is synced to the disk.
///
/// ```
/// use lock_testkit_servers::zookeeper::ZooKeeperOptions;
///
/// let crowded = ZooKeeperOptions::new().with_setting("maxClientCnxns", "2");
/// let tidy = ZooKeeperOptions::new().with_property("znode.container.checkIntervalMs", "1000");
/// # drop((crowded, tidy));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ZooKeeperOptions {
    settings: Vec<String>,
    properties: Vec<String>,
    for_benchmarks: bool,
    severable: bool,
    tls: Option<(Certificates, ClientCertificates)>,
    sasl: Vec<Credentials>,
}

/// The ports of one server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) plain: u16,
    pub(super) tls: u16,
}

/// The settings of a server as a member of an ensemble.
#[derive(Debug)]
pub(super) struct EnsembleMember {
    /// The member's number among the servers.
    pub(super) id: usize,
    /// A line for every server, such as `server.1=host:port:port`.
    pub(super) servers: Vec<String>,
}

impl ZooKeeperOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With this line of `zoo.cfg`, such as `("tickTime", "2000")`. It overrules what was said before.
    #[must_use]
    pub fn with_setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push(format!("{name}={value}"));
        self
    }

    /// With this system property, for what `zoo.cfg` cannot say.
    #[must_use]
    pub fn with_property(mut self, name: &str, value: &str) -> Self {
        self.properties.push(format!("-D{name}={value}"));
        self
    }

    /// With a Java machine that compiles for speed and has more memory: it starts later, and answers faster.
    #[must_use]
    pub fn for_benchmarks(mut self) -> Self {
        self.for_benchmarks = true;
        self
    }

    /// For an ensemble whose servers can be [cut off](super::ZooKeeperEnsemble::cut_off) from each other. What they
    /// replicate goes through this process, which makes writes slower.
    #[must_use]
    pub fn with_severable_links(mut self) -> Self {
        self.severable = true;
        self
    }

    /// The server's URL is one for TLS (`zks://`). The suite's own client uses another port, without TLS.
    #[must_use]
    pub fn with_tls(mut self, certificates: &Certificates, clients: ClientCertificates) -> Self {
        self.tls = Some((certificates.clone(), clients));
        self
    }

    /// Clients may show that they are this user by SASL (`DIGEST-MD5`), and nodes may belong to him (`sasl:user`). Who
    /// shows nothing is let in too.
    #[must_use]
    pub fn with_sasl_user(mut self, user: &str, password: &str) -> Self {
        self.sasl.push(Credentials { user: user.to_owned(), password: password.to_owned() });
        self
    }

    /// The URL that clients under test connect to.
    pub(super) fn url(&self, ports: Ports) -> String {
        if self.tls.is_some() { format!("zks://127.0.0.1:{}", ports.tls) } else { self.plain_url(ports) }
    }

    /// The URL that the suite's own client connects to.
    pub(super) fn plain_url(&self, ports: Ports) -> String {
        format!("zk://127.0.0.1:{}", ports.plain)
    }

    pub(super) fn severable(&self) -> bool {
        self.severable
    }

    /// Writes the server's files, and answers its command line.
    pub(super) fn write(
        &self,
        program: &Program,
        ports: Ports,
        member: Option<&EnsembleMember>,
        directory: &Path,
    ) -> io::Result<Vec<OsString>> {
        let file = directory.join("zoo.cfg");
        std::fs::write(&file, self.configuration(ports, member, directory))?;
        if let Some((certificates, _)) = &self.tls {
            certificates.write(directory)?;
        }
        if !self.sasl.is_empty() {
            std::fs::write(directory.join(JAAS), self.jaas())?;
        }
        if let Some(EnsembleMember { id, .. }) = member {
            std::fs::write(directory.join("myid"), id.to_string())?;
        }
        Ok(program.command(&self.java_options(directory), &file))
    }

    fn java_options(&self, directory: &Path) -> Vec<OsString> {
        let machine = if self.for_benchmarks { FAST } else { FRUGAL };
        // The log goes where the output goes. Java's own files go into the directory, or are not written at all, so that
        // nothing is left of a server that was killed.
        let fixed = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-XX:-UsePerfData"];
        let mut options: Vec<OsString> = machine.iter().chain(&fixed).map(OsString::from).collect();
        options.push(format!("-Djava.io.tmpdir={}", directory.display()).into());
        options.push(format!("-XX:ErrorFile={}", directory.join("crash").display()).into());
        if !self.sasl.is_empty() {
            options.push(format!("-Djava.security.auth.login.config={}", directory.join(JAAS).display()).into());
        }
        options.extend(self.properties.iter().map(OsString::from));
        options
    }

    fn configuration(&self, ports: Ports, member: Option<&EnsembleMember>, directory: &Path) -> String {
        let mut lines = vec![
            format!("dataDir={}", directory.display()),
            "clientPortAddress=127.0.0.1".to_owned(),
            format!("clientPort={}", ports.plain),
            "tickTime=200".to_owned(),
            // By default 20 ticks, which is 4 s here.
            "maxSessionTimeout=60000".to_owned(),
            // By default 60 of one address, and everybody is at the same one here.
            "maxClientCnxns=0".to_owned(),
            // It would take the port 8080.
            "admin.enableServer=false".to_owned(),
            "4lw.commands.whitelist=*".to_owned(),
            "extendedTypesEnabled=true".to_owned(),
            "forceSync=no".to_owned(),
        ];
        if let Some(EnsembleMember { servers, .. }) = member {
            // In ticks: a quorum has 10 s to form, and a server that is silent for 2 s is left alone.
            lines.extend(["initLimit=50".to_owned(), "syncLimit=10".to_owned()]);
            lines.extend(servers.iter().cloned());
        }
        if let Some((_, clients)) = &self.tls {
            lines.extend(tls(ports.tls, *clients, directory));
        }
        if !self.sasl.is_empty() {
            lines.push("authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider".to_owned());
        }
        lines.extend(self.settings.iter().cloned());
        lines.join("\n") + "\n"
    }

    /// Returns the users that SASL lets in, as Java reads them.
    fn jaas(&self) -> String {
        let users = self.sasl.iter().map(|Credentials { user, password }| format!("user_{user}=\"{password}\""));
        let users = users.collect::<Vec<_>>().join(" ");
        format!("Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required {users}; }};\n")
    }
}

/// A second port, and a network library that knows TLS on both.
fn tls(port: u16, clients: ClientCertificates, directory: &Path) -> [String; 8] {
    let asked = if clients == ClientCertificates::Required { "need" } else { "none" };
    [
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
        "secureClientPortAddress=127.0.0.1".to_owned(),
        format!("secureClientPort={port}"),
        format!("ssl.clientAuth={asked}"),
        format!("ssl.keyStore.location={}", directory.join("identity.pem").display()),
        "ssl.keyStore.type=PEM".to_owned(),
        format!("ssl.trustStore.location={}", directory.join("ca.pem").display()),
        "ssl.trustStore.type=PEM".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: Ports = Ports { plain: 7, tls: 8 };

    #[test]
    fn a_url_names_the_door_that_clients_use() {
        let options = ZooKeeperOptions::new().with_tls(&Certificates::new().unwrap(), ClientCertificates::NotAsked);
        assert_eq!(ZooKeeperOptions::new().url(PORTS), "zk://127.0.0.1:7");
        assert_eq!(
            (options.url(PORTS), options.plain_url(PORTS)),
            ("zks://127.0.0.1:8".to_owned(), "zk://127.0.0.1:7".to_owned())
        );
    }

    #[test]
    fn what_is_said_stands_after_the_defaults() {
        let options = ZooKeeperOptions::new().with_setting("tickTime", "2000").with_property("a.b", "c");
        let configuration = options.configuration(PORTS, None, Path::new("/d"));
        assert!(configuration.contains("clientPort=7\n") && configuration.contains("dataDir=/d\n"), "{configuration}");
        assert!(configuration.find("tickTime=200\n") < configuration.find("tickTime=2000\n"), "{configuration}");
        let java = options.java_options(Path::new("/d"));
        assert!(java.contains(&"-Da.b=c".into()) && java.contains(&"-XX:TieredStopAtLevel=1".into()), "{java:?}");
        let java = options.for_benchmarks().java_options(Path::new("/d"));
        assert!(!java.contains(&"-XX:TieredStopAtLevel=1".into()), "{java:?}");
    }
}
