//! Leaders among processes.

#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::clock::{TokioClock, VirtualClock};
use lock_core::memory::{MemoryConfig, MemoryStore};
use lock_core::{ClientOptions, ErrorKind, LeaseOptions, MemoryLocks};
use lock_recipes::Election;
use lock_testkit::testing::{eventually, soon};
use tokio::sync::oneshot;

const LONG: Duration = Duration::from_secs(30);

/// A client whose leases last so long.
fn client(store: &MemoryStore, ttl: Duration) -> MemoryLocks {
    let mut client = ClientOptions::default();
    client.lease = LeaseOptions::new(ttl);
    store.connect_with(MemoryConfig::default().with_client(client)).unwrap()
}

fn election(locks: &MemoryLocks, address: &str) -> Election {
    Election::new(locks.recorded("leader").unwrap()).with_address(address)
}

#[tokio::test]
async fn one_leads_and_is_found_and_the_next_one_follows_with_a_greater_term() {
    let store = MemoryStore::new();
    let (first, second) = (client(&store, LONG), client(&store, LONG));
    let (a, b) = (election(&first, "a:1"), election(&second, "b:2"));
    assert_eq!(b.leader().await.unwrap(), None);
    let leads = a.campaign().await.unwrap();
    assert!(leads.is_leading() && a.is_leading() && !b.is_leading());
    let found = b.leader().await.unwrap().unwrap();
    assert_eq!((found.term, &*found.address), (leads.number(), "a:1"));
    assert_eq!(a.term(), Some(leads.number()));
    let campaign = tokio::spawn({
        let b = b.clone();
        async move { b.campaign().await }
    });
    let earlier = leads.number();
    leads.step_down().await.unwrap();
    assert!(!a.is_leading());
    let next = campaign.await.unwrap().unwrap();
    assert!(next.number() > earlier && b.is_leading());
    assert_eq!(a.leader().await.unwrap().unwrap().address, "b:2");
    drop(next);
    assert!(!b.is_leading(), "a leadership that is dropped has ended");
    eventually("nobody leads", LONG, async || a.leader().await.unwrap().is_none()).await;
}

/// Somebody holds the lock, and has not announced itself in this term.
#[tokio::test]
async fn the_address_of_a_former_leader_is_not_taken_for_the_present_ones() {
    let locks = MemoryLocks::new();
    let election = election(&locks, "a:1");
    election.campaign().await.unwrap().step_down().await.unwrap();
    let record = locks.recorded("leader").unwrap();
    assert!(record.read().await.unwrap().unwrap().is_of_term(), "its address is there still");
    assert_eq!(election.leader().await.unwrap(), None, "and it leads no more");
    let held = record.lock().await.unwrap();
    assert_eq!(election.leader().await.unwrap(), None);
    held.release().await.unwrap();
    // One that takes the lock without the record leaves that as it is.
    let held = locks.mutex("leader").lock().await.unwrap();
    assert_eq!(election.leader().await.unwrap(), None);
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_body_whose_lock_is_lost_is_dropped_and_called_again_in_a_new_term() {
    let store = MemoryStore::new();
    let locks = client(&store, LONG);
    let mut terms = Vec::new();
    let ended = election(&locks, "a:1")
        .run(|term| {
            terms.push(term.number());
            let many = terms.len();
            let store = &store;
            async move {
                if many < 3 {
                    store.lose("leader");
                    std::future::pending::<()>().await;
                }
                many
            }
        })
        .await
        .unwrap();
    assert_eq!(ended, 3);
    assert!(terms.is_sorted() && terms[0] < terms[1], "{terms:?}");
}

/// The servers do not answer any more: the leader stops while its lease still lasts, and so before another one can lead.
#[tokio::test]
async fn a_leader_that_cannot_renew_stops_before_its_lease_ends() {
    let store = MemoryStore::new();
    let locks = client(&store, Duration::from_millis(1500));
    let (tell, told) = oneshot::channel();
    let election = election(&locks, "a:1").with_margin(Duration::from_millis(400));
    let body = async {
        let mut tell = Some(tell);
        election
            .run(|_| {
                let dropped = tell.take().map(OnDrop);
                async move {
                    let _dropped = dropped;
                    std::future::pending::<()>().await;
                }
            })
            .await
    };
    let watch = async {
        eventually("it leads", LONG, async || election.is_leading()).await;
        let record = locks.recorded("leader").unwrap();
        let grant = record.mutex().inspect().await.unwrap().holders.remove(0).grant;
        store.set_reachable(false);
        told.await.unwrap();
        assert!(!election.is_leading(), "its body has ended, and it says that it leads");
        store.set_reachable(true);
        let holders = record.mutex().inspect().await.unwrap().holders;
        // It steps down at once: by then its lock may be free already. Nobody else has it.
        assert!(holders.iter().all(|holder| holder.grant == grant), "somebody else led by then");
    };
    tokio::select! {
        ended = body => panic!("{ended:?}"),
        () = watch => {}
    }
}

struct OnDrop(oneshot::Sender<()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let (unused, _) = oneshot::channel();
        let _ = std::mem::replace(&mut self.0, unused).send(());
    }
}

