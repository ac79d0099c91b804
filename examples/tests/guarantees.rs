//! The table in `docs/guarantees.md` is what the backends declare. `UPDATE_DOCS=1` writes it anew.

#![cfg(test)]

use std::fmt::Write as _;
use std::path::Path;

use lock_core::{Guarantee, Guarantees, MemoryLocks};
use lock_memcached::{MemcachedConfig, RestartPolicy};
use lock_redis::{QuorumConfig, Topology};
use lock_zk::ZkConfig;

const BEGIN: &str = "<!-- guarantees: begin -->\n";
const END: &str = "<!-- guarantees: end -->";

/// The meaning of each promise; exhaustive by the test below.
const MEANING: &[(Guarantee, &str)] = &[
    (Guarantee::ExclusionAcrossRestart, "never two holders when the server crashes and comes back"),
    (Guarantee::ExclusionAcrossFailover, "never two holders when another server takes over"),
    (Guarantee::Fencing, "every grant carries a token that grows"),
    (Guarantee::FencingAcrossRestart, "tokens keep growing when the server crashes and comes back"),
    (Guarantee::FencingAcrossFailover, "tokens keep growing when another server takes over"),
    (Guarantee::Fifo, "waiters are served in the order in which they came"),
    (Guarantee::Push, "a release wakes the next waiter, and no other"),
    (Guarantee::LimitCheck, "clients that disagree on a semaphore's limit are told"),
    (Guarantee::Inspect, "`inspect` shows holders and waiters"),
    (Guarantee::ForceRelease, "an operator can free a grant, and its holder is told"),
    (Guarantee::SharedOwner, "one owner may enter a reentrant lock from several processes"),
    (Guarantee::ForeignClients, "clients of other libraries can share a key"),
    (Guarantee::RenewalAcrossRuntimes, "locks are renewed on when the runtime ends on which the client was made"),
    (Guarantee::Record, "a record can be kept beside a mutex, and a late holder cannot write it"),
    (Guarantee::RecordAcrossRestart, "a record is there when the server crashes and comes back"),
    (Guarantee::RecordAcrossFailover, "a record is there when another server takes over"),
    (Guarantee::Adoption, "a mutex that is held can be passed on to another client"),
    (
        Guarantee::Leave,
        "a mutex can be left: it ends after a time by the server's clock, whatever becomes of its client",
    ),
];

fn table(backends: &[(&str, Guarantees)]) -> String {
    let mut table = String::from("| promise | meaning |");
    for (name, _) in backends {
        write!(table, " {name} |").unwrap();
    }
    table.push_str("\n|---|---|");
    table.push_str(&"---|".repeat(backends.len()));
    table.push('\n');
    for (guarantee, meaning) in MEANING {
        write!(table, "| `{}` | {meaning} |", guarantee.name()).unwrap();
        for (_, guarantees) in backends {
            write!(table, " {} |", guarantees.of(*guarantee)).unwrap();
        }
        table.push('\n');
    }
    table
}

#[test]
fn every_promise_has_a_line() {
    let explained: Vec<_> = MEANING.iter().map(|(guarantee, _)| *guarantee).collect();
    assert_eq!(explained, Guarantee::ALL, "add the promise to MEANING");
}

#[test]
fn the_table_says_what_the_backends_declare() {
    let backends = [
        ("memory", MemoryLocks::new().guarantees()),
        ("Redis, one server", Topology::Single.guarantees()),
        ("Redis behind sentinels", Topology::Sentinel.guarantees()),
        ("Redis cluster", Topology::Cluster.guarantees()),
        ("Redis, quorum", QuorumConfig::new(["redis://quorum"]).guarantees()),
        ("ZooKeeper", ZkConfig::new("zk://fair").guarantees()),
        ("ZooKeeper, unfair mutex", ZkConfig::new("zk://unfair").with_unfair_mutex(true).guarantees()),
        ("memcached", MemcachedConfig::new("memcached://quarantine").guarantees()),
        (
            "memcached, restart policy off",
            MemcachedConfig::new("memcached://off").with_restart_policy(RestartPolicy::Off).guarantees(),
        ),
    ];
    let declared = table(&backends);

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guarantees.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = document.split_once(BEGIN).expect("the begin marker is there");
    let (written, after) = rest.split_once(END).expect("the end marker is there");
    if std::env::var_os("UPDATE_DOCS").is_some_and(|update| update == "1") {
        std::fs::write(&path, [before, BEGIN, &declared, END, after].concat()).unwrap();
        return;
    }
    if written == declared {
        return;
    }
    let mut difference = String::new();
    for line in written.lines().filter(|line| !declared.contains(line)) {
        writeln!(difference, "- {line}").unwrap();
    }
    for line in declared.lines().filter(|line| !written.contains(line)) {
        writeln!(difference, "+ {line}").unwrap();
    }
    panic!(
        "docs/guarantees.md is not what the backends declare:\n{difference}\n\
         UPDATE_DOCS=1 cargo test -p examples --test guarantees"
    );
}
