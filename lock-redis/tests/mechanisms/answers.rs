//! Refusals of a server, said by a proxy in its place at one chosen request (C-F20): what is asked for again works, a lease
//! is not lost by them, and a release comes about all the same.

use lock_redis::{ClientOptions, ErrorKind, Phase, RedisConfig, RedisLocks, Retry};
use lock_testkit::faults::Injected;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};

use crate::server::{PROMPTLY, Server, configured, long, ms, obtain, often, refused, renewed, soon};

/// Refusals of a server, and the errors that we make of them.
const REFUSALS: [(&str, ErrorKind); 9] = [
    ("LOADING Redis is loading the dataset in memory", ErrorKind::Unavailable),
    ("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", ErrorKind::Unavailable),
    ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", ErrorKind::Unavailable),
    ("READONLY You can't write against a read only replica.", ErrorKind::Unavailable),
    ("OOM command not allowed when used memory > 'maxmemory'.", ErrorKind::Unavailable),
    ("MISCONF Errors writing to the AOF file: No space left on device", ErrorKind::Unavailable),
    ("NOREPLICAS Not enough good replicas to write.", ErrorKind::Unavailable),
    ("NOAUTH Authentication required.", ErrorKind::Denied),
    ("NOPERM this user has no permissions to run the 'evalsha' command", ErrorKind::Denied),
];

/// A server behind a proxy, and a client of it that knows its way.
struct Refusing {
    server: Server,
    proxy: Proxy,
    locks: RedisLocks,
}

impl Refusing {
    async fn start() -> Option<Self> {
        let server = Server::start().await?;
        let proxy = Proxy::to(server.address(), Protocol::Resp).unwrap();
        // A machine that is slow has time for its answers all the same.
        let options = ClientOptions::default().with_op_timeout(ms(6000));
        let config = RedisConfig::new(format!("redis://{}", proxy.address())).with_client(options);
        let locks = configured(config).await.unwrap();
        server.knows_the_scripts().await;
        Some(Self { server, proxy, locks })
    }

    /// Refuses the `nth` request from now on that is about this lock.
    fn refuse(&self, nth: u64, name: &str, text: &str) -> Injected<'static> {
        let answer = Toxic::Answer { text: text.to_owned() };
        self.proxy.inject(LinkFault::new(answer, Direction::ToServer).on_request(nth, format!("{{{name}}}")))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_that_is_refused_says_why_for_certain_and_works_the_next_time() {
    let Some(refusing) = Refusing::start().await else { return };
    for (text, kind) in REFUSALS {
        let refusal = refusing.refuse(1, "answers", text);
        let outcome = refusing.locks.mutex("answers").try_lock().await;
        refusal.heal().unwrap();
        let shown = refusing.proxy.address();
        let error = refused(outcome, &[kind], &[Phase::Acquire], "answers", &shown);
        assert!(error.is_definite(), "{text}: {error:?}");
        assert_eq!(error.retry() == Retry::Later, kind == ErrorKind::Unavailable, "{text}: {error:?}");
        refusing.server.has_nothing_left().await;
        obtain(&refusing.locks, "answers", PROMPTLY).await.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_that_are_refused_do_not_lose_the_lock() {
    let Some(refusing) = Refusing::start().await else { return };
    let held = refusing.locks.mutex("answers").with_lease(often()).lock().await.unwrap();
    let mut lost = held.lost();
    for (text, _) in REFUSALS {
        // The renewal, and its repetition.
        let refusals = [1, 2].map(|nth| refusing.refuse(nth, "answers", text));
        for refusal in refusals {
            tokio::select! {
                applied = refusal.applied(PROMPTLY) => drop(applied.unwrap()),
                reason = &mut lost => panic!("lost by {text:?}: {reason}"),
            }
        }
        renewed(&held, 1).await;
    }
    assert!(held.is_held());
    held.release().await.unwrap();
    refusing.server.is_as_new(&refusing.locks, "answers").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_refused_comes_about_in_the_background() {
    let Some(refusing) = Refusing::start().await else { return };
    let other = refusing.server.patient_client().await;
    for (text, _) in REFUSALS {
        let held = refusing.locks.mutex("answers").with_lease(long()).lock().await.unwrap();
        let refusal = refusing.refuse(1, "answers", text);
        let released = soon("the release ends", PROMPTLY, held.release()).await;
        refusal.heal().unwrap();
        if let Err(error) = released {
            assert_eq!(error.kind(), ErrorKind::Indeterminate, "{text}: {error:?}");
        }
        obtain(&other, "answers", PROMPTLY).await.release().await.unwrap();
    }
    refusing.server.is_as_new(&refusing.locks, "answers").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_arrives_twice_counts_once() {
    let Some(refusing) = Refusing::start().await else { return };
    let mutex = refusing.locks.mutex("answers").with_lease(long());
    let other = refusing.server.patient_client().await;
    let double = || {
        let fault = LinkFault::new(Toxic::Duplicate, Direction::ToServer).on_request(1, "{answers}");
        refusing.proxy.inject(fault)
    };
    for _ in 0..5 {
        let doubled = double();
        let held = mutex.try_lock().await.unwrap().expect("nobody else holds it");
        doubled.heal().unwrap();
        let waiting = tokio::spawn(obtain(&other, "answers", PROMPTLY));
        refusing.server.until_queued("answers", 1).await;
        let doubled = double();
        held.release().await.unwrap();
        doubled.heal().unwrap();
        let next = soon("handed over", PROMPTLY, waiting).await.unwrap();
        assert!(mutex.try_lock().await.unwrap().is_none(), "the second release freed the next one's lock");
        next.release().await.unwrap();
    }
    refusing.server.is_as_new(&other, "answers").await;
}
