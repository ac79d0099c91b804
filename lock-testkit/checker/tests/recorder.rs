//! The recorder writes down what happens: by several processes in one file, by guards that are released, dropped or lost.

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lock_core::Owner;
use lock_core::memory::MemoryStore;
use lock_testkit::HarnessError;
use lock_testkit_checker::history::event::{Ask, Call, Kind, Run, Step};
use lock_testkit_checker::history::{GroupWish, History, ReadError, RecordedLocks, Recorder, Rules, What, Wish};
use lock_testkit_checker::{Check, Verdict, check};

const TTL: Duration = Duration::from_secs(30);
/// Set for the processes that this test starts: the file to which they append.
const FILE: &str = "RECORDER_TEST_FILE";

/// A file of its own, gone when this is dropped.
struct Paper(PathBuf);

impl Paper {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lock-testkit-recorder-{name}-{}.jsonl", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Self(path)
    }

    fn recorder(&self, proc: &str) -> io::Result<Recorder> {
        Recorder::append(&self.0, proc)
    }

    fn history(&self) -> Result<History, ReadError> {
        History::read([&self.0])
    }
}

impl Drop for Paper {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Rules for a run without faults.
fn run() -> What {
    let mut rules = Rules::default();
    rules.least.faults = 0;
    rules.fifo = true;
    What::Run(Box::new(Run { backend: "memory".into(), seed: None, rules }))
}

#[tokio::test]
async fn a_run_of_every_kind_is_written_down_and_judged() {
    let paper = Paper::new("kinds");
    let main = paper.recorder("main").unwrap();
    main.record(run());
    let store = MemoryStore::new();
    let mut workers = Vec::new();
    for worker in 0..4 {
        let locks = RecordedLocks::new(store.connect().into(), paper.recorder(&format!("w{worker}")).unwrap());
        workers.push(tokio::spawn(async move {
            for _ in 0..5 {
                work(&locks).await.unwrap();
            }
        }));
    }
    for worker in workers {
        worker.await.unwrap();
    }
    main.record(What::End);
    let judgement = check(&paper.history().unwrap(), None);
    assert_eq!(judgement.verdict, Verdict::Ok, "{judgement}");
    assert_eq!(judgement.summary.grants, 4 * 5 * 8, "{judgement}");
    assert_eq!(judgement.summary.groups, 4 * 5, "{judgement}");
    assert!(judgement.summary.contended > 0 && main.is_complete());
}

async fn work(locks: &RecordedLocks) -> Result<(), HarnessError> {
    let take = async |wish: Wish| {
        let granted = locks.acquire(&wish.with_wait(Duration::MAX)).await?;
        granted.ok_or_else(|| HarnessError::new("a wait without limit ended"))
    };
    let mutex = take(Wish::new("x", Kind::Mutex, TTL)).await?;
    // Long enough for the others to ask for it, too.
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert!(mutex.check() && mutex.token().is_some());
    mutex.release().await?;
    let writer = take(Wish::new("x", Kind::Write, TTL)).await?;
    let reader = writer.downgrade().await?;
    reader.release().await?;
    take(Wish::new("x", Kind::Read, TTL)).await?.release().await?;
    let mut permits = take(Wish::new("x", Kind::Sem, TTL).with_permits(2, 3)).await?;
    permits.release_some(1).await?;
    permits.release().await?;
    let owner = Owner::new();
    let outer = take(Wish::new("x", Kind::Reentrant, TTL).with_owner(&owner)).await?;
    let inner = take(Wish::new("x", Kind::Reentrant, TTL).with_owner(&owner)).await?;
    inner.release().await?;
    outer.release().await?;
    let wish = GroupWish::new(["y", "x"], TTL).with_wait(Duration::MAX);
    let both = wish.acquire(locks).await?.ok_or_else(|| HarnessError::new("a wait without limit ended"))?;
    assert!(both.check());
    Ok(both.release().await?)
}

#[tokio::test]
async fn several_locks_at_once_are_written_down_one_by_one() {
    let paper = Paper::new("several");
    let locks = RecordedLocks::new(MemoryStore::new().connect().into(), paper.recorder("w").unwrap());
    let wish = GroupWish::new(["y", "x"], TTL);
    let both = wish.acquire(&locks).await.unwrap().unwrap();
    assert!(wish.acquire(&locks).await.unwrap().is_none());
    let waiting = wish.clone().with_wait(Duration::MAX);
    assert!(tokio::time::timeout(Duration::from_millis(10), waiting.acquire(&locks)).await.is_err());
    assert!(GroupWish::new(["x", "x"], TTL).acquire(&locks).await.is_err());
    drop(both);
    let history = paper.history().unwrap();
    let events = history.events().iter().map(|event| shown(&event.what)).collect::<Vec<_>>();
    let answers = ["granted", "refused: held", "unclear: cancelled", "refused: invalid_argument"];
    let asked = answers.iter().flat_map(|answer| ["asks", "asks", answer, answer]);
    let dropped = ["releases", "releases", "unclear: dropped", "unclear: dropped"];
    assert_eq!(events, asked.chain(dropped).collect::<Vec<_>>());
    let asks: Vec<_> = history.events().iter().filter_map(|event| ask(&event.what)).collect();
    assert_eq!(asks.iter().map(|ask| &*ask.res).collect::<Vec<_>>(), ["y", "x", "y", "x", "y", "x", "x", "x"]);
    for pair in asks.chunks(2) {
        assert!(pair[0].group.is_some() && pair[0].group == pair[1].group, "{pair:?}");
    }
    assert_ne!(asks[0].group, asks[2].group);
}

#[tokio::test]
async fn of_several_locks_that_were_refused_none_is_kept() {
    let paper = Paper::new("refused");
    let main = paper.recorder("main").unwrap();
    main.record(run());
    let store = MemoryStore::new();
    let [one, other] =
        ["w0", "w1"].map(|worker| RecordedLocks::new(store.connect().into(), paper.recorder(worker).unwrap()));
    let held = other.acquire(&Wish::new("y", Kind::Mutex, TTL)).await.unwrap().unwrap();
    assert!(GroupWish::new(["x", "y"], TTL).acquire(&one).await.unwrap().is_none());
    let wish = Wish::new("x", Kind::Mutex, TTL).with_wait(Duration::MAX);
    let free = other.acquire(&wish).await.unwrap().unwrap();
    free.release().await.unwrap();
    held.release().await.unwrap();
    main.record(What::End);
    let mut rules = Rules::default();
    (rules.least.faults, rules.least.contended) = (0, 0);
    let judgement = check(&paper.history().unwrap(), Some(&rules));
    assert_eq!((judgement.verdict, judgement.summary.refusals), (Verdict::Ok, 2), "{judgement}");
}

fn ask(what: &What) -> Option<&Ask> {
    match what {
        What::Acquire(Call { step: Step::Invoke(ask), .. }) => Some(ask),
        _ => None,
    }
}

#[tokio::test]
async fn a_dropped_guard_and_a_dropped_wait_are_unclear() {
    let paper = Paper::new("dropped");
    let locks = RecordedLocks::new(MemoryStore::new().connect().into(), paper.recorder("w").unwrap());
    let wish = Wish::new("x", Kind::Mutex, TTL);
    let guard = locks.acquire(&wish).await.unwrap().unwrap();
    assert!(locks.acquire(&wish).await.unwrap().is_none());
    let wish = wish.with_wait(Duration::MAX);
    assert!(tokio::time::timeout(Duration::from_millis(10), locks.acquire(&wish)).await.is_err());
    drop(guard);
    let events = paper.history().unwrap().events().iter().map(|event| shown(&event.what)).collect::<Vec<_>>();
    let expected =
        ["asks", "granted", "asks", "refused: held", "asks", "unclear: cancelled", "releases", "unclear: dropped"];
    assert_eq!(events, expected);
}

#[tokio::test]
async fn a_dropped_downgrade_is_an_unclear_release() {
    let paper = Paper::new("downgrade");
    let store = MemoryStore::new();
    let locks = RecordedLocks::new(store.connect().into(), paper.recorder("w").unwrap());
    let writer = locks.acquire(&Wish::new("x", Kind::Write, TTL)).await.unwrap().unwrap();
    store.set_delay(TTL, TTL, 0);
    assert!(tokio::time::timeout(Duration::from_millis(10), writer.downgrade()).await.is_err());
    let events = paper.history().unwrap().events().iter().map(|event| shown(&event.what)).collect::<Vec<_>>();
    assert_eq!(events[..2], ["asks", "granted"]);
    assert_eq!(events[3..], ["releases", "unclear: dropped"], "{events:?}");
}

fn shown(what: &What) -> String {
    match what {
        What::Acquire(call) => match &call.step {
            Step::Invoke(_) => "asks".to_owned(),
            Step::Ok(_) => "granted".to_owned(),
            Step::Fail(failed) => format!("refused: {}", failed.err),
            Step::Info(failed) => format!("unclear: {}", failed.err),
        },
        What::Release(call) => match &call.step {
            Step::Invoke(_) => "releases".to_owned(),
            Step::Info(failed) => format!("unclear: {}", failed.err),
            other => format!("{other:?}"),
        },
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn a_loss_is_written_down_and_wants_a_cause() {
    let paper = Paper::new("loss");
    let main = paper.recorder("main").unwrap();
    main.record(run());
    let store = MemoryStore::new();
    let locks = RecordedLocks::new(store.connect().into(), paper.recorder("w").unwrap());
    let guard = locks.acquire(&Wish::new("x", Kind::Mutex, TTL)).await.unwrap().unwrap();
    store.lose("x");
    guard.lost().await;
    assert!(!guard.check());
    // The task that writes the loss down is woken by the same news.
    while !paper.history().unwrap().events().iter().any(|event| matches!(event.what, What::Lost(_))) {
        tokio::task::yield_now().await;
    }
    drop(guard);
    main.record(What::End);
    let judgement = check(&paper.history().unwrap(), None);
    assert!(judgement.is_rejected_by(Check::E1), "{judgement}");
    assert_eq!(judgement.summary.losses, 1);
}

#[test]
fn processes_share_a_file() {
    if let Ok(path) = std::env::var(FILE) {
        let recorder = Recorder::append(path, format!("p{}", std::process::id())).unwrap();
        for _ in 0..2_000 {
            recorder.record(What::End);
        }
        assert!(recorder.is_complete());
        return;
    }
    let paper = Paper::new("shared");
    let start = |_| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "processes_share_a_file"]).env(FILE, &paper.0);
        child.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (0..4).map(start).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let history = paper.history().unwrap();
    assert_eq!(history.events().len(), 4 * 2_000);
    assert!(history.events().is_sorted_by_key(|event| event.t));
}
