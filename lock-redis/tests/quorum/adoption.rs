//! Mutexes that were taken by one client and go on in another, when not every server takes part.

use std::time::Instant;

use lock_redis::{DetachedMutex, ErrorKind, MutexGuard, QuorumLocks};
use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit_servers::resp::Value;

use crate::servers::{ALL, GIVE, PROMPTLY, SHORT, Servers, configured, eventually, hasty, key, long, ms};

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_is_enough_to_go_on() {
    let Some(servers) = Servers::start().await else { return };
    let (web, worker) = (servers.client().await, servers.client().await);
    let held = servers.hold_everywhere(&web.mutex("adoption").with_lease(long())).await;
    let before = held.grant_id();
    let detached = held.detach().await.unwrap();
    servers.kill(&[3]);
    servers.run(4, &["DEL", &key("adoption")]).await;
    let adopted = worker.adopt(&detached).await.unwrap();
    assert_eq!(servers.holding(&[0, 1, 2, 4], "adoption", adopted.grant_id()).await, [0, 1, 2]);
    assert!(servers.holding(&[0, 1, 2, 4], "adoption", before).await.is_empty());
    let late = web.adopt(&detached).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::NotHeld, "{late}");
    assert!(adopted.is_held() && web.mutex("adoption").try_lock().await.unwrap().is_none());
    adopted.release().await.unwrap();
    servers.have_nothing_left(&[0, 1, 2, 4]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_it_is_unknown_and_taken_back() {
    let Some(servers) = Servers::start().await else { return };
    let (web, worker) = (servers.client().await, servers.hasty_client().await);
    let detached = servers.hold_everywhere(&web.mutex("adoption").with_lease(long())).await.detach().await.unwrap();
    // One has lost it, two stand still: neither three have it, nor have three lost it.
    servers.run(0, &["DEL", &key("adoption")]).await;
    servers.stop(&[1, 2]);
    let error = worker.adopt(&detached).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    servers.cont(&[1, 2]);
    // Nobody knows the id under which it is held by now: it must not last for its whole lease.
    let next = eventually("it is free", ms(8000), async || web.mutex("adoption").try_lock().await.unwrap()).await;
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_that_has_lost_it_is_a_definite_no() {
    let Some(servers) = Servers::start().await else { return };
    let (web, worker) = (servers.client().await, servers.client().await);
    let detached = servers.hold_everywhere(&web.mutex("adoption").with_lease(long())).await.detach().await.unwrap();
    for i in [0, 1, 2] {
        servers.run(i, &["DEL", &key("adoption")]).await;
    }
    let error = worker.adopt(&detached).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotHeld, "{error}");
    let free = web.mutex("adoption").lock().await.unwrap();
    free.release().await.unwrap();
    // What a minority had of it was taken back.
    servers.have_nothing_left(ALL).await;
}

/// It would be carried out after the adopter's release, and nobody would release what it takes.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_not_detached_as_long_as_an_acquisition_of_it_is_on_its_way_to_a_server() {
    let Some(servers) = Servers::start().await else { return };
    let worker = servers.client().await;
    let (links, config) = servers.behind_proxies(ALL.len());
    let web = configured(config.with_client(hasty())).await;
    // Once for an acquisition that is still waited for, once for one whose connection is given up meanwhile.
    for time in [ms(0), 4 * SHORT] {
        servers.hold_everywhere(&web.mutex("other")).await.release().await.unwrap();
        let held_up = links[4].inject(LinkFault::new(Toxic::Hold, Direction::ToServer));
        let mut held = web.mutex("adoption").with_lease(long()).lock().await.unwrap();
        let until = Instant::now() + time;
        loop {
            let refused = held.detach().await.unwrap_err();
            assert!(refused.error.kind() == ErrorKind::Unavailable && refused.error.is_definite(), "{refused}");
            held = refused.guard;
            if Instant::now() >= until {
                break;
            }
            tokio::time::sleep(ms(20)).await;
        }
        held_up.heal().unwrap();
        let detached = detached(held).await;
        worker.adopt(&detached).await.unwrap().release().await.unwrap();
        servers.have_nothing_left(ALL).await;
    }
}

