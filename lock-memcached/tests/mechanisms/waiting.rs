//! The cost of waiting at the server, which is asked again and again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_memcached::{ErrorKind, MemcachedConfig, MemcachedLocks, RestartPolicy};
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit::testing::{self, StoppedRuntime, about_time};
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{client, config, eventually, open, pass, server};

/// A lease that no machine's hiccup outlasts.
const LONG: Duration = Duration::from_secs(300);
/// The looks of one client in a second, and what others ask meanwhile.
const LOOKS: u64 = 2_000 + 100;

async fn gets(server: &MemcachedServer) -> u64 {
    server.client().stats("").await.unwrap()["cmd_get"].parse().unwrap()
}

/// Keys that are looked at in a second.
async fn rate(server: &MemcachedServer) -> u64 {
    // The first pauses are short.
    pass(Duration::from_millis(1500)).await;
    let (before, began) = (gets(server).await, Instant::now());
    pass(Duration::from_secs(3)).await;
    let asked = gets(server).await - before;
    asked * 1000 / u64::try_from(began.elapsed().as_millis()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_one_of_a_thousand_permits_is_no_storm_and_ends_soon() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (holder, waiting) = (client(&server, RestartPolicy::Off).await, client(&server, RestartPolicy::Off).await);
    let mut held = holder.semaphore("a", 1000).with_ttl(LONG).try_acquire_many(1000).await.unwrap().unwrap();
    let permits = waiting.semaphore("a", 1000).with_ttl(LONG);
    let wait = tokio::spawn(async move { permits.acquire().await });
    let rate = rate(&server).await;
    assert!(rate < LOOKS, "{rate} looks in a second");
    held.release_some(999).await.unwrap();
    // It looks at one part of them after the other.
    let found = tokio::time::timeout(Duration::from_secs(15), wait).await.expect("a free permit was not found");
    drop(found.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_waits_for_a_reader_looks_at_that_one() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (holder, waiting) = (client(&server, RestartPolicy::Off).await, client(&server, RestartPolicy::Off).await);
    let reader = holder.rwlock("a").with_ttl(LONG).read().await.unwrap();
    let lock = waiting.rwlock("a").with_ttl(LONG);
    let wait = tokio::spawn(async move { lock.write().await });
    let rate = rate(&server).await;
    assert!(rate < 100, "{rate} looks in a second");
    reader.release().await.unwrap();
    drop(wait.await.unwrap().unwrap());
}

/// Readers leave in the order of their slots: the one at which the writer looks is always the next to go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_looks_at_each_reader_that_leaves_and_not_at_every_slot() {
    const READERS: u64 = 50;
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let roomy = || config(&server).with_restart_policy(RestartPolicy::Off).with_readers(1000);
    let holder = MemcachedLocks::connect_with(roomy()).await.unwrap();
    let waiting = MemcachedLocks::connect_with(roomy()).await.unwrap();
    let mut readers = std::collections::HashMap::new();
    for _ in 0..READERS {
        let reader = holder.rwlock("a").with_ttl(LONG).read().await.unwrap();
        readers.insert(reader.grant_id(), reader);
    }
    let lock = waiting.rwlock("a").with_ttl(LONG);
    let wait = tokio::spawn(async move { lock.write().await });
    eventually("the writer waits", async || holder.rwlock("a").inspect().await.unwrap().waiters.len() == 1).await;
    let in_order = holder.rwlock("a").inspect().await.unwrap().holders;
    assert_eq!(in_order.len() as u64, READERS);
    let before = gets(&server).await;
    for reader in in_order {
        let seen = gets(&server).await;
        readers.remove(&reader.grant.unwrap()).unwrap().release().await.unwrap();
        eventually("the writer looks", async || gets(&server).await >= seen + 2).await;
    }
    drop(wait.await.unwrap().unwrap());
    let asked = gets(&server).await - before;
    assert!(asked < READERS * 20 + 2 * 1000, "{asked} looks while {READERS} readers left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_names_are_waited_for_at_one_rate() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (holder, waiting) = (client(&server, RestartPolicy::Off).await, client(&server, RestartPolicy::Off).await);
    let names = 0..2000;
    let mut held = Vec::new();
    for name in names.clone() {
        held.push(holder.mutex(format!("{name}")).with_ttl(LONG).lock().await.unwrap());
    }
    let waits: Vec<_> = names
        .map(|name| {
            let mutex = waiting.mutex(format!("{name}")).with_ttl(LONG);
            tokio::spawn(async move { mutex.lock().await })
        })
        .collect();
    let rate = rate(&server).await;
    assert!(rate < LOOKS, "{rate} looks in a second");
    futures_util::future::join_all(held.into_iter().map(|guard| guard.release())).await;
    // Nobody is left out: a second for all of them, and as much for chance, and twice that for a busy machine.
    for wait in waits {
        let granted = tokio::time::timeout(Duration::from_secs(15), wait).await.expect("one was left out");
        granted.unwrap().unwrap().release().await.unwrap();
    }
}

/// So far away, and over so few connections, that a connection for each look leaves none for anything else.
#[test]
fn waits_for_many_names_far_away_do_not_keep_renewals_from_their_turn() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let holder = client(&server, RestartPolicy::Off).await;
        let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
        let mut far = config(&server).with_restart_policy(RestartPolicy::Off).with_connections(2);
        far.url = format!("memcached://{}", link.address());
        let waiting = MemcachedLocks::connect_with(far).await.unwrap();
        let delay = |direction| {
            LinkFault::new(Toxic::Delay { by: Duration::from_millis(20), jitter: Duration::ZERO }, direction)
        };
        let slow = [Direction::ToServer, Direction::ToClient].map(|direction| link.inject(delay(direction)));
        let (mut held, mut waits) = (Vec::new(), Vec::new());
        for name in 0..400 {
            held.push(holder.mutex(format!("{name}")).with_ttl(LONG).lock().await.unwrap());
            let mutex = waiting.mutex(format!("{name}")).with_ttl(LONG);
            waits.push(tokio::spawn(async move { mutex.lock().await }));
        }
        // A lease of a second.
        let own = waiting.mutex("own").lock().await.unwrap();
        pass(Duration::from_secs(5)).await;
        assert!(own.is_held(), "its renewals had no connection in time");
        assert!(waits.iter().all(|wait| !wait.is_finished()), "a wait has ended");
        drop((held, slow));
        for wait in waits {
            let granted = tokio::time::timeout(Duration::from_secs(15), wait).await.expect("one was left out");
            granted.unwrap().unwrap().release().await.unwrap();
        }
        own.release().await.unwrap();
    });
}

