//! Requests that go together at each server of a quorum: what becomes of one when the others fail, are dropped, or are not known.

use futures_util::FutureExt;
use futures_util::future::join_all;
use lock_redis::{ErrorKind, LockName, Mutex, MutexGuard, QuorumLocks};
use lock_testkit::proxy::{Direction, LinkFault, Toxic};

use crate::servers::{ALL, GIVE, PROMPTLY, Servers, TAKE, configured, eventually, key, long, ms};

/// As many locks as are asked for at the same moment.
const CROWD: usize = 60;

fn name(number: usize) -> String {
    format!("batch/{number}")
}

fn mutexes(locks: &QuorumLocks) -> Vec<Mutex> {
    (0..CROWD).map(|number| locks.mutex(name(number)).with_lease(long())).collect()
}

async fn try_each(mutexes: &[Mutex]) -> Vec<Result<Option<MutexGuard>, lock_redis::Error>> {
    join_all(mutexes.iter().map(Mutex::try_lock)).await
}

async fn all(mutexes: &[Mutex]) -> Vec<MutexGuard> {
    try_each(mutexes).await.into_iter().map(|outcome| outcome.unwrap().expect("nobody else holds it")).collect()
}

async fn release_all(held: Vec<MutexGuard>) {
    join_all(held.into_iter().map(|guard| async { guard.release().await.unwrap() })).await;
}

/// The runs of scripts at one server.
async fn runs(servers: &Servers, server: usize) -> u64 {
    let stats = servers.run(server, &["INFO", "commandstats"]).await.as_text().unwrap();
    let calls = |line: &str| line.split(['=', ',']).nth(1).and_then(|calls| calls.parse::<u64>().ok());
    let is_run = |line: &&str| line.starts_with("cmdstat_eval");
    stats.lines().filter(is_run).filter_map(calls).sum()
}

#[tokio::test]
async fn what_is_asked_for_at_the_same_moment_goes_together_and_what_is_asked_for_alone_goes_by_itself() {
    let Some(servers) = Servers::start().await else { return };
    let locks = servers.client().await;
    let mutexes = mutexes(&locks);
    // From here on every server is reached and knows the scripts.
    servers.hold_everywhere(&mutexes[0]).await.release().await.unwrap();
    release_all(all(&mutexes).await).await;
    let before = runs(&servers, 0).await;
    let held = all(&mutexes).await;
    for (number, guard) in held.iter().enumerate() {
        assert!(servers.holding(ALL, &name(number), guard.grant_id()).await.len() >= 3);
    }
    release_all(held).await;
    let runs_of_all = runs(&servers, 0).await - before;
    assert!(runs_of_all < CROWD as u64 / 2, "{runs_of_all} runs for {CROWD} locks and their releases");
    servers.have_nothing_left(ALL).await;
    servers.write_down().await;
    mutexes[7].lock().await.unwrap().release().await.unwrap();
    servers.have_nothing_left(&[0]).await;
    assert_eq!((servers.written(0, TAKE).await.len(), servers.written(0, GIVE).await.len()), (1, 1));
}

#[tokio::test]
async fn one_that_is_denied_is_denied_alone() {
    let Some(servers) = Servers::start().await else { return };
    let (locks, other) = (servers.client().await, servers.client().await);
    let mutexes = mutexes(&locks);
    let held = other.mutex(name(7)).with_lease(long()).lock().await.unwrap();
    for server in ALL {
        servers.run(*server, &["RPUSH", &key(&name(9)), "foreign"]).await;
    }
    for _ in 0..2 {
        for (number, outcome) in try_each(&mutexes).await.into_iter().enumerate() {
            match (number, outcome) {
                (7, outcome) => assert!(outcome.unwrap().is_none()),
                (9, outcome) => assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Protocol),
                (_, outcome) => outcome.unwrap().expect("it is free").release().await.unwrap(),
            }
        }
    }
    held.release().await.unwrap();
    for server in ALL {
        servers.run(*server, &["DEL", &key(&name(9))]).await;
    }
    servers.have_nothing_left(ALL).await;
}