/// The server could not be asked in the round that was granted. It has the request of an earlier one, over a connection that was given up.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_not_detached_as_long_as_a_server_that_is_away_may_have_an_earlier_request() {
    let Some(servers) = Servers::start().await else { return };
    let holder = servers.client().await;
    let (links, config) = servers.behind_proxies(ALL.len());
    let web = configured(config.with_client(hasty())).await;
    servers.hold_everywhere(&web.mutex("other")).await.release().await.unwrap();
    let held = servers.hold_everywhere(&holder.mutex("adoption").with_lease(long())).await;
    let away = [
        links[4].inject(LinkFault::new(Toxic::Hold, Direction::ToServer)),
        links[4].inject(LinkFault::new(Toxic::Refuse, Direction::Both)),
    ];
    let mutex = web.mutex("adoption").with_lease(long());
    let waits = tokio::spawn(async move { mutex.lock().await.unwrap() });
    // Long enough for its connection to be given up. If it were not, the server would be one that has not answered.
    tokio::time::sleep(4 * SHORT).await;
    held.release().await.unwrap();
    let refused = waits.await.unwrap().detach().await.unwrap_err();
    assert!(refused.error.kind() == ErrorKind::Unavailable && refused.error.is_definite(), "{refused}");
    away.into_iter().for_each(|fault| drop(fault.heal().unwrap()));
    let detached = detached(refused.guard).await;
    servers.client().await.adopt(&detached).await.unwrap().release().await.unwrap();
    servers.have_nothing_left(ALL).await;
}

/// The servers answer one after the other, and the lock is detached when a majority has.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_detached_where_some_servers_answer_a_little_later() {
    let Some(servers) = Servers::start().await else { return };
    let (links, config) = servers.behind_proxies(ALL.len());
    let web = configured(config).await;
    servers.hold_everywhere(&web.mutex("other")).await.release().await.unwrap();
    let late = || LinkFault::new(Toxic::Delay { by: ms(300), jitter: ms(0) }, Direction::ToClient);
    let _late: Vec<_> = links[3..].iter().map(|link| link.inject(late())).collect();
    let detached = web.mutex("adoption").with_lease(long()).lock().await.unwrap().detach().await.unwrap();
    servers.client().await.adopt(&detached).await.unwrap().release().await.unwrap();
    servers.have_nothing_left(ALL).await;
}

/// Its failure is known before the lock is granted, and nothing more is heard of that request.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_detached_although_a_connection_broke_when_it_was_asked_for() {
    let Some(servers) = Servers::start().await else { return };
    let (links, config) = servers.behind_proxies(ALL.len());
    let web = configured(config.with_client(hasty())).await;
    servers.hold_everywhere(&web.mutex("other")).await.release().await.unwrap();
    let late = || LinkFault::new(Toxic::Delay { by: ms(100), jitter: ms(0) }, Direction::ToClient);
    let late: Vec<_> = links[1..].iter().map(|link| link.inject(late())).collect();
    let broken = links[0].inject(LinkFault::new(Toxic::Reset, Direction::ToServer).on_request(1, "adoption"));
    let held = web.mutex("adoption").with_lease(long()).lock().await.unwrap();
    late.into_iter().chain([broken]).for_each(|fault| drop(fault.heal().unwrap()));
    let detached = detached(held).await;
    servers.client().await.adopt(&detached).await.unwrap().release().await.unwrap();
    servers.have_nothing_left(ALL).await;
}

