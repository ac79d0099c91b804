//! The promises of a lock, and the document that says which cases prove each of them.

use std::collections::{HashMap, HashSet};

use super::{CASES, Case};
use crate::abilities::Need;

/// Every promise, in one sentence.
const PROMISES: &[(&str, &str)] = &[
    (
        "K1",
        "Two holders never believe in one exclusive lock at the same instant, nor more than may be inside in a shared one, as long as the servers keep what they store.",
    ),
    (
        "K2",
        "Belief is computed from the lease's end and the clock at the call; the lease counts from the sending of the request, and its end is final.",
    ),
    (
        "K3",
        "Every grant has a nonce and an entry of its own: a late release frees no other holder, and a renewal revives nothing.",
    ),
    (
        "K4",
        "Where fencing is promised, every grant has a token, above all earlier ones of exclusive grants; re-entries, renewals and downgrades keep it.",
    ),
    (
        "K5",
        "A released lock goes to a waiter at once, by one wake-up where the servers can push, in order where there is a queue; a lost wake-up costs a second, and nobody starves.",
    ),
    ("K6", "Waiters that died delay the next living one by a bound, however many they are."),
    (
        "K7",
        "A call has one deadline, and ends soon after it; with no limit it ends when the servers have been silent for long.",
    ),
    ("K8", "A future may be dropped at any await point, and a wait given up: nothing is left of it."),
    (
        "K9",
        "A request without a reply is ambiguous, the error says so, and what it may have done is found again by its nonce and undone.",
    ),
    ("K10", "A release ends within one operation timeout: done, not held, or unknown and finished in the background."),
    ("K11", "A holder learns of a loss by its deadline, once, with the reason, and never because of its own release."),
    ("K12", "A renewal that was not answered extends nothing, and no loss is told that has not happened."),
    ("K13", "After a loss the same handle takes the lock again, with a new nonce and a new token."),
    (
        "K14",
        "Names of up to 1,024 bytes work everywhere without collisions, kinds and namespaces are apart, and a key can be shared with other libraries.",
    ),
    (
        "K15",
        "Errors have one type with kind, lock, backend and phase; that somebody else holds a lock is none, and no secret is in them.",
    ),
    ("K16", "An operator sees holders and waiters, and frees exactly one grant."),
    ("K17", "Everything is counted, measured and traced."),
    ("K18", "Thousands of locks and waits cost no task each."),
];

/// The promises of which no case runs on a backend, and why.
const UNPROVEN: &[(&str, &str, &str)] = &[("K9", "memory", "every request is answered")];

/// The promises that a case proves.
fn proven(case: &Case) -> impl Iterator<Item = &'static str> {
    case.proves.split(' ')
}

/// The needs of a case, in the words of those who offer them.
fn needs(case: &Case) -> String {
    let needs = case.needs.iter().map(|need| match need {
        Need::Promise(guarantee) => format!("`{}`", guarantee.name()),
        Need::Always(guarantee) => format!("`{}` without reservation", guarantee.name()),
        Need::Without(guarantee) => format!("no `{}`", guarantee.name()),
        Need::DisposableServer(fault) => format!("servers for a {fault:?}"),
        Need::Reentrant => "reentrant lock".to_owned(),
        Need::RwLock => "read-write lock".to_owned(),
        Need::Semaphore => "semaphore".to_owned(),
        Need::Processes => "`endpoint`".to_owned(),
        Need::GroundTruth => "`ground_truth`".to_owned(),
        Need::Admin => "`admin`".to_owned(),
        Need::Garbage => "`takes_garbage`".to_owned(),
        Need::Foreign => "`foreign`".to_owned(),
        Need::Links => "`linked`".to_owned(),
        Need::Replies => "`protocol`".to_owned(),
        Need::Requests => "`shows_names`".to_owned(),
        Need::Refusals => "`refusals`".to_owned(),
        Need::Sessions => "`sessions`".to_owned(),
    });
    needs.collect::<Vec<_>>().join(", ")
}

/// The backends that are tried, and the file beside each one's harness with the cases that are ignored there.
const BACKENDS: &[(&str, &str)] = &[
    ("memory", "lock-testkit/tests/memory.ignored"),
    ("Redis", "lock-redis/tests/conformance/redis.ignored"),
    ("sentinels", "lock-redis/tests/conformance/redis-sentinel.ignored"),
    ("cluster", "lock-redis/tests/conformance/redis-cluster.ignored"),
    ("quorum", "lock-redis/tests/conformance/redis-quorum.ignored"),
    ("ZooKeeper", "lock-zk/tests/conformance/zookeeper.ignored"),
    ("ensemble", "lock-zk/tests/conformance/zookeeper-ensemble.ignored"),
    ("unfair mutex", "lock-zk/tests/conformance/zookeeper--unfair-mutex.ignored"),
    ("zookeeper-async", "lock-zk/tests/conformance/zookeeper--by-zookeeper-async.ignored"),
    ("memcached", "lock-memcached/tests/conformance/memcached.ignored"),
];

