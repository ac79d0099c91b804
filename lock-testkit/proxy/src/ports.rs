//! Free ports on the loopback interface.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::TcpListener;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Below the range from which the kernel takes the ports of outgoing connections. A port of that range could be taken
/// while its server is down, even by a client that tries to reach it there and meets itself.
const RANGE: Range<u16> = 10_000..20_000;

/// The ports of a Redis Cluster's bus lie so far above those of its nodes, unless told otherwise (which 6.2 cannot be).
pub const BUS: u16 = 10_000;

/// The number of ports that a process has for itself. A test that runs beside this one in another process would otherwise be given the
/// port of a server that is down for a moment: its peers would meet a stranger there.
const BLOCK: u16 = 250;

/// A port that nobody listens on, nor on the one [`BUS`] above it.
///
/// # Errors
/// If there is none.
pub fn free_port() -> io::Result<u16> {
    // Each process begins elsewhere, and hands no port out twice until it has been through all of its own.
    static OWN: LazyLock<OwnBlock> = LazyLock::new(OwnBlock::claim);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = |ports: &Range<u16>| {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % u64::from(ports.end - ports.start);
        ports.start + u16::try_from(step).unwrap_or_default()
    };
    let own = (0..BLOCK).map(|_| next(&OWN.ports));
    let any = RANGE.map(|_| next(&RANGE));
    own.chain(any).find(|port| is_free(*port) && is_free(port + BUS)).ok_or_else(|| io::ErrorKind::AddrInUse.into())
}

/// The ports that this process has for itself as long as it lives.
struct OwnBlock {
    ports: Range<u16>,
    /// The mark of it, which the kernel gives to one process of a network namespace.
    _mark: Option<OwnedFd>,
}

impl OwnBlock {
    /// Claims the first block from a random one on that is nobody's. If there is none, or nothing to mark it with, it shares one.
    fn claim() -> Self {
        let blocks = (RANGE.end - RANGE.start) / BLOCK;
        let first = u16::try_from(RandomState::new().hash_one(0) % u64::from(blocks)).unwrap_or_default();
        let ports = |block: u16| RANGE.start + block * BLOCK..RANGE.start + (block + 1) * BLOCK;
        let claimed = (0..blocks).map(|step| (first + step) % blocks).find_map(|block| Some((block, mark(block)?)));
        match claimed {
            Some((block, mark)) => Self { ports: ports(block), _mark: Some(mark) },
            None => Self { ports: ports(first), _mark: None },
        }
    }
}

/// Marks a block as this process's, by a socket with a name in no file system; `None` if it is marked already.
#[cfg(target_os = "linux")]
fn mark(block: u16) -> Option<OwnedFd> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let name = SocketAddr::from_abstract_name(format!("lock-testkit/ports/{block}")).ok()?;
    UnixListener::bind_addr(&name).ok().map(OwnedFd::from)
}

#[cfg(not(target_os = "linux"))]
fn mark(_block: u16) -> Option<OwnedFd> {
    None
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
    #[cfg(target_os = "linux")]
    fn a_block_that_was_claimed_is_not_claimed_again() {
        let block = OwnBlock::claim();
        let number = (block.ports.start - RANGE.start) / BLOCK;
        assert!(mark(number).is_none());
        drop(block);
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
