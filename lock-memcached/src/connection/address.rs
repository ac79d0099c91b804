//! Where a server is.

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
                (host, port.strip_prefix(':'))
            }
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() {
            return Err("the host is missing");
        }
        let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| "the port is no number up to 65535"))?;
        Ok(Self { host: host.to_owned(), port })
    }

    /// As the system's resolver wants it.
    pub(crate) fn pair(&self) -> (&str, u16) {
        (&self.host, self.port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}
