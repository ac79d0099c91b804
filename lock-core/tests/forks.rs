//! Two processes that go on from one memory, as a forked child does, and a virtual machine that is restored from a snapshot.

use std::collections::HashSet;
use std::io::{PipeWriter, Read, Write};

use fork::{Fork, fork, waitpid};
use lock_core::GrantId;

const MANY: usize = 100;

/// The child's part: nothing but its ids, whatever other threads had in hand.
fn tell(mut to: PipeWriter) -> std::io::Result<()> {
    (0..MANY).try_for_each(|_| to.write_all(GrantId::random().map_err(std::io::Error::other)?.as_bytes()))
}

/// Both would take the same ones out of a stock that was there before they parted.
#[test]
fn a_forked_child_gives_out_other_ids_than_its_parent() {
    let ids = || (0..MANY).map(|_| GrantId::random().unwrap());
    let before: HashSet<_> = ids().collect();
    let (mut from, to) = std::io::pipe().unwrap();
    let child = match fork().unwrap() {
        Fork::Child => std::process::exit(i32::from(tell(to).is_err())),
        Fork::Parent(child) => child,
    };
    drop(to);
    let ours: HashSet<_> = ids().collect();
    let mut told = Vec::new();
    from.read_to_end(&mut told).unwrap();
    assert_eq!((waitpid(child).unwrap(), told.len()), (0, MANY * 16));
    let theirs: HashSet<_> = told.chunks_exact(16).map(|id| GrantId::from_bytes(id.try_into().unwrap())).collect();
    assert_eq!((before.len(), ours.len(), theirs.len()), (MANY, MANY, MANY));
    assert!(theirs.is_disjoint(&ours) && theirs.is_disjoint(&before), "the child repeats ids of its parent");
}
