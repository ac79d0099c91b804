//! Free ports on the loopback interface.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::TcpListener;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Below the range from which the kernel takes the ports of outgoing connections. A port of that range could be taken
/// while its server is down, even by a client that tries to reach it there and meets itself.
const RANGE: std::ops::Range<u16> = 10_000..20_000;

/// The ports of a Redis Cluster's bus lie so far above those of its nodes, unless told otherwise (which 6.2 cannot be).
pub const BUS: u16 = 10_000;

/// A port that nobody listens on, nor on the one [`BUS`] above it.
///
/// # Errors
/// If there is none.
pub fn free_port() -> io::Result<u16> {
    // Each process begins elsewhere, and hands no port out twice until it has been through all of them.
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(0) >> 1));
    let mut ports = RANGE.map(|_| {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % (RANGE.len() as u64);
        RANGE.start + u16::try_from(step).unwrap_or_default()
    });
    ports.find(|port| is_free(*port) && is_free(port + BUS)).ok_or_else(|| io::ErrorKind::AddrInUse.into())
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_free_and_not_handed_out_again() {
        let ports: Vec<_> = (0..100).map(|_| free_port().unwrap()).collect();
        assert!(ports.iter().all(|port| RANGE.contains(port)));
        let mut different = ports.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), ports.len());
    }

    #[test]
    fn a_port_in_use_is_not_free() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!is_free(port));
        drop(listener);
        assert!(is_free(port));
    }
}
