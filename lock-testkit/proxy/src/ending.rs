//! The end of a connection.

use std::io;

/// The reason that a connection ends before both sides are through with it.
#[derive(Debug)]
pub(super) enum Ending {
    /// The connection is closed.
    Fin,
    /// The connection is reset.
    Reset,
    /// One side of the connection is gone.
    Gone,
}

impl From<io::Error> for Ending {
    fn from(error: io::Error) -> Self {
        // A reset passes through as one.
        if error.kind() == io::ErrorKind::ConnectionReset { Self::Reset } else { Self::Gone }
    }
}