/// The reasons for which cases are ignored, each told once, and the cases that each backend ignores for one of them.
struct Ignored {
    reasons: Vec<String>,
    backends: Vec<HashMap<String, usize>>,
}

impl Ignored {
    fn read() -> Self {
        let mut ignored = Self { reasons: Vec::new(), backends: Vec::new() };
        for (_, file) in BACKENDS {
            let text = std::fs::read_to_string(format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
            let lines = text.lines().map(|line| line.split_once(": ").unwrap());
            let cases = lines.map(|(id, reason)| (id.to_owned(), ignored.number(reason))).collect();
            ignored.backends.push(cases);
        }
        ignored
    }

    fn number(&mut self, reason: &str) -> usize {
        let known = self.reasons.iter().position(|known| known == reason);
        known.unwrap_or_else(|| {
            self.reasons.push(reason.to_owned());
            self.reasons.len() - 1
        })
    }

    /// The cells of a case, one for each backend.
    fn cells(&self, case: &Case) -> String {
        let cell = |cases: &HashMap<String, usize>| {
            cases.get(case.id).map_or("✓".to_owned(), |reason| (reason + 1).to_string())
        };
        self.backends.iter().map(|cases| format!(" {} |", cell(cases))).collect()
    }
}

fn document() -> String {
    let ignored = Ignored::read();
    let heading: String = BACKENDS.iter().map(|(name, _)| format!(" {name} |")).collect();
    let rule = "---|".repeat(3 + BACKENDS.len());
    let mut text = "# Promises, and the cases that prove them\n\n\
        Rendered from the list of cases (`lock-testkit/src/cases/list/`) and from what each backend's run of the suite ignores; tests\n\
        compare both. [`CASES.md`](../lock-testkit/CASES.md) tells the claim behind each id. A case runs (✓) on every backend that has\n\
        what it needs: a kind of lock, a guarantee ([`guarantees.md`](guarantees.md) says who promises it), or a method of the\n\
        harness. A number is the [reason](#reasons) for which it is ignored.\n"
        .to_owned();
    for (id, sentence) in PROMISES {
        text.push_str(&format!("\n## {id}\n\n{sentence}\n\n| case | claim | needs |{heading}\n|{rule}\n"));
        for case in CASES.iter().filter(|case| proven(case).any(|promise| promise == *id)) {
            let claim = case.name.replace("_s_", "'s ").replace('_', " ");
            text.push_str(&format!("| {} | {claim} | {} |{}\n", case.id, needs(case), ignored.cells(case)));
        }
    }
    text.push_str("\n## Reasons\n\n");
    for (i, reason) in ignored.reasons.iter().enumerate() {
        text.push_str(&format!("{}. {reason}\n", i + 1));
    }
    text.push_str("\n## Promises that no case proves on a backend\n\n");
    for (promise, backend, reason) in UNPROVEN {
        text.push_str(&format!("- {promise}, {backend}: {reason}\n"));
    }
    text
}

#[test]
fn every_promise_is_proven_on_every_backend() {
    let ignored = Ignored::read();
    for (id, _) in PROMISES {
        for ((name, _), cases) in BACKENDS.iter().zip(&ignored.backends) {
            let mut proving = CASES.iter().filter(|case| proven(case).any(|promise| promise == *id));
            let is_proven = proving.any(|case| !cases.contains_key(case.id));
            let is_excused = UNPROVEN.iter().any(|(promise, backend, _)| (promise, backend) == (id, name));
            assert!(is_proven != is_excused, "{id} on {name}: proven {is_proven}, excused {is_excused}");
        }
    }
}

#[test]
fn every_promise_has_a_case_and_every_case_a_promise_that_there_is() {
    let known: HashSet<_> = PROMISES.iter().map(|(id, _)| *id).collect();
    assert_eq!(known.len(), PROMISES.len(), "a promise is made twice");
    for case in CASES {
        let unknown: Vec<_> = proven(case).filter(|promise| !known.contains(promise)).collect();
        assert!(unknown.is_empty(), "{} proves what nobody promises: {unknown:?}", case.id);
        assert_eq!(proven(case).collect::<HashSet<_>>().len(), proven(case).count(), "{} says it twice", case.id);
    }
    let kept: HashSet<_> = CASES.iter().flat_map(proven).collect();
    let unproven: Vec<_> = known.difference(&kept).collect();
    assert!(unproven.is_empty(), "no case proves {unproven:?}");
}

#[test]
fn the_document_says_what_the_list_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/promises.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, document()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written == document(), "docs/promises.md is stale: UPDATE_DOCS=1 cargo test -p lock-testkit --lib cases");
}
