//! The address at which a server listens.

use std::fmt;
use std::path::PathBuf;

/// The address at which a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    /// A host's name or IP address, without brackets, and a port.
    Tcp { host: String, port: u16 },
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// `host`, `host:port`, `[v6]` or `[v6]:port`.
    pub(crate) fn parse(text: &str, default_port: u16) -> Result<Self, &'static str> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or("a host begins with [ and has no ]")?;
                let port = rest.strip_prefix(':');
                if port.is_none() && !rest.is_empty() {
                    return Err("after a host in brackets comes a colon, then the port");
                }
                (host, port)
            }
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port =
            port.map_or(Ok(default_port), |port| port.parse().map_err(|_| "a port is not a number up to 65535"))?;
        if host.is_empty() {
            return Err("a host is missing");
        }
        if host.contains(['[', ']']) {
            return Err("a host has brackets around it, and none within");
        }
        Ok(Self::Tcp { host: host.to_owned(), port })
    }

    /// `host:port` as servers write it: an IPv6 address has no brackets there, and an empty host means the one that was asked.
    pub(crate) fn told(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::of(host, port.parse().ok()?, asked)
    }

    /// The address of a host and a port; `None` for the host `?`, which servers write for one that they do not know.
    pub(crate) fn of(host: &str, port: u16, asked: &Self) -> Option<Self> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match (host, asked) {
            ("", Self::Tcp { host, .. }) => Some(Self::Tcp { host: host.clone(), port }),
            ("?", _) | ("", Self::Unix(_)) => None,
            _ => Some(Self::Tcp { host: host.to_owned(), port }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_may_leave_their_own_host_out_and_write_addresses_without_brackets() {
        let asked = Address::parse("[::1]:7000", 0).unwrap();
        assert_eq!(asked.to_string(), "[::1]:7000");
        let shown = |told: &str| Address::told(told, &asked).map(|address| address.to_string());
        assert_eq!(shown("10.0.0.1:6379").as_deref(), Some("10.0.0.1:6379"));
        assert_eq!(shown("fe80::2:6379").as_deref(), Some("[fe80::2]:6379"));
        assert_eq!(shown(":7001").as_deref(), Some("[::1]:7001"));
        assert_eq!((shown("nonsense"), shown("?:7001")), (None, None));
    }
}
