//! URLs of servers and of deployments of several servers.

use lock_testkit::HarnessError;

/// `scheme://[user[:password]@]host[:port][,host[:port]...][/path]`, without percent-escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    pub(crate) scheme: String,
    pub(crate) credentials: Option<Credentials>,
    /// `host:port` of each server.
    pub(crate) addresses: Vec<String>,
    /// The part behind the first slash after the servers; empty if there is none.
    pub(crate) path: String,
}

/// A user of the server's access control list.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// Empty for the default user.
    pub(crate) user: String,
    pub(crate) password: String,
}

impl ServerUrl {
    /// Reads a URL; servers without a port get this one.
    pub(crate) fn parse(url: &str, default_port: u16) -> Result<Self, HarnessError> {
        // Not named: it may hold a password.
        let wrong =
            || HarnessError::new("a server's URL should read scheme://[user:password@]host:port[,host:port]/[path]");
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(Credentials::parse(credentials)), hosts),
            None => (None, authority),
        };
        if url.contains('%') || hosts.split(',').any(|host| host.is_empty() || host.starts_with(':')) {
            return Err(wrong());
        }
        let with_port =
            |host: &str| if host.contains(':') { host.to_owned() } else { format!("{host}:{default_port}") };
        let addresses = hosts.split(',').map(with_port).collect();
        Ok(Self { scheme: scheme.to_owned(), credentials, addresses, path: path.trim_end_matches('/').to_owned() })
    }
}

impl Credentials {
    fn parse(text: &str) -> Self {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        Self { user: user.to_owned(), password: password.to_owned() }
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Returns the part before the servers in a URL: `user:password@`, or nothing.
pub(crate) fn authority(credentials: Option<&Credentials>) -> String {
    credentials.map(|Credentials { user, password }| format!("{user}:{password}@")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let url = ServerUrl::parse("redis-sentinel://me:secret@a:1,b/mymaster/2", 26379).unwrap();
        let credentials = Credentials { user: "me".to_owned(), password: "secret".to_owned() };
        assert_eq!(authority(Some(&credentials)), "me:secret@");
        let expected = ServerUrl {
            scheme: "redis-sentinel".to_owned(),
            credentials: Some(credentials),
            addresses: vec!["a:1".to_owned(), "b:26379".to_owned()],
            path: "mymaster/2".to_owned(),
        };
        assert_eq!(url, expected);
        assert!(!format!("{url:?}").contains("secret"));
        assert_eq!(ServerUrl::parse("redis://localhost/", 6379).unwrap().addresses, ["localhost:6379"]);
    }

    #[test]
    fn no_url_breaks_the_parser_and_none_shows_its_password() {
        let samples =
            ["redis://me:hunter2@a:1,b/mymaster/2", "zk://[::1]:2181/x", "memcached://h", "redis://u@h:6379/"];
        lock_testkit::fuzz::texts("URLs of servers", &samples, |text| match ServerUrl::parse(text, 6379) {
            Ok(url) => {
                assert!(!url.addresses.is_empty() && url.addresses.iter().all(|address| address.contains(':')));
                let secret = url.credentials.as_ref().map(|credentials| credentials.password.as_str());
                let secret = secret.filter(|secret| secret.contains("hunter2"));
                let elsewhere = [&url.scheme, &url.path].iter().any(|text| text.contains("hunter2"))
                    || url.addresses.concat().contains("hunter2")
                    || url.credentials.as_ref().is_some_and(|credentials| credentials.user.contains("hunter2"));
                assert!(secret.is_none() || elsewhere || !format!("{url:?}").contains("hunter2"), "{url:?}");
            }
            Err(error) => assert!(!error.to_string().contains("hunter2")),
        });
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for wrong in ["localhost", "redis://", "redis:///2", "redis://:6379/", "redis://a,,b", "redis://u:%41@a/"] {
            assert!(ServerUrl::parse(wrong, 6379).is_err(), "{wrong}");
        }
    }
}