/// A server that is down may have kept nothing from this client.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_every_server_has_granted_is_detached_while_one_of_them_is_away() {
    let Some(servers) = Servers::start().await else { return };
    let (web, worker) = (servers.client().await, servers.client().await);
    let held = servers.hold_everywhere(&web.mutex("adoption").with_lease(long())).await;
    // Behind all that the acquisition still has to hear.
    servers.hold_everywhere(&web.mutex("other")).await.release().await.unwrap();
    servers.kill(&[3]);
    let detached = held.detach().await.unwrap();
    worker.adopt(&detached).await.unwrap().release().await.unwrap();
    servers.have_nothing_left(&[0, 1, 2, 4]).await;
}

/// It would keep the lock under the id of before for the rest of the lease, and nobody could release it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_missed_it_does_not_keep_it_under_the_former_id() {
    let Some(servers) = Servers::start().await else { return };
    let web = servers.client().await;
    let (links, config) = servers.behind_proxies(ALL.len());
    let worker = QuorumLocks::connect_with(config).await.unwrap();
    eventually("all are connected", ms(8000), async || links.iter().all(|link| link.open_connections() >= 2)).await;
    let detached = servers.hold_everywhere(&web.mutex("adoption").with_lease(long())).await.detach().await.unwrap();
    let missed = links[3].inject(LinkFault::new(Toxic::Reset, Direction::ToServer).on_request(1, key("adoption")));
    let adopted = worker.adopt(&detached).await.unwrap();
    missed.applied(ms(8000)).await.unwrap();
    missed.heal().unwrap();
    let former = async || servers.holding(ALL, "adoption", detached.grant).await.is_empty();
    eventually("no server has it under the former id", ms(8000), former).await;
    assert!(adopted.is_held());
    adopted.release().await.unwrap();
    servers.have_nothing_left(ALL).await;
}

/// Others have taken it at that server, which this client has never reached.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_away_all_the_time_hears_of_an_adoption_and_of_a_release_by_force_when_it_is_back() {
    let Some(servers) = Servers::start().await else { return };
    let web = servers.client().await;
    let (links, config) = servers.behind_proxies(ALL.len());
    let away = links[3].inject(LinkFault::new(Toxic::Refuse, Direction::Both));
    let worker = QuorumLocks::connect_with(config).await.unwrap();
    let connected = async || links.iter().filter(|link| link.open_connections() >= 2).count() == 4;
    eventually("the others are connected", ms(8000), connected).await;
    let detached = servers.hold_everywhere(&web.mutex("adoption").with_lease(long())).await.detach().await.unwrap();
    let forced = servers.hold_everywhere(&web.mutex("forced").with_lease(long())).await;
    let adopted = worker.adopt(&detached).await.unwrap();
    assert!(worker.mutex("forced").force_release(forced.grant_id(), "it hangs").await.unwrap());
    // Longer than a request takes.
    tokio::time::sleep(ms(2500)).await;
    away.heal().unwrap();
    let former = async || servers.holding(ALL, "adoption", detached.grant).await.is_empty();
    eventually("no server has it under the former id", ms(8000), former).await;
    let freed = async || servers.holding(ALL, "forced", forced.grant_id()).await.is_empty();
    eventually("no server has what was released by force", ms(8000), freed).await;
    assert!(adopted.is_held());
    adopted.release().await.unwrap();
}

/// The operator is told that nothing was done, and so nothing is done when the servers can be reached again.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_by_force_that_failed_for_certain_does_not_happen_later() {
    let Some(servers) = Servers::start().await else { return };
    let holder = servers.client().await;
    let (links, config) = servers.behind_proxies(ALL.len());
    let operator = QuorumLocks::connect_with(config).await.unwrap();
    servers.hold_everywhere(&operator.mutex("other")).await.release().await.unwrap();
    let held = servers.hold_everywhere(&holder.mutex("forced").with_lease(long())).await;
    let cut =
        |toxic: Toxic| links.iter().map(|link| link.inject(LinkFault::new(toxic.clone(), Direction::Both))).collect();
    let (away, ended): (Vec<_>, Vec<_>) = (cut(Toxic::Refuse), cut(Toxic::Reset));
    // An inspection asks all of them; a majority that is down is enough to refuse a try.
    eventually("it knows that all links are down", ms(8000), async || {
        operator.mutex("other").inspect().await.is_err_and(|error| error.is_definite())
    })
    .await;
    let error = operator.mutex("forced").force_release(held.grant_id(), "it hangs").await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.is_definite(), "{error}");
    for fault in away.into_iter().chain(ended) {
        fault.heal().unwrap();
    }
    // Behind everything that was to be sent to these servers.
    servers.hold_everywhere(&operator.mutex("other")).await.release().await.unwrap();
    held.extend(ms(60_000)).await.unwrap();
    assert_eq!(servers.holding(ALL, "forced", held.grant_id()).await.len(), 5);
    held.release().await.unwrap();
}

