//! Requests that go together: what becomes of them when their batch is lost, one of them is refused or not wanted any more, or nobody
//! drives their runtime.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lock_memcached::{Error, ErrorKind, MemcachedLocks, MutexGuard, RestartPolicy};
use lock_testkit::ms;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{client, config, connections, end_epoch_at, epoch_ends_at, eventually, far, open, server};

/// As many locks as are asked for at the same moment.
const CROWD: usize = 40;

/// So long that nothing ends by itself meanwhile.
const TTL: Duration = Duration::from_secs(60);

type Outcome = Result<Option<MutexGuard>, Error>;

/// Each of the crowd's locks. On one thread all have asked when the first batch is sent.
async fn try_each(locks: &MemcachedLocks) -> Vec<Outcome> {
    let mutexes: Vec<_> = (0..CROWD).map(|number| locks.mutex(name(number)).with_ttl(TTL)).collect();
    join_all(mutexes.iter().map(|mutex| mutex.try_lock())).await
}

async fn release_all(outcomes: Vec<Outcome>) {
    let guards = outcomes.into_iter().filter_map(|outcome| outcome.ok().flatten());
    for released in join_all(guards.map(MutexGuard::release)).await {
        released.unwrap();
    }
}

fn name(number: usize) -> String {
    format!("crowd/{number}")
}

fn claim(number: usize) -> String {
    format!("ma lock:mutex:{} ", name(number))
}

/// All of them are free, long before they would end by themselves.
async fn are_free(server: &MemcachedServer) {
    let other = client(server, RestartPolicy::Off).await;
    eventually("all are free", async || {
        let outcomes = try_each(&other).await;
        let taken = outcomes.iter().filter(|outcome| matches!(outcome, Ok(Some(_)))).count();
        release_all(outcomes).await;
        taken == CROWD
    })
    .await;
}

#[tokio::test]
async fn what_many_ask_for_at_one_moment_goes_over_few_connections() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let locks = client(&server, RestartPolicy::Off).await;
    let before = connections(&server).await;
    let outcomes = try_each(&locks).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Some(_)))), "{outcomes:?}");
    release_all(outcomes).await;
    let opened = connections(&server).await - before;
    // Those of two that went by themselves, of the batches, and of the one who asks.
    assert!(opened <= 8, "{opened} connections for {CROWD} locks");
    are_free(&server).await;
}

#[tokio::test]
async fn a_batch_that_is_lost_is_unknown_to_each_and_undone() {
    for lost in [Direction::ToServer, Direction::ToClient] {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let (link, locks) = far(&server, RestartPolicy::Off).await;
        let cut = link.inject(LinkFault::new(Toxic::Reset, lost).on_request(1, claim(20)));
        let outcomes = try_each(&locks).await;
        cut.applied(ms(15_000)).await.unwrap();
        cut.heal().unwrap();
        let unknown = |outcome: &Outcome| outcome.as_ref().is_err_and(|error| !error.is_definite());
        assert!(unknown(&outcomes[20]), "{:?}", outcomes[20]);
        for outcome in outcomes.iter().filter(|outcome| outcome.is_err()) {
            assert!(unknown(outcome), "{outcome:?}");
        }
        release_all(outcomes).await;
        are_free(&server).await;
    }
}

#[tokio::test]
async fn one_that_is_refused_costs_its_neighbours_nothing() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = far(&server, RestartPolicy::Off).await;
    let answer = Toxic::Answer { text: "SERVER_ERROR out of memory".to_owned() };
    let full = link.inject(LinkFault::new(answer, Direction::ToServer).on_request(1, claim(20)));
    let mut outcomes = try_each(&locks).await;
    full.applied(ms(15_000)).await.unwrap();
    let refused = outcomes.remove(20).unwrap_err();
    assert_eq!((refused.kind(), refused.is_definite()), (ErrorKind::Unavailable, true), "{refused}");
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Some(_)))), "{outcomes:?}");
    release_all(outcomes).await;
    are_free(&server).await;
}

