//! The address of a server.

use std::fmt;

const PORT: u16 = 11211;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// Out of `host`, `host:port` or `[::1]:port`.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or("a ] is missing after the host")?;
                let follows = || port.strip_prefix(':').ok_or("something else than a port follows the ]");
                (host, if port.is_empty() { None } else { Some(follows()?) })
            }
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() {
            return Err("the host is missing");
        }
        if host.contains(['[', ']']) {
            return Err("brackets may only enclose the whole host");
        }
        let port = port.map_or(Some(PORT), number).ok_or("the port is no number from 1 to 65535")?;
        Ok(Self { host: host.to_owned(), port })
    }

    /// Returns the form that the system's resolver wants.
    pub(crate) fn pair(&self) -> (&str, u16) {
        (&self.host, self.port)
    }
}

/// A port, written as numbers are.
fn number(port: &str) -> Option<u16> {
    port.parse().ok().filter(|_| !port.starts_with(['0', '+']))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}