/// The servers answer, and refuse to run scripts for a moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_by_force_that_every_server_has_refused_does_not_happen_later() {
    let Some(servers) = Servers::start().await else { return };
    let (holder, operator) = (servers.client().await, servers.client().await);
    servers.hold_everywhere(&operator.mutex("other")).await.release().await.unwrap();
    let held = servers.hold_everywhere(&holder.mutex("forced").with_lease(long())).await;
    let scripts = async |are_allowed: &str| {
        for server in ALL {
            let changed = servers.run(*server, &["ACL", "SETUSER", "default", are_allowed]).await;
            assert!(!matches!(changed, Value::Error(_)), "{changed:?}");
        }
    };
    scripts("-@scripting").await;
    let error = operator.mutex("forced").force_release(held.grant_id(), "it hangs").await.unwrap_err();
    assert!(error.is_definite(), "{error}");
    scripts("+@scripting").await;
    // Releases that are pending are sent every second.
    let until = tokio::time::Instant::now() + ms(2500);
    while tokio::time::Instant::now() < until {
        assert_eq!(servers.holding(ALL, "forced", held.grant_id()).await.len(), 5);
        tokio::time::sleep(ms(50)).await;
    }
    held.release().await.unwrap();
}

/// They know the undo, but not the adoption, when both come.
#[tokio::test(flavor = "multi_thread")]
async fn an_adoption_that_was_undone_is_not_sent_again_to_servers_that_did_not_know_its_script() {
    let Some(servers) = Servers::start().await else { return };
    let (web, worker) = (servers.client().await, servers.client().await);
    let detached =
        async || servers.hold_everywhere(&web.mutex("adoption").with_lease(long())).await.detach().await.unwrap();
    // From here on the worker's servers know all of its scripts.
    worker.adopt(&detached().await).await.unwrap().release().await.unwrap();
    servers.have_nothing_left(ALL).await;
    servers.hold_everywhere(&worker.mutex("other")).await.release().await.unwrap();
    let detached = detached().await;
    let before = servers.held(3, "adoption").await.unwrap();
    for i in [0, 1, 2] {
        servers.run(i, &["DEL", &key("adoption")]).await;
    }
    for i in [3, 4] {
        servers.run(i, &["SCRIPT", "FLUSH"]).await;
        servers.run(i, &["SCRIPT", "LOAD", GIVE]).await;
    }
    servers.stop(&[3, 4]);
    assert!(worker.adopt(&detached).await.is_err());
    servers.cont(&[3, 4]);
    for _ in 0..2 {
        // Behind all that was asked of these servers before.
        servers.hold_everywhere(&worker.mutex("other")).await.release().await.unwrap();
    }
    assert_eq!(servers.held(3, "adoption").await.as_ref(), Some(&before));
}

/// Detaches a lock as soon as that is not refused any more.
async fn detached(held: MutexGuard) -> DetachedMutex {
    let mut held = Some(held);
    let detached = eventually("it is detached", PROMPTLY, async || match held.take()?.detach().await {
        Ok(detached) => Some(detached),
        Err(refused) => {
            held = Some(refused.guard);
            None
        }
    });
    detached.await
}