/// Its answer is read, and the connection is silent behind it.
#[tokio::test]
async fn one_that_was_answered_is_told_so_although_others_of_its_batch_were_not() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = far(&server, RestartPolicy::Off).await;
    let silent = link.inject(LinkFault::new(Toxic::Blackhole, Direction::ToClient).on_request(1, claim(30)));
    let mut outcomes = try_each(&locks).await;
    silent.heal().unwrap();
    let unanswered = outcomes.split_off(30);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Some(_)))), "{outcomes:?}");
    let unknown = |outcome: &Outcome| outcome.as_ref().is_err_and(|error| !error.is_definite());
    assert!(unanswered.iter().all(unknown), "{unanswered:?}");
    release_all(outcomes).await;
    are_free(&server).await;
}

/// The first claims of a batch are carried out, the server forgets everything, and the rest of the batch follows.
#[tokio::test]
async fn of_a_batch_in_which_the_server_forgets_everything_nothing_is_granted() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    drop(open(&server).await);
    let (link, locks) = far(&server, RestartPolicy::Quarantine).await;
    let held = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, claim(20)));
    let mutexes: Vec<_> = (0..CROWD).map(|number| locks.mutex(name(number))).collect();
    let forgets = async {
        held.applied(ms(15_000)).await.unwrap();
        let raw = server.client();
        let key = |number| format!("lock:mutex:{}", name(number));
        eventually("the first ones are carried out", async || raw.get(&key(19)).await.unwrap().is_some()).await;
        raw.flush_all().await.unwrap();
        held.heal().unwrap();
    };
    let (outcomes, ()) = tokio::join!(join_all(mutexes.iter().map(|mutex| mutex.try_lock())), forgets);
    // Two went by themselves, before the batch.
    for (number, outcome) in outcomes.iter().enumerate().skip(2) {
        let error = outcome.as_ref().expect_err("it is granted");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{number}: {error}");
    }
}

/// The first claims of a batch are carried out while the server's clock is behind, and the rest when it is right again.
#[tokio::test]
async fn of_a_batch_before_which_the_server_s_clock_stood_nothing_is_granted() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    drop(open(&server).await);
    let (link, locks) = far(&server, RestartPolicy::Quarantine).await;
    let ends_at = epoch_ends_at(&server).await;
    end_epoch_at(&server, ends_at + 10).await;
    let held = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, claim(20)));
    let mutexes: Vec<_> = (0..CROWD).map(|number| locks.mutex(name(number))).collect();
    let ticks = async {
        held.applied(ms(15_000)).await.unwrap();
        let key = format!("lock:mutex:{}", name(19));
        eventually("the first ones are carried out", async || server.client().get(&key).await.unwrap().is_some()).await;
        end_epoch_at(&server, ends_at).await;
        held.heal().unwrap();
    };
    let (outcomes, ()) = tokio::join!(join_all(mutexes.iter().map(|mutex| mutex.try_lock())), ticks);
    // Two went by themselves, before the batch.
    for (number, outcome) in outcomes.iter().enumerate().skip(2) {
        let error = outcome.as_ref().expect_err("it is granted");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{number}: {error}");
    }
    release_all(outcomes).await;
    are_free(&server).await;
}

#[tokio::test]
async fn those_who_are_dropped_take_nobody_with_them_and_leave_nothing() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let locks = client(&server, RestartPolicy::Off).await;
    let mutexes: Vec<_> = (0..CROWD).map(|number| locks.mutex(name(number)).with_ttl(TTL)).collect();
    let mut tries: Vec<_> = mutexes.iter().map(|mutex| Box::pin(mutex.try_lock())).collect();
    for asks in &mut tries {
        assert!(asks.as_mut().now_or_never().is_none());
    }
    // Every second one, before anything was sent for it.
    let mut number = 0;
    tries.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    let outcomes = join_all(tries).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Some(_)))), "{outcomes:?}");
    release_all(outcomes).await;
    are_free(&server).await;
}