/// The answer to the first one's look is late, and those behind it have heard nothing for longer than they are patient.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_of_a_process_that_stood_still_go_on() {
    const PATIENCE: Duration = Duration::from_secs(1);
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let held = client(&server, RestartPolicy::Off).await.mutex("held").with_ttl(LONG).lock().await.unwrap();
    let link = Arc::new(Proxy::to(server.address(), Protocol::Memcached).unwrap());
    let mut config = config(&server).with_restart_policy(RestartPolicy::Off);
    config.url = format!("memcached://{}", link.address());
    (config.client.patience, config.client.op_timeout) = (PATIENCE, PATIENCE * 15);
    let (late, tell) = (link.clone(), tokio::sync::oneshot::channel());
    let waits = StoppedRuntime::run(async move || {
        let locks = MemcachedLocks::connect_with(config).await.unwrap();
        let wait = |()| {
            let mutex = locks.mutex("held").with_ttl(LONG);
            tokio::spawn(async move { mutex.lock().await?.release().await })
        };
        let waits = [(); 3].map(wait).into();
        pass(PATIENCE / 4).await;
        let late = late.inject(LinkFault::new(Toxic::Hold, Direction::ToClient));
        late.applied(Duration::from_secs(15)).await.unwrap();
        assert!(tell.0.send(late).is_ok());
        waits
    });
    let late = tell.1.await.unwrap();
    let ended = waits.stand_still(PATIENCE * 3, Duration::from_secs(30));
    pass(PATIENCE * 3 + PATIENCE / 2).await;
    late.heal().unwrap();
    held.release().await.unwrap();
    ended.await.unwrap();
}

/// The next connection is one too many; once there is room, the wait goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_goes_on_when_the_server_has_no_connection_to_spare() {
    let options = MemcachedOptions::new().with_flag("-c").with_flag("32");
    let Some(server) = server(options).await else { return };
    let locks = client(&server, RestartPolicy::Off).await;
    let held = locks.mutex("held").with_ttl(LONG).lock().await.unwrap();
    let (link, waiting) = crate::support::far(&server, RestartPolicy::Off).await;
    let mutex = waiting.mutex("held").with_ttl(LONG);
    let wait = tokio::spawn(async move { mutex.lock().await });
    eventually("it waits", async || !waiting.mutex("held").inspect().await.unwrap().holders.is_empty()).await;
    // Its connections are gone, and others take their places at the server.
    let refused = link.inject(LinkFault::new(Toxic::Refuse, Direction::Both));
    let cut = link.inject(LinkFault::new(Toxic::Reset, Direction::Both));
    let mut crowd = Vec::new();
    let mut is_full = false;
    while !is_full {
        let mut stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"mn\r\n").await.unwrap();
        let mut said = [0; 5];
        let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut said).await.unwrap();
        is_full = &said == b"ERROR";
        crowd.push(stream);
    }
    cut.heal().unwrap();
    refused.heal().unwrap();
    pass(Duration::from_secs(1)).await;
    assert!(!wait.is_finished(), "it has ended: {:?}", wait.await);
    drop(crowd);
    held.release().await.unwrap();
    let granted = tokio::time::timeout(Duration::from_secs(15), wait).await.expect("it waits for ever");
    granted.unwrap().unwrap().release().await.unwrap();
}

