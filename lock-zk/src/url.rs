//! URLs: which servers, and below which node.

use lock_core::{Error, Phase};

/// The contents of a URL, in the form that the client crate takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// `host:port,host:port`
    pub(crate) servers: String,
    /// `/path`, or nothing.
    pub(crate) chroot: String,
    pub(crate) tls: bool,
}

impl Target {
    /// Reads `zk://host[:port][,host[:port]…][/chroot]`; `zookeeper` may stand for `zk`, and `s` behind it for TLS.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let (rest, tls) = match url.split_once("://") {
            Some(("zk" | "zookeeper", rest)) => (rest, false),
            Some(("zks" | "zookeepers", rest)) => (rest, true),
            _ => return Err(wrong("it must begin with zk:// or zks://")),
        };
        if rest.contains(['@', '?', '#']) {
            return Err(wrong("it has no users, parameters or fragments"));
        }
        let (hosts, chroot) = rest.split_once('/').unwrap_or((rest, ""));
        if chroot.contains(',') {
            return Err(wrong("its path comes once, behind the last server, and has no comma"));
        }
        let servers = hosts.split(',').map(server).collect::<Result<Vec<_>, _>>()?.join(",");
        let chroot = chroot.trim_end_matches('/');
        if chroot.split('/').skip(usize::from(chroot.is_empty())).any(|part| matches!(part, "" | "." | "..")) {
            return Err(wrong("its path has an empty, '.' or '..' part"));
        }
        let chroot = if chroot.is_empty() { String::new() } else { format!("/{chroot}") };
        Ok(Self { servers, chroot, tls })
    }
}

fn server(text: &str) -> Result<String, Error> {
    let (host, port) = match text.rsplit_once(':') {
        // The colons of an address in brackets are its own.
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (text, "2181"),
    };
    let is_bare_v6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    if host.is_empty() || is_bare_v6 {
        return Err(wrong("each server is host[:port]; an IPv6 address stands in brackets"));
    }
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok(format!("{host}:{port}")),
        _ => Err(wrong("a port is a number from 1 to 65535")),
    }
}

fn wrong(what: &'static str) -> Error {
    Error::invalid(Phase::Configure, format!("the URL of the servers is wrong: {what}"))
        .with_backend(crate::guarantees::NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_chroot_are_found() {
        for (url, servers, chroot, tls) in [
            ("zk://a", "a:2181", "", false),
            ("zk://a:1/", "a:1", "", false),
            ("zookeeper://a:1,b,[::1]:3/x/y", "a:1,b:2181,[::1]:3", "/x/y", false),
            ("zk://[::1]/x", "[::1]:2181", "/x", false),
            ("zks://a:2/x", "a:2", "/x", true),
            ("zookeepers://a", "a:2181", "", true),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!((&*target.servers, &*target.chroot, target.tls), (servers, chroot, tls), "{url}");
        }
    }

    #[test]
    fn what_is_no_such_url_is_refused() {
        for url in [
            "a:1",
            "redis://a",
            "zk://",
            "zk://a,,b",
            "zk://a:0",
            "zk://a:x",
            "zk://::1",
            "zk://a//b",
            "zk://a/..",
            "zk://a/x,b:2",
        ] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
    }
}