/// Replies may come soon, for all that is known, so that batches are sent one by one.
#[tokio::test]
async fn a_batch_that_is_not_answered_holds_up_no_other() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let mut config = config(&server).with_restart_policy(RestartPolicy::Off).with_longest_lease(TTL);
    config.url = format!("memcached://{}", link.address());
    config.client.op_timeout = TTL;
    let locks = MemcachedLocks::connect_with(config).await.unwrap();
    let silent = link.inject(LinkFault::new(Toxic::Blackhole, Direction::ToServer).on_request(1, claim(20)));
    let there = locks.clone();
    let unanswered = tokio::spawn(async move { try_each(&there).await });
    silent.applied(ms(15_000)).await.unwrap();
    let others: Vec<_> = (0..CROWD).map(|number| locks.mutex(format!("other/{number}")).with_ttl(TTL)).collect();
    let outcomes = tokio::time::timeout(TTL / 2, join_all(others.iter().map(|mutex| mutex.try_lock()))).await;
    let outcomes = outcomes.expect("they wait for another batch's reply");
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Some(_)))), "{outcomes:?}");
    release_all(outcomes).await;
    unanswered.abort();
    silent.heal().unwrap();
}

/// The only connection waits for a reply that does not come.
#[tokio::test]
async fn whose_time_is_over_before_a_batch_is_sent_is_told_so_for_certain() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let mut config =
        config(&server).with_restart_policy(RestartPolicy::Off).with_longest_lease(TTL).with_connections(1);
    config.url = format!("memcached://{}", link.address());
    config.client.op_timeout = ms(1_000);
    let locks = MemcachedLocks::connect_with(config).await.unwrap();
    let swallowed = link.inject(LinkFault::new(Toxic::Swallow, Direction::ToServer).on_request(1, claim(0)));
    let outcomes = try_each(&locks).await;
    swallowed.applied(ms(15_000)).await.unwrap();
    for (number, outcome) in outcomes.iter().enumerate().filter(|(_, outcome)| outcome.is_err()) {
        let error = outcome.as_ref().unwrap_err();
        let is_there = server.client().get(&format!("lock:mutex:{}", name(number))).await.unwrap().is_some();
        assert!(!is_there || !error.is_definite(), "{number} is taken: {error}");
    }
    assert!(outcomes[0].as_ref().is_err_and(|error| !error.is_definite()), "{:?}", outcomes[0]);
    release_all(outcomes).await;
    are_free(&server).await;
}

#[test]
fn a_batch_on_a_runtime_that_nobody_drives_holds_up_nobody_elsewhere() {
    let own = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let left = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let Some(server) = own.block_on(server(MemcachedOptions::new())) else { return };
    let (link, locks) = own.block_on(far(&server, RestartPolicy::Off));
    let silent = link.inject(LinkFault::new(Toxic::Blackhole, Direction::ToServer).on_request(1, claim(20)));
    let there = locks.clone();
    let mut tries = Box::pin(async move { try_each(&there).await });
    left.block_on(async {
        tokio::select! {
            silent = silent.applied(ms(15_000)) => drop(silent.unwrap()),
            asked = &mut tries => panic!("{asked:?}"),
        }
    });
    own.block_on(async {
        silent.heal().unwrap();
        let others: Vec<_> = (0..CROWD).map(|number| locks.mutex(format!("other/{number}")).with_ttl(TTL)).collect();
        let outcomes = tokio::time::timeout(ms(1_500), join_all(others.iter().map(|mutex| mutex.try_lock()))).await;
        let outcomes = outcomes.expect("they wait for those that nobody drives");
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Some(_)))), "{outcomes:?}");
        release_all(outcomes).await;
    });
    // Driven again, each of them ends.
    let outcomes = left.block_on(async { tokio::time::timeout(TTL / 2, tries).await.expect("they hang") });
    assert_eq!(outcomes.len(), CROWD);
    left.block_on(release_all(outcomes));
    own.block_on(are_free(&server));
}
