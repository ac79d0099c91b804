//! URLs: which servers, as whom, and how they are arranged.
//!
//! | URL | |
//! |---|---|
//! | `redis://[user[:password]@]host[:port][/database]` | one server; `rediss://` with TLS |
//! | `unix:///path[?db=…&user=…&pass=…]` | one server behind a Unix socket; also `redis+unix://` |
//! | `redis-sentinel://[user[:password]@]host[:port][,host[:port]…]/master-name[/database]` | found by its sentinels |
//! | `redis-cluster://[user[:password]@]host[:port][,host[:port]…]` | a cluster, known by some of its nodes |
//!
//! `valkey` may stand for `redis`, and `rediss` for TLS, in all of them. What is special in a user, a password, a path or
//! a name is percent-encoded.

use std::fmt;

use lock_core::{Error, Phase};
use percent_encoding::percent_decode_str;

use crate::address::Address;
use crate::guarantees::Topology;

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The target that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) servers: Servers,
    pub(crate) login: Login,
    pub(crate) database: i64,
    pub(crate) tls: bool,
}

/// The servers, and their arrangement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Servers {
    /// One server.
    One(Address),
    /// The master of this name, wherever the sentinels say that it is.
    Sentinel { sentinels: Vec<Address>, master: String },
    /// A cluster, of which these are some nodes.
    Cluster(Vec<Address>),
}

impl Servers {
    pub(crate) fn are_a_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Returns how they are arranged.
    pub(crate) fn topology(&self) -> Topology {
        match self {
            Self::One(_) => Topology::Single,
            Self::Sentinel { .. } => Topology::Sentinel,
            Self::Cluster(_) => Topology::Cluster,
        }
    }
}

/// As whom to connect.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl fmt::Debug for Login {
    /// Neither user nor password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Server,
    Unix,
    Sentinel,
    Cluster,
}

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("it has no scheme such as redis://"))?;
        let (scheme, tls) = known(scheme)?;
        if rest.contains('#') {
            return Err(wrong("it has a fragment (#), which means nothing here; in a password it is written %23"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if scheme == Scheme::Unix {
            return Self::of_socket(rest, query);
        }
        if !query.is_empty() {
            return Err(wrong("parameters (?) are understood in unix:// URLs only"));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Login::parse(login)?, hosts),
            None => (Login::default(), authority),
        };
        let port = if scheme == Scheme::Sentinel { SENTINEL_PORT } else { REDIS_PORT };
        let mut hosts: Vec<_> =
            hosts.split(',').map(|host| Address::parse(host, port).map_err(wrong)).collect::<Result<_, _>>()?;
        let mut path = path.split('/').filter(|part| !part.is_empty());
        let servers = match scheme {
            Scheme::Sentinel => {
                let master = path.next().ok_or_else(|| wrong("the master's name is missing after the sentinels"))?;
                Servers::Sentinel { sentinels: hosts, master: decoded(master)? }
            }
            Scheme::Cluster => Servers::Cluster(hosts),
            Scheme::Server | Scheme::Unix => match (hosts.pop(), hosts.is_empty()) {
                (Some(host), true) => Servers::One(host),
                _ => return Err(wrong("several hosts are for redis-sentinel:// and redis-cluster://")),
            },
        };
        let database = path.next().map_or(Ok(0), database)?;
        if path.next().is_some() {
            return Err(wrong("its path has too many parts"));
        }
        if scheme == Scheme::Cluster && database != 0 {
            return Err(wrong("a cluster has no databases"));
        }
        Ok(Self { servers, login, database, tls })
    }

    fn of_socket(path: &str, query: &str) -> Result<Self, Error> {
        if !path.starts_with('/') {
            return Err(wrong("the path of a socket begins with /: unix:///run/redis.sock"));
        }
        let (mut login, mut db) = (Login::default(), 0);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("db", value)) => db = database(value)?,
                Some(("user", value)) => login.user = given(value)?,
                Some(("pass", value)) => login.password = given(value)?,
                _ => return Err(wrong("the parameters of a unix:// URL are db, user and pass")),
            }
        }
        let servers = Servers::One(Address::Unix(decoded(path)?.into()));
        Ok(Self { servers, login, database: db, tls: false })
    }
}

impl Login {
    fn parse(text: &str) -> Result<Self, Error> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        Ok(Self { user: given(user)?, password: given(password)? })
    }
}

fn known(scheme: &str) -> Result<(Scheme, bool), Error> {
    let (base, kind) = match scheme.split_once(['-', '+']) {
        Some((base, kind)) => (base, kind),
        None if scheme == "unix" => ("redis", "unix"),
        None => (scheme, ""),
    };
    let tls = match base {
        "redis" | "valkey" => false,
        "rediss" | "valkeys" => true,
        _ => return Err(wrong(SCHEMES)),
    };
    match kind {
        "" => Ok((Scheme::Server, tls)),
        "unix" if !tls => Ok((Scheme::Unix, false)),
        "sentinel" => Ok((Scheme::Sentinel, tls)),
        "cluster" => Ok((Scheme::Cluster, tls)),
        _ => Err(wrong(SCHEMES)),
    }
}

const SCHEMES: &str = "the schemes are redis, rediss, unix, redis-sentinel, rediss-sentinel, redis-cluster and \
                       rediss-cluster";

fn database(text: &str) -> Result<i64, Error> {
    // Servers count them in 32 bits, with a sign.
    let number: Option<i32> = text.parse().ok().filter(|number| *number >= 0);
    number.map(i64::from).ok_or_else(|| wrong("the database is not a number that a server can have"))
}

/// A part of a login; an empty one is none.
fn given(text: &str) -> Result<Option<String>, Error> {
    if text.is_empty() { Ok(None) } else { decoded(text).map(Some) }
}

