//! In a cluster.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use lock_redis::multi::{lock_all, try_lock_all};
use lock_redis::{ClientOptions, ErrorKind, Guarantee, LeaseOptions, LockName, RedisConfig, RedisLocks};
use lock_testkit_servers::redis::{ClusterDeployment, RedisOptions, RedisServer};

use crate::load::{Load, Look, TASKS};
use crate::moving_name::MovingName;
use crate::support::{
    FAILOVER, PROMPTLY, about_time, configured, connect, eventually, installed, ms, obtain, say, soon, with_ttl,
};

const KEY: &str = "lock:mutex:{load/0}";

#[test]
fn planned_failovers_under_load_let_no_call_hang_and_no_reply_go_astray() {
    about_time(async || {
        let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
        let clients = [connect(cluster.url()).await, connect(cluster.url()).await];
        let load = Load::begin(&clients, TASKS, Look::Inside);
        load.goes_on(2).await;
        let slot = cluster.slot_of(KEY).await.unwrap();
        for _ in 0..2 {
            let before = cluster.master_of(slot).await.unwrap().address().to_owned();
            assert_ne!(cluster.fail_over(slot).await.unwrap().address(), before);
            load.goes_on(2).await;
            cluster.until_ready().await.unwrap();
        }
        load.end().await;
        nothing_is_left(&cluster).await;
    });
}

#[test]
fn a_cluster_that_has_moved_as_a_whole_is_found_by_its_name() {
    about_time(async || {
        let Some(before) = installed(ClusterDeployment::start_own().await) else { return };
        let name = Arc::new(MovingName::of(before.nodes()[0].address()));
        let config = RedisConfig::cluster([MovingName::HOST]).with_network(name.clone());
        let locks = configured(config).await.unwrap();
        obtain(&locks, "moved", PROMPTLY).await.release().await.unwrap();
        drop(before);
        eventually("nobody is there", PROMPTLY, async || {
            let outcome = locks.mutex("moved").try_lock().await;
            outcome.is_err_and(|error| error.kind() == ErrorKind::Unavailable)
        })
        .await;
        let Some(after) = installed(ClusterDeployment::start_own().await) else { return };
        name.moves_to(after.nodes()[0].address());
        obtain(&locks, "moved", FAILOVER).await.release().await.unwrap();
        nothing_is_left(&after).await;
    });
}

#[test]
fn several_locks_of_one_slot_are_one_script_and_others_are_taken_one_by_one() {
    about_time(async || {
        let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
        let (locks, other) = (connect(cluster.url()).await, connect(cluster.url()).await);
        let scripts = async || {
            let mut runs = 0;
            for node in cluster.nodes() {
                let stats = say(node, "INFO commandstats").await.as_text().unwrap();
                // A replica is told of the effects only.
                let lines = stats.lines().filter(|line| line.starts_with("cmdstat_eval"));
                runs += lines.map(|line| line.split(['=', ',']).nth(1).unwrap().parse::<u64>().unwrap()).sum::<u64>();
            }
            runs
        };
        let one_slot =
            |locks: &RedisLocks| ["{t}:a", "{t}:b", "{t}:c"].map(|key| locks.mutex(LockName::from_key(key).unwrap()));
        let slots = |locks: &RedisLocks| ["a", "b", "c"].map(|name| locks.mutex(name));
        for (names, together) in [(&one_slot as &dyn Fn(&RedisLocks) -> [lock_redis::Mutex; 3], true), (&slots, false)]
        {
            // Whatever is to be told is told.
            lock_all(names(&locks)).await.unwrap().release().await.unwrap();
            let before = scripts().await;
            let all = try_lock_all(names(&locks)).await.unwrap().expect("nobody holds them");
            assert_eq!(scripts().await - before, if together { 1 } else { 3 });
            assert!(try_lock_all(names(&other)).await.unwrap().is_none());
            all.release().await.unwrap();
            lock_all(names(&other)).await.unwrap().release().await.unwrap();
        }
        // Its first server may have been asked before it moved there.
        let slot = cluster.slot_of("{t}:a").await.unwrap();
        cluster.fail_over(slot).await.unwrap();
        cluster.until_ready().await.unwrap();
        lock_all(one_slot(&locks)).await.unwrap().release().await.unwrap();
        nothing_is_left(&cluster).await;
    });
}