/// Its thread stands still past the lease, as in a process that is stopped; the first look afterwards is right.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_was_paused_past_its_lease_does_not_say_that_it_leads() {
    let store = MemoryStore::new();
    let mut client = ClientOptions::default();
    client.lease = LeaseOptions::new(Duration::from_millis(300)).with_auto_renew(false);
    let locks = store.connect_with(MemoryConfig::default().with_client(client)).unwrap();
    let election = election(&locks, "a:1");
    let leads = election.campaign().await.unwrap();
    tokio::task::block_in_place(|| std::thread::sleep(Duration::from_millis(300)));
    assert!(!leads.is_leading() && !election.is_leading() && election.term().is_none());
    leads.ended().await;
    assert_eq!(leads.step_down().await.unwrap_err().kind(), ErrorKind::NotHeld);
}

#[tokio::test]
async fn whoever_watches_is_woken_by_the_beginning_and_the_end() {
    let store = MemoryStore::new();
    let locks = client(&store, LONG);
    let election = election(&locks, "a:1");
    let mut watch = election.watch();
    let leads = election.campaign().await.unwrap();
    // It is told although it has changed before the first question.
    assert_eq!(watch.changed().await, Some(leads.number()));
    let told = tokio::spawn(async move { (watch.changed().await, watch) });
    store.lose("leader");
    let (state, mut watch) = told.await.unwrap();
    assert_eq!(state, None);
    drop(leads);
    election.campaign().await.unwrap().step_down().await.unwrap();
    assert!(futures_util::poll!(Box::pin(watch.changed())).is_pending(), "it came and went between two looks");
}