/// Each lease that ends in an outage is freed over the client's own connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_leases_that_end_in_an_outage_open_no_connection_of_their_own() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let locks = client(&server, RestartPolicy::Off).await;
    let mut held = Vec::new();
    for name in 0..500 {
        held.push(locks.mutex(format!("{name}")).lock().await.unwrap());
    }
    server.stop().unwrap();
    let (mut most, began) = (0, Instant::now());
    while began.elapsed() < Duration::from_secs(5) {
        most = most.max(sockets_to(&server));
        pass(Duration::from_millis(10)).await;
    }
    assert!(held.iter().all(|guard| !guard.is_held()));
    server.cont().unwrap();
    assert!(most <= MemcachedConfig::new("").connections, "{most} sockets");
    eventually("all goes on", async || matches!(locks.mutex("next").try_lock().await, Ok(Some(_)))).await;
}

/// Sockets of this process that lead to the server.
fn sockets_to(server: &MemcachedServer) -> usize {
    let port = server.address().rsplit(':').next().unwrap().parse::<u16>().unwrap();
    let ours: Vec<_> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| Some(std::fs::read_link(entry.ok()?.path()).ok()?.to_string_lossy().into_owned()))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let remote = format!(":{port:04X}");
    let is_ours = |line: &&str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.len() > 9 && words[2].ends_with(&remote) && ours.iter().any(|inode| inode == words[9])
    };
    table.lines().skip(1).filter(is_ours).count()
}

/// A thousand waits, tries and inspections while the server stands still, each of which has its bound.
#[test]
fn no_wait_and_no_question_outlasts_its_bound() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let locks = client(&server, RestartPolicy::Off).await;
        let held = locks.mutex("held").with_ttl(LONG).lock().await.unwrap();
        server.stop().unwrap();
        let asks = |number: usize, locks: MemcachedLocks| async move {
            let began = Instant::now();
            let bound = match number % 3 {
                0 => {
                    let _ = locks.mutex(format!("{number}")).try_lock_for(Duration::from_millis(700)).await;
                    2700
                }
                1 => {
                    let _ = locks.mutex(format!("{number}")).try_lock().await;
                    2000
                }
                _ => {
                    let _ = locks.mutex("held").inspect().await;
                    2000
                }
            };
            (began.elapsed(), Duration::from_millis(bound))
        };
        let asked = (0..1_000).map(|number| tokio::spawn(asks(number, locks.clone())));
        let answered: Vec<_> = futures_util::future::join_all(asked).await.into_iter().map(Result::unwrap).collect();
        // A busy machine may take its time to tell; a second timeout would be two seconds more.
        let late: Vec<_> = answered.iter().filter(|(took, bound)| *took > *bound + Duration::from_secs(1)).collect();
        assert!(late.is_empty(), "{} of 1,000 took too long, as {:?}", late.len(), late[0]);
        let latest = answered.iter().map(|(took, bound)| took.saturating_sub(*bound)).max();
        println!("the latest of 1,000 calls ended {latest:?} after its bound");
        server.cont().unwrap();
        drop(held);
    });
}

/// Several requests one after the other, each of which is answered in time: together they take longer than the bound. The
/// backend ends them by itself, before the core would.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_one_after_the_other_have_one_bound() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let mut config = crate::support::config(&server).with_restart_policy(RestartPolicy::Off).with_longest_lease(LONG);
    config.url = format!("memcached://{}", link.address());
    config.client.op_timeout = Duration::from_secs(1);
    let locks = MemcachedLocks::connect_with(config).await.unwrap();
    let held = locks.mutex("held").with_ttl(LONG).lock().await.unwrap();
    let slow = Toxic::Delay { by: Duration::from_millis(900), jitter: Duration::ZERO };
    let slow = link.inject(LinkFault::new(slow, Direction::ToServer));
    let (write, permits) = (locks.rwlock("a"), locks.semaphore("a", 3));
    let errors = tokio::join!(
        async { write.try_write().await.map(drop).unwrap_err() },
        async { permits.try_acquire_many_for(2, Duration::from_millis(100)).await.map(drop).unwrap_err() },
        async { locks.mutex("held").inspect().await.map(drop).unwrap_err() },
    );
    slow.heal().unwrap();
    for error in [errors.0, errors.1, errors.2] {
        let text = error.to_string();
        assert!(text.contains("no answer within the operation timeout"), "{text}");
    }
    held.release().await.unwrap();
}