#[test]
fn a_killed_master_stops_its_slots_only_until_its_replica_takes_over() {
    about_time(async || {
        let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
        let clients = [connect(cluster.url()).await, connect(cluster.url()).await];
        let slot = cluster.slot_of(KEY).await.unwrap();
        let old = cluster.master_of(slot).await.unwrap();
        let holder = with_ttl(cluster.url(), Duration::from_secs(15)).await;
        let guards = join_all(
            (0..20).map(|i| holder.mutex(format!("held/{i}"))).map(|mutex| async move { mutex.lock().await.unwrap() }),
        )
        .await;
        for node in &cluster.nodes()[..3] {
            assert_eq!(say(node, "WAIT 1 5000").await.as_int(), Some(1));
        }
        // Tokens are by the servers' clocks, which are one here, so that they grow across the failover too; what the load
        // holds when the master dies may be forgotten by its replica, and is not looked at.
        old.kill().unwrap();
        cluster.until_another_master(slot, old).await.unwrap();
        let load = Load::begin(&clients, TASKS, Look::Inside);
        load.goes_on(2).await;
        old.restart().await.unwrap();
        cluster.until_ready().await.unwrap();
        load.goes_on(2).await;
        load.end().await;
        let mut lost: Vec<_> = guards.iter().map(|guard| guard.lost()).collect();
        let first = tokio::time::timeout(ms(15_000), futures_util::future::select_all(&mut lost)).await;
        assert!(first.is_err(), "lost: {:?}", first.map(|(reason, ..)| reason));
        for guard in guards {
            guard.release().await.unwrap();
        }
    });
}

#[test]
fn a_master_that_is_killed_under_load_lets_no_call_hang() {
    about_time(async || {
        let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
        let clients = [connect(cluster.url()).await, connect(cluster.url()).await];
        let slot = cluster.slot_of(KEY).await.unwrap();
        let old = cluster.master_of(slot).await.unwrap();
        let load = Load::begin(&clients, TASKS, Look::Away);
        load.goes_on(1).await;
        old.kill().unwrap();
        cluster.until_another_master(slot, old).await.unwrap();
        // Locks that the new master had not heard of end with their leases.
        let clients = &clients;
        let names = stream::iter(0..TASKS).for_each_concurrent(10, async |i| {
            let released = obtain(&clients[i % 2], &format!("after/{i}"), PROMPTLY).await.release().await;
            // On a machine that is starved an answer may come too late; the release is finished in the background then.
            assert!(released.is_ok() || released.as_ref().is_err_and(|error| !error.is_definite()), "{released:?}");
        });
        names.await;
        load.nobody_is_stuck().await;
        load.end().await;
    });
}

#[test]
fn a_slot_that_moves_under_load_takes_its_locks_along() {
    about_time(async || {
        let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
        let clients = [connect(cluster.url()).await, connect(cluster.url()).await];
        let slot = cluster.slot_of(KEY).await.unwrap();
        let held = clients[0].mutex("held-while-it-moves").with_ttl(Duration::from_secs(10)).lock().await.unwrap();
        let held_slot = cluster.slot_of("lock:mutex:{held-while-it-moves}").await.unwrap();
        let load = Load::begin(&clients, TASKS, Look::Inside);
        load.goes_on(1).await;
        for slot in [slot, held_slot] {
            let from = cluster.master_of(slot).await.unwrap().address().to_owned();
            let to = cluster.nodes()[..3].iter().find(|node| node.address() != from).unwrap();
            let migration = cluster.migrate(slot, to).await.unwrap();
            load.goes_on(1).await;
            migration.finish().await.unwrap();
            load.goes_on(1).await;
            assert_eq!(cluster.master_of(slot).await.unwrap().address(), to.address());
        }
        let mut lost = held.lost();
        assert!(
            tokio::time::timeout(ms(11_000), &mut lost).await.is_err() && held.is_held(),
            "lost by its slot's move"
        );
        held.release().await.unwrap();
        load.end().await;
        nothing_is_left(&cluster).await;
    });
}