#[tokio::test]
async fn a_batch_that_servers_do_not_know_is_told_again_and_keeps_nothing() {
    let Some(servers) = Servers::start().await else { return };
    let locks = servers.client().await;
    let mutexes = mutexes(&locks);
    for _ in 0..5 {
        let held = all(&mutexes).await;
        for server in ALL {
            servers.run(*server, &["SCRIPT", "FLUSH"]).await;
        }
        release_all(held).await;
        for server in ALL {
            servers.run(*server, &["SCRIPT", "FLUSH"]).await;
        }
    }
    servers.have_nothing_left(ALL).await;
}

/// A server refuses a batch as a whole, because of one key in it.
#[tokio::test]
async fn one_without_the_right_to_its_key_is_denied_alone() {
    let Some(servers) = Servers::start().await else { return };
    for server in ALL {
        servers.run(*server, &["ACL", "SETUSER", "default", "resetkeys", "~lock:*"]).await;
    }
    let locks = servers.client().await;
    let mut mutexes = mutexes(&locks);
    mutexes[7] = locks.mutex(LockName::from_key("elsewhere").unwrap()).with_lease(long());
    for _ in 0..3 {
        for (number, outcome) in try_each(&mutexes).await.into_iter().enumerate() {
            match (number, outcome) {
                (7, outcome) => assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Denied),
                (_, outcome) => outcome.unwrap().expect("it is free").release().await.unwrap(),
            }
        }
    }
    servers.have_nothing_left(ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_dropped_leaves_nothing_and_its_neighbours_notice_nothing() {
    let Some(servers) = Servers::start().await else { return };
    let locks = servers.client().await;
    let mutexes = mutexes(&locks);
    servers.hold_everywhere(&mutexes[0]).await.release().await.unwrap();
    for _ in 0..5 {
        let tries = mutexes.iter().enumerate().map(|(number, mutex)| async move {
            let mut trying = Box::pin(mutex.try_lock());
            if number % 3 == 0 {
                // Polled once, and dropped.
                drop(trying.as_mut().now_or_never());
                return None;
            }
            Some(trying.await.unwrap().expect("nobody else holds it"))
        });
        let held: Vec<_> = join_all(tries).await.into_iter().flatten().collect();
        assert_eq!(held.len(), CROWD - CROWD.div_ceil(3));
        release_all(held).await;
        servers.have_nothing_left(ALL).await;
    }
}

/// Of three servers one loses the replies to batches, or the batches themselves, again and again; two are a majority.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loses_batches_costs_no_lock_and_keeps_nothing() {
    let Some(servers) = Servers::start().await else { return };
    let (links, config) = servers.behind_proxies(3);
    let mutexes = mutexes(&configured(config).await);
    for (server, direction) in [(0, Direction::ToClient), (1, Direction::ToServer), (2, Direction::ToClient)] {
        // From here on all three are reached.
        eventually("all three hold the lock", PROMPTLY, async || {
            let held = mutexes[0].lock().await.unwrap();
            let on_all = servers.holding(&[0, 1, 2], &name(0), held.grant_id()).await.len() == 3;
            held.release().await.unwrap();
            on_all.then_some(())
        })
        .await;
        let cut = links[server].inject(LinkFault::new(Toxic::Reset, direction).on_request(1, name(CROWD - 1)));
        let held = all(&mutexes).await;
        cut.applied(PROMPTLY).await.unwrap();
        cut.heal().unwrap();
        let cut = links[server].inject(LinkFault::new(Toxic::Reset, direction).on_request(1, name(CROWD - 1)));
        release_all(held).await;
        cut.applied(PROMPTLY).await.unwrap();
        cut.heal().unwrap();
        eventually("nothing is left", ms(8000), async || {
            for server in [0, 1, 2] {
                (servers.run(server, &["DBSIZE"]).await.as_int() == Some(0)).then_some(())?;
            }
            Some(())
        })
        .await;
    }
}