/// Each step of connecting is answered in time, and all of them together are not.
#[test]
fn all_steps_of_connecting_have_one_bound() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
        // The epoch is open, so that there are three steps: a look at it, and two questions over one connection.
        open(&server).await;
        let mut config = config(&server);
        config.url = format!("memcached://{}", link.address());
        config.client.op_timeout = Duration::from_secs(1);
        let slow = Toxic::Delay { by: Duration::from_millis(450), jitter: Duration::ZERO };
        let slow = link.inject(LinkFault::new(slow, Direction::ToServer));
        let began = Instant::now();
        let error = MemcachedLocks::connect_with(config.clone()).await.unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(2), "after {:?}: {error}", began.elapsed());
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
        slow.heal().unwrap();
        MemcachedLocks::connect_with(config).await.unwrap();
    });
}

/// A claim is carried through although nobody waits for it any more, but not for ever: it takes the only connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_never_answered_releases_its_connection() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let mut config = crate::support::config(&server).with_restart_policy(RestartPolicy::Off).with_connections(1);
    config.url = format!("memcached://{}", link.address());
    let locks = MemcachedLocks::connect_with(config).await.unwrap();
    let lost = link.inject(LinkFault::new(Toxic::Swallow, Direction::ToServer).on_request(1, "ma lock:mutex:a "));
    let error = locks.mutex("a").try_lock().await.unwrap_err();
    lost.applied(Duration::from_secs(15)).await.unwrap();
    assert!(!error.is_definite(), "{error}");
    eventually("others are served", async || matches!(locks.mutex("b").try_lock().await, Ok(Some(_)))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_given_up_and_what_is_contended_no_more_is_forgotten() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (locks, other) = (client(&server, RestartPolicy::Off).await, client(&server, RestartPolicy::Off).await);
    for name in 0..20 {
        let held = other.mutex(format!("{name}")).with_ttl(LONG).lock().await.unwrap();
        let mutex = locks.mutex(format!("{name}"));
        assert!(mutex.try_lock_for(Duration::from_millis(3)).await.unwrap().is_none());
        held.release().await.unwrap();
    }
    let count = |locks: &MemcachedLocks, what: &str| format!("{:?}", locks.backend()).matches(what).count();
    eventually("contended queues are forgotten", async || {
        if let Ok(held) = locks.mutex("free").lock().await {
            let _ = held.release().await;
        }
        count(&locks, "WaitQueue {") <= 1
    })
    .await;
    // One that gives each request up soon, as all of them will be when the server is gone.
    let mut config = crate::support::config(&server).with_restart_policy(RestartPolicy::Off);
    config.client.op_timeout = Duration::from_millis(300);
    let hasty = testing::connected(async || MemcachedLocks::connect_with(config.clone()).await).await.unwrap();
    let mut held = Vec::new();
    for name in 0..20 {
        let mutex = hasty.mutex(format!("held/{name}"));
        held.push(testing::eventually("it is granted", LONG, async || mutex.lock().await.ok()).await);
    }
    assert_ne!(count(&hasty, "Entry {"), 0);
    server.kill().unwrap();
    drop(held);
    testing::eventually("entries are forgotten", Duration::from_secs(40), async || count(&hasty, "Entry {") == 0).await;
}

/// The lock is to be handed to the next one of the same client, then deleted, and neither is answered. The client's own bound
/// says at which server; lock-core, which cuts a request half a second later, does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_has_one_bound_for_the_hand_over_and_the_deletion() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let mut config = config(&server).with_restart_policy(RestartPolicy::Off).with_longest_lease(LONG);
    config.url = format!("memcached://{}", link.address());
    let locks = MemcachedLocks::connect_with(config).await.unwrap();
    // The first one that meets the waiter in a pause, and not in a look, hands the lock over.
    for name in 0..100 {
        let mutex = locks.mutex(format!("{name}")).with_ttl(LONG);
        let held = mutex.lock().await.unwrap();
        let waiting = tokio::spawn(async move { mutex.lock().await });
        eventually("it waits", async || format!("{:?}", locks.backend()).contains("Offer {")).await;
        let command = format!("ma lock:mutex:{name} ");
        let kept = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, &command));
        let mut releasing = tokio::spawn(held.release());
        tokio::select! {
            biased;
            applied = kept.applied(Duration::from_secs(15)) => drop(applied.unwrap()),
            released = &mut releasing => {
                released.unwrap().unwrap();
                drop(kept);
                waiting.await.unwrap().unwrap().release().await.unwrap();
                continue;
            }
        }
        let _silence = link.inject(LinkFault::new(Toxic::Hold, Direction::Both));
        let error = releasing.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
        let cause = std::error::Error::source(&error).expect("it has a cause").to_string();
        assert!(cause.contains(&link.address().to_string()), "lock-core had to cut it: {cause}");
        waiting.abort();
        return;
    }
    panic!("no lock was handed over");
}