#[tokio::test]
async fn never_two_lead_at_once_while_their_locks_are_lost_again_and_again() {
    let store = MemoryStore::new();
    let leading = Arc::new(AtomicU64::new(0));
    let rounds = Arc::new(AtomicU64::new(0));
    let tasks = (0..4).map(|number| {
        let locks = client(&store, LONG);
        let (leading, rounds) = (leading.clone(), rounds.clone());
        tokio::spawn(async move {
            let election = election(&locks, &number.to_string());
            while rounds.load(Ordering::SeqCst) < 200 {
                let body = |_| async {
                    assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two lead");
                    tokio::task::yield_now().await;
                    leading.fetch_sub(1, Ordering::SeqCst);
                    rounds.fetch_add(1, Ordering::SeqCst);
                };
                election.run(body).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_leader_that_stepped_down_cools_down_before_it_campaigns_again() {
    let store = MemoryStore::new();
    let (first, second) = (client(&store, LONG), client(&store, LONG));
    let cooling = election(&first, "a:1").with_cool_down(LONG * 20);
    cooling.run(|_| async {}).await.unwrap();
    let campaign = cooling.campaign();
    tokio::pin!(campaign);
    // The lock is free, and the other one has it at once.
    assert!(futures_util::poll!(campaign.as_mut()).is_pending());
    let leads = election(&second, "b:2").campaign().await.unwrap();
    assert!(futures_util::poll!(campaign.as_mut()).is_pending());
    leads.step_down().await.unwrap();
}

/// A program that shuts down closes the client, and waits for the task that campaigns.
#[tokio::test]
async fn a_campaign_that_cools_down_ends_when_its_client_is_closed() {
    let locks = client(&MemoryStore::new(), LONG);
    let cooling = election(&locks, "a:1").with_cool_down(LONG * 20);
    cooling.campaign().await.unwrap().step_down().await.unwrap();
    let mut under_way = Box::pin(cooling.campaign());
    assert!(futures_util::poll!(under_way.as_mut()).is_pending());
    locks.close().await.unwrap();
    for campaign in [under_way, Box::pin(cooling.campaign())] {
        let error = soon("the campaign ends", LONG, campaign).await.unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::Closed, Some("leader")), "{error}");
    }
}

#[tokio::test]
async fn a_campaign_after_a_leadership_that_was_stepped_down_from_or_dropped_cools_down_too() {
    let store = MemoryStore::new();
    let locks = client(&store, LONG);
    for dropped in [false, true] {
        let cooling = election(&locks, "a:1").with_cool_down(LONG * 20);
        let leadership = cooling.campaign().await.unwrap();
        if dropped {
            drop(leadership)
        } else {
            leadership.step_down().await.unwrap()
        }
        let campaign = cooling.campaign();
        tokio::pin!(campaign);
        for _ in 0..100 {
            assert!(futures_util::poll!(campaign.as_mut()).is_pending(), "dropped: {dropped}");
            tokio::task::yield_now().await;
        }
        // Another election of this process has no such pause.
        election(&locks, "a:1").campaign().await.unwrap().step_down().await.unwrap();
    }
}

/// A renewal that comes late makes nobody a leader again who was told that it leads no more.
#[tokio::test]
async fn a_term_that_was_seen_to_be_over_stays_over() {
    let store = MemoryStore::new();
    let locks = client(&store, Duration::from_secs(3));
    let recorded = locks.recorded("leader").unwrap();
    let election = Election::new(recorded.clone()).with_margin(Duration::from_secs(1));
    let mut watch = election.watch();
    let leadership = election.campaign().await.unwrap();
    assert_eq!(watch.changed().await, Some(leadership.number()));
    store.set_reachable(false);
    // Asked by others only: whoever waits for the end is told too.
    eventually("it leads no more", LONG, async || !election.is_leading()).await;
    store.set_reachable(true);
    let long = Some(Duration::from_secs(2));
    let renewed = async || {
        let holders = recorded.mutex().inspect().await.unwrap().holders;
        holders.first().is_none_or(|holder| holder.expires_in > long)
    };
    eventually("its lock is renewed", LONG, renewed).await;
    assert!(!leadership.is_leading() && !election.is_leading(), "it leads again, and whoever watches is not told");
    soon("the end is told", LONG, leadership.ended()).await;
    assert_eq!(soon("and watched", LONG, watch.changed()).await, None);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_name() {
    let store = MemoryStore::new();
    let locks = client(&store, LONG);
    let margin = election(&locks, "a:1").with_margin(LONG / 2).campaign().await.unwrap_err();
    assert_eq!(margin.kind(), ErrorKind::InvalidArgument);
    assert!(margin.to_string().contains("margin"), "{margin}");
    let address = election(&locks, &"x".repeat(2000)).run(|_| async {}).await.unwrap_err();
    assert_eq!(address.kind(), ErrorKind::InvalidArgument);
    assert!(address.to_string().contains("address"), "{address}");
    assert_eq!(store.used(), 0, "nothing of it is left");
}

#[tokio::test(start_paused = true)]
async fn an_address_is_announced_again_before_its_record_ends() {
    let store = MemoryStore::with_clock(TokioClock::new());
    let locks = client(&store, LONG);
    let minute = Duration::from_secs(60);
    let election = Election::new(locks.recorded("leader").unwrap().with_retention(minute)).with_address("a:1");
    let body = election.run(|_| async { tokio::time::sleep(minute * 5).await });
    let seen = async {
        for _ in 0..8 {
            tokio::time::sleep(minute / 2).await;
            assert_eq!(election.leader().await.unwrap().map(|leader| leader.address).as_deref(), Some("a:1"));
        }
    };
    let (ran, ()) = tokio::join!(body, seen);
    ran.unwrap();
    // Without `run` it is announced by whoever leads.
    let leadership = election.campaign().await.unwrap();
    tokio::time::sleep(minute / 2).await;
    leadership.announce("b:2").await.unwrap();
    tokio::time::sleep(minute / 2).await;
    assert_eq!(election.leader().await.unwrap().map(|leader| leader.address).as_deref(), Some("b:2"));
    tokio::time::sleep(minute).await;
    assert_eq!(election.leader().await.unwrap(), None, "its record has ended");
    leadership.step_down().await.unwrap();
}

/// A clone of the election that waits in the queue is handed the lock when the leader steps down.
#[tokio::test]
async fn a_clone_that_waited_already_cools_down_too() {
    let store = MemoryStore::new();
    let (first, second) = (client(&store, LONG), client(&store, LONG));
    let cooling = election(&first, "a:1").with_cool_down(LONG * 20);
    let leadership = cooling.campaign().await.unwrap();
    let mut waiting = Box::pin(cooling.campaign());
    assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    leadership.step_down().await.unwrap();
    let other = election(&second, "b:2");
    let leads = tokio::select! {
        biased;
        again = &mut waiting => panic!("{again:?}"),
        leads = soon("another one leads", LONG, other.campaign()) => leads.unwrap(),
    };
    leads.step_down().await.unwrap();
}

#[tokio::test]
async fn a_client_that_is_closed_while_it_leads_goes_on_until_it_steps_down() {
    let store = MemoryStore::new();
    let (first, second) = (client(&store, LONG), client(&store, LONG));
    let (a, b) = (election(&first, "a:1"), election(&second, "b:2"));
    let leadership = a.campaign().await.unwrap();
    first.close().await.unwrap();
    assert!(leadership.is_leading());
    let mut next = Box::pin(b.campaign());
    assert!(futures_util::poll!(next.as_mut()).is_pending(), "two lead");
    leadership.step_down().await.unwrap();
    soon("the next one leads", LONG, next).await.unwrap().step_down().await.unwrap();
    assert_eq!(a.campaign().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(a.run(|_| async {}).await.unwrap_err().kind(), ErrorKind::Closed);
}

/// Its lease is renewed on the runtime of whoever asks.
#[test]
fn a_term_that_is_asked_for_its_state_goes_on_when_the_runtime_of_its_client_has_ended() {
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let clock = VirtualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let first = runtime();
    let leadership = first.block_on(async { election(&client(&store, LONG), "a:1").campaign().await.unwrap() });
    drop(first);
    let second = runtime();
    second.block_on(async {
        for tenth in 0..30 {
            assert!(leadership.is_leading(), "after {tenth} tenths of its TTL");
            clock.advance(LONG / 10);
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
        leadership.step_down().await.unwrap();
    });
}
