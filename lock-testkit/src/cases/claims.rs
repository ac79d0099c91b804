//! The document that tells the claim behind each id.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::CASES;

const PREFACE: &str = "\
# The cases, by id

Rendered from the list of cases (`src/cases/list/`); a test compares. [`promises.md`](../docs/promises.md) says which promise
each of them proves, and on which backends it runs.

An id is stable; a test's name or a comment that mentions one is explained here. A letter after the number marks a
second claim under the same heading. A, B, C are owners in different clients; the TTL is 2 s unless said; \"free\" means
that the servers have nothing left. Cases about exclusion run in every form that the backend has: mutex, write lock,
semaphore of one, drained semaphore (three permits, two of them taken), reentrant lock with a fresh owner each time.

A run during which a processor itself stood still for 250 ms or more of a lease's time is void if it fails, and the case is
judged anew; the third void run fails. The README tells how that is proven and why it is no retry.

## Claims
";

/// Ids that are not in the list, and where their claims are proven instead.
const ELSEWHERE: &[(&str, &str)] = &[
    ("C-M21", "needs a quorum: `lock-redis/tests/quorum`."),
    ("C-M22", "needs a quorum: `lock-redis/tests/quorum`."),
    ("C-M23", "needs a quorum: `lock-redis/tests/quorum`."),
    ("C-S14", "is what the forms \"semaphore of one\" and \"drained semaphore\" run."),
    ("C-S11", "is C-D10 with permits, and C-F15."),
    ("C-F01", "is C-D09."),
    ("C-F06", "is C-F05 where a grant is a node."),
    ("C-F14", "needs scripts: `lock-redis/tests/mechanisms/links.rs` and `every_kind.rs`."),
    ("C-F16", "needs replicas: `lock-redis/tests/topologies/replicas.rs`."),
    ("C-F22", "is C-D07 and C-D07b, whose only thread is kept from running."),
    ("C-W17", "does not apply: there are no callbacks."),
    (
        "C-N07",
        "needs a cluster: `lock-redis/tests/conformance/cluster.rs` and the unit tests of `lock-redis/src/store/keys.rs`.",
    ),
    ("C-N09", "needs a sequence at its end."),
    ("C-N10", "needs servers with access control: `lock-redis/tests/mechanisms/rights.rs`."),
    ("C-O06", "needs a count of commands: `lock-redis/tests/mechanisms/cost.rs`."),
    ("C-L04", "needs a count of subscriptions."),
    ("C-L05", "needs a long run."),
    ("C-L06", "needs another tool chain."),
];

fn document() -> String {
    let mut text = PREFACE.to_owned();
    let mut heading = "";
    for case in CASES {
        if case.heading != heading {
            heading = case.heading;
            write!(text, "\n### {heading}\n\n").unwrap();
        }
        writeln!(text, "- **{}** {}", case.id, case.claim.trim()).unwrap();
    }
    text.push_str("\n## Elsewhere\n\n");
    for (id, place) in ELSEWHERE {
        writeln!(text, "- **{id}** {place}").unwrap();
    }
    text
}

#[test]
fn what_is_proven_elsewhere_is_not_in_the_list() {
    let listed: HashSet<_> = CASES.iter().map(|case| case.id).collect();
    let twice: Vec<_> = ELSEWHERE.iter().filter(|(id, _)| listed.contains(id)).collect();
    assert!(twice.is_empty(), "in the list, and said to be elsewhere: {twice:?}");
}

#[test]
fn the_document_tells_the_claims_of_the_list() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/CASES.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, document()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written == document(), "CASES.md is stale: UPDATE_DOCS=1 cargo test -p lock-testkit --lib cases");
}