fn decoded(text: &str) -> Result<String, Error> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| wrong("a percent-encoded part is not UTF-8"))
}

/// Says what is wrong without a word of the URL itself: any part of it may be a misplaced password.
fn wrong(what: &'static str) -> Error {
    Error::invalid(Phase::Configure, format!("the URL is wrong: {what}")).with_backend(crate::guarantees::NAME)
}

#[cfg(test)]
mod tests {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn every_form_of_url_is_understood() {
        let server = Target::parse("redis://wor%40ker:p%3Aw@[::1]:7000/2").unwrap();
        let login = Login { user: Some("wor@ker".into()), password: Some("p:w".into()) };
        assert_eq!(server, Target { servers: Servers::One(tcp("::1", 7000)), login, database: 2, tls: false });
        assert_eq!(Target::parse("rediss://host").unwrap().servers, Servers::One(tcp("host", 6379)));
        assert!(Target::parse("valkeys://host/").unwrap().tls);

        let socket = Target::parse("unix:///run/a%20b.sock?db=3&pass=x").unwrap();
        assert_eq!(socket.servers, Servers::One(Address::Unix("/run/a b.sock".into())));
        assert_eq!((socket.database, socket.login.password.as_deref()), (3, Some("x")));
        let without = Target::parse("redis+unix:///run/redis.sock?user=&pass=").unwrap();
        assert_eq!(without.login, Login::default());

        let sentinel = Target::parse("redis-sentinel://:pw@a,b:1,[::2]:3/my%2Fmaster/4").unwrap();
        let sentinels = vec![tcp("a", 26379), tcp("b", 1), tcp("::2", 3)];
        assert_eq!(sentinel.servers, Servers::Sentinel { sentinels, master: "my/master".into() });
        assert_eq!((sentinel.database, sentinel.tls), (4, false));
        let cluster = Target::parse("rediss-cluster://a:1,b").unwrap();
        assert_eq!((cluster.servers, cluster.tls), (Servers::Cluster(vec![tcp("a", 1), tcp("b", 6379)]), true));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_url() {
        let cases = [
            ("s3cret", "scheme"),
            ("http://:s3cret@a", "schemes are"),
            ("rediss+unix:///s3cret", "schemes are"),
            ("redis://:s3cret@a:port", "port"),
            ("redis://:s3cret@a:65536", "port"),
            ("redis://:s3cret@[::1]6380", "brackets"),
            ("redis://:s3cret@", "host"),
            ("redis://:s3cret@a,b", "several hosts"),
            ("redis://:s3cret@a/first", "database"),
            ("redis://a/-1", "database"),
            ("redis://a/2147483648", "database"),
            ("redis://a/1/s3cret", "too many"),
            ("redis://:s3#cret@a", "%23"),
            ("redis://a?pass=s3cret", "parameters"),
            ("unix://s3cret", "begins with /"),
            ("unix:///a?password=s3cret", "db, user and pass"),
            ("redis-sentinel://:s3cret@a", "master's name"),
            ("redis-cluster://:s3cret@a/1", "no databases"),
            ("redis://:%ff@a", "UTF-8"),
            ("redis://[::1/", "]"),
            ("redis://:s3cret@[[::1]/", "brackets"),
        ];
        for (url, what) in cases {
            let error = Target::parse(url).expect_err(url);
            assert_eq!(error.kind(), lock_core::ErrorKind::InvalidArgument);
            let told = error.to_string();
            assert!(told.contains(what) && !told.contains("s3cret"), "{url}: {told}");
        }
    }

    /// A URL that says the same.
    fn written(target: &Target) -> String {
        let coded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let Login { user, password } = &target.login;
        let (user, password) = (user.as_deref().map(coded), password.as_deref().map(coded));
        if let Servers::One(Address::Unix(path)) = &target.servers {
            let path = path.to_str().unwrap().split('/').map(coded).collect::<Vec<_>>().join("/");
            let given =
                |name: &str, value: Option<String>| value.map_or_else(String::new, |it| format!("&{name}={it}"));
            return format!("unix://{path}?db={}{}{}", target.database, given("user", user), given("pass", password));
        }
        let (kind, hosts, master) = match &target.servers {
            Servers::One(host) => ("", vec![host], None),
            Servers::Sentinel { sentinels, master } => ("-sentinel", sentinels.iter().collect(), Some(coded(master))),
            Servers::Cluster(nodes) => ("-cluster", nodes.iter().collect(), None),
        };
        let hosts = hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let (tls, master) = (if target.tls { "s" } else { "" }, master.map_or_else(String::new, |it| it + "/"));
        let (user, password) = (user.unwrap_or_default(), password.unwrap_or_default());
        format!("redis{tls}{kind}://{user}:{password}@{hosts}/{master}{}", target.database)
    }

    #[test]
    fn a_url_from_outside_says_one_thing_or_is_refused_without_a_word_of_it() {
        let samples = [
            "redis://us3cret:p%3As3cret@[::1]:7000/2",
            "rediss://s3cret@host.example:6380",
            "unix:///run/s3cret.sock?db=3&user=s3cret&pass=s3cret",
            "redis-sentinel://:s3cret@a,b:1,[::2]:3/s3cret%2Fmaster/4",
            "valkeys-cluster://s3cret:s3cret@10.0.0.1:1,b",
        ];
        lock_testkit::fuzz::texts("URLs", &samples, |url| match Target::parse(url) {
            Ok(target) => {
                assert!(!format!("{:?}", target.login).contains("3cret"));
                let again = written(&target);
                assert_eq!(Target::parse(&again).as_ref().ok(), Some(&target), "{again}");
            }
            Err(error) => assert!(!format!("{error}{error:?}").contains("3cret"), "{error:?}"),
        });
    }
}