#[test]
fn a_lock_is_renewed_and_released_while_its_slot_is_on_its_way() {
    about_time(async || {
        let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
        let locks = with_ttl(cluster.url(), Duration::from_secs(3)).await;
        let held = locks.mutex("on-its-way").lock().await.unwrap();
        let mut lost = held.lost();
        let mut is_lost = async || tokio::time::timeout(ms(4000), &mut lost).await.ok();
        let key = "lock:mutex:{on-its-way}";
        let slot = cluster.slot_of(key).await.unwrap();
        let from = cluster.master_of(slot).await.unwrap();
        let to = cluster.nodes()[..3].iter().find(|node| node.address() != from.address()).unwrap();
        let migration = cluster.migrate(slot, to).await.unwrap();
        assert_eq!(is_lost().await, None, "at its old master, for longer than its lease");
        migration.move_keys(&[key]).await.unwrap();
        assert_eq!(is_lost().await, None, "at its new master");
        held.release().await.unwrap();
        let there = to.client().unwrap();
        assert!(there.command(&["ASKING"]).await.unwrap().is_ok());
        assert_eq!(there.command(&["EXISTS", key]).await.unwrap().as_int(), Some(0));
        migration.finish().await.unwrap();
        obtain(&locks, "on-its-way", PROMPTLY).await.release().await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_send_a_request_to_each_other_are_unavailable_until_they_agree() {
    let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
    let locks = connect(cluster.url()).await;
    let slot = cluster.slot_of("lock:mutex:{disputed}").await.unwrap();
    let from = cluster.master_of(slot).await.unwrap();
    let to = cluster.nodes()[..3].iter().find(|node| node.address() != from.address()).unwrap();
    let owner = say(to, "CLUSTER MYID").await.to_string();
    let gives = format!("CLUSTER SETSLOT {slot} NODE {owner}");
    assert!(say(from, &gives).await.is_ok());
    let refused = async {
        loop {
            let error = locks.mutex("disputed").try_lock().await.unwrap_err();
            // The time may be over when the last of many requests has no answer yet, or is just to be sent.
            assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error:?}");
            if error.to_string().contains("on the move") {
                return error;
            }
        }
    };
    let error = soon("a refusal that says why", FAILOVER, refused).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(say(to, &gives).await.is_ok());
    obtain(&locks, "disputed", PROMPTLY).await.release().await.unwrap();
}

#[test]
fn a_wait_survives_the_end_of_the_subscription() {
    about_time(async || {
        let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
        let (holder, waiter) = (connect(cluster.url()).await, connect(cluster.url()).await);
        let slot = cluster.slot_of("lock:mutex:{listen}").await.unwrap();
        let master = cluster.master_of(slot).await.unwrap();
        let held = holder.mutex("listen").lock().await.unwrap();
        let waiting = tokio::spawn(async move { obtain(&waiter, "listen", FAILOVER).await });
        let queued = async || (say(master, "ZCARD lock:mutex:{listen}:q").await.as_int() == Some(1)).then_some(());
        eventually("the waiter is in the queue", PROMPTLY, queued).await;
        // One that is about to listen elsewhere may be counted twice, or not at all.
        let listening = eventually("each client listens at one node", PROMPTLY, async || {
            let mut listening = Vec::new();
            for node in cluster.nodes() {
                let clients = say(node, "PUBSUB CHANNELS lock:client:*").await.into_parts().len();
                listening.extend((clients > 0).then_some((node, clients)));
            }
            (listening.iter().map(|(_, clients)| clients).sum::<usize>() == 2).then_some(listening)
        })
        .await;
        for (node, _) in listening {
            say(node, "CLIENT KILL TYPE pubsub").await;
        }
        held.release().await.unwrap();
        soon("the waiter is granted", PROMPTLY, waiting).await.unwrap().release().await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn users_seeds_and_names_of_every_slot_work() {
    let options = RedisOptions::new().with_user("worker", "s3cret");
    let Some(cluster) = installed(ClusterDeployment::start_with(&options).await) else { return };
    // One seed, which is a replica, is enough to find the others.
    let seed = cluster.nodes()[5].address();
    let config = RedisConfig::cluster([seed]).with_credentials("worker", "s3cret");
    let locks = RedisLocks::connect_with(config).await.unwrap();
    for i in 0..60 {
        let held = locks.mutex(format!("slots/{i}")).try_lock().await.unwrap().unwrap();
        held.release().await.unwrap();
    }
    for node in &cluster.nodes()[..3] {
        assert!(say(node, "DBSIZE").await.as_int() > Some(5), "every master has its share");
    }
    assert!(RedisLocks::connect_with(RedisConfig::cluster([seed])).await.is_err());
    assert!(locks.require(&[Guarantee::ExclusionAcrossFailover]).is_err());
}

/// No lock, queue or waiter is left on any master.
async fn nothing_is_left(cluster: &ClusterDeployment) {
    let left = async || {
        let mut left = Vec::new();
        for node in cluster.nodes() {
            let keys = say(node, "KEYS *").await.into_parts();
            left.extend(
                keys.iter()
                    .map(ToString::to_string)
                    .filter(|key| !key.starts_with("lock:tokens:{") && !key.ends_with(":x")),
            );
        }
        left.is_empty().then_some(())
    };
    eventually("nothing is left", PROMPTLY * 3, left).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_key_with_braces_of_any_kind_is_handed_over() {
    let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
    let (holder, waiter) = (connect(cluster.url()).await, connect(cluster.url()).await);
    for key in ["odd}key", "a{}b", "}{", "{tag}rest", "{open"] {
        let name = LockName::from_key(key).unwrap();
        let held = holder.mutex(name.clone()).lock().await.unwrap();
        let waits = waiter.mutex(name.clone());
        let waiting = tokio::spawn(async move { waits.lock().await });
        let seen = holder.mutex(name);
        let queued = async || (!seen.inspect().await.unwrap().waiters.is_empty()).then_some(());
        eventually("the waiter is in the queue", PROMPTLY, queued).await;
        held.release().await.unwrap();
        soon("the waiter is granted", PROMPTLY, waiting).await.unwrap().unwrap().release().await.unwrap();
    }
    nothing_is_left(&cluster).await;
}

#[test]
fn a_slot_that_was_asked_for_elsewhere_is_settled_although_that_node_is_gone() {
    about_time(async || {
        let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
        // What the other node was asked for is over an operation timeout and a lease after that.
        let locks = with_ttl(cluster.url(), Duration::from_secs(1)).await;
        let slot = cluster.slot_of("lock:mutex:{asked}").await.unwrap();
        let from = cluster.master_of(slot).await.unwrap();
        let to = cluster.nodes()[..3].iter().find(|node| node.address() != from.address()).unwrap();
        let migration = cluster.migrate(slot, to).await.unwrap();
        // No key of it is there yet, so that the client is sent to the other node.
        let _ = locks.mutex("asked").try_lock().await;
        drop(migration);
        for node in [from, to] {
            assert!(say(node, &format!("CLUSTER SETSLOT {slot} STABLE")).await.is_ok());
        }
        to.kill().unwrap();
        tokio::time::sleep(Duration::from_secs(2 + 1) + ms(500)).await;
        for _ in 0..20 {
            obtain(&locks, "asked", FAILOVER).await.release().await.unwrap();
        }
        soon("nothing is under way", PROMPTLY, locks.close()).await.unwrap();
    });
}

#[test]
fn while_a_shard_is_dead_nodes_are_asked_for_their_map_once_a_second_over_the_same_connections() {
    about_time(async || {
        let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
        let slot = cluster.slot_of("lock:mutex:{dead}").await.unwrap();
        let master = cluster.master_of(slot).await.unwrap();
        let own = say(master, "CLUSTER MYID").await.to_string();
        let nodes = say(master, "CLUSTER NODES").await.to_string();
        let replicas: Vec<_> = nodes.lines().filter(|line| line.split(' ').nth(3) == Some(&own)).collect();
        let is_of_the_shard = |node: &&RedisServer| {
            node.address() == master.address() || replicas.iter().any(|line| line.contains(node.address()))
        };
        let (dead, alive): (Vec<_>, Vec<_>) = cluster.nodes().iter().partition(is_of_the_shard);
        assert!(dead.len() >= 2 && alive.len() >= 4, "{nodes}");
        let locks = connect(cluster.url()).await;
        let held = locks.mutex("dead").lock().await.unwrap();
        let waiting: Vec<_> = (0..5)
            .map(|_| {
                let mutex = locks.mutex("dead");
                tokio::spawn(async move {
                    loop {
                        drop(mutex.lock().await);
                    }
                })
            })
            .collect();
        dead.iter().for_each(|node| node.kill().unwrap());
        tokio::time::sleep(ms(4000)).await;
        let count = async |node: &RedisServer, section: &str, field: &str| {
            let told = say(node, &format!("INFO {section}")).await.to_string();
            let told = told.lines().find_map(|line| line.strip_prefix(field).map(str::to_owned)).unwrap_or_default();
            told.split(',').next().unwrap().trim().parse::<u64>().unwrap_or_default()
        };
        let look = async |node: &RedisServer| {
            let maps = count(node, "commandstats", "cmdstat_cluster|nodes:calls=").await;
            (maps, count(node, "stats", "total_connections_received:").await)
        };
        let before = join_all(alive.iter().map(|node| look(node))).await;
        tokio::time::sleep(ms(5000)).await;
        for (node, (maps, connections)) in alive.iter().zip(before) {
            let now = look(node).await;
            assert!(now.0 - maps <= 6, "{} maps in 5 s", now.0 - maps);
            // Ours: two for each look.
            assert!(now.1 - connections <= 4, "{} connections in 5 s", now.1 - connections);
        }
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        drop(held);
    });
}

/// The requests that the masters have refused without a look at the script.
async fn refusals(cluster: &ClusterDeployment) -> u64 {
    let mut refused = 0;
    for node in cluster.nodes() {
        let stats = say(node, "INFO commandstats").await.to_string();
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
        let count = line.and_then(|line| line.split("rejected_calls=").nth(1)?.split(',').next()?.parse::<u64>().ok());
        refused += count.unwrap_or_default();
    }
    refused
}

#[test]
fn a_cluster_that_is_down_is_asked_at_growing_pauses_and_no_lock_is_lost() {
    about_time(async || {
        const LOCKS: u64 = 300;
        const TRIES: u64 = 100;
        let Some(cluster) = installed(ClusterDeployment::start_own().await) else { return };
        let (mut options, mut taken) = (ClientOptions::default(), Vec::new());
        options.lease = LeaseOptions::new(Duration::from_secs(60)).with_renew_every(ms(500));
        let holder = configured(RedisConfig::new(cluster.url()).with_client(options)).await.unwrap();
        let other = connect(cluster.url()).await;
        let names: Vec<_> = (0..LOCKS).map(|i| format!("down/{i}")).collect();
        let guards = join_all(names.iter().map(|name| holder.mutex(name.clone())).map(async |mutex| {
            let held = mutex.lock().await.unwrap();
            (held.lost(), held)
        }))
        .await;
        for name in &names {
            taken.push(cluster.slot_of(&format!("lock:mutex:{{{name}}}")).await.unwrap());
        }
        let slot = (0..).find(|slot| !taken.contains(slot)).unwrap();
        let owner = cluster.master_of(slot).await.unwrap();
        // Questions of the deployment itself are refused until it is ready.
        let at_first = refusals(&cluster).await;
        // Its owner first, of which the others would hear that it still has it.
        let others = cluster.nodes().iter().filter(|node| node.address() != owner.address());
        for node in [owner].into_iter().chain(others) {
            let client = node.client().unwrap();
            let _ = client.command(&["CLUSTER", "DELSLOTS", &slot.to_string()]).await;
        }
        eventually("every renewal is refused", PROMPTLY, async || {
            (refusals(&cluster).await >= at_first + LOCKS).then_some(())
        })
        .await;
        let before = refusals(&cluster).await;
        tokio::time::sleep(ms(2000)).await;
        // One that is refused is tried again after 50 ms, and then twice as long each time, up to a second.
        let refused = refusals(&cluster).await - before;
        assert!(refused <= LOCKS * 8, "{refused} renewals were refused in 2 s");
        let before = refusals(&cluster).await;
        let tries = (0..TRIES).map(|i| other.mutex(format!("tried/{i}"))).map(async |mutex| mutex.try_lock().await);
        for error in join_all(tries).await.into_iter().map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        let refused = refusals(&cluster).await - before;
        assert!(refused <= LOCKS * 4 + TRIES * 12, "{refused} requests were refused while {TRIES} were tried");
        assert!(say(owner, &format!("CLUSTER ADDSLOTS {slot}")).await.is_ok());
        cluster.until_ready().await.unwrap();
        for (name, (mut lost, held)) in names.iter().zip(guards) {
            assert!((&mut lost).now_or_never().is_none() && held.is_held(), "{name} was lost");
            held.release().await.unwrap();
        }
        nothing_is_left(&cluster).await;
    });
}
