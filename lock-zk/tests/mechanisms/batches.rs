//! Requests that many tasks make at one moment and that travel together: each has its own outcome, token and cancellation.

use futures_util::future::join_all;
use futures_util::{FutureExt, join};
use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit::testing::about_time;
use lock_testkit_servers::zookeeper::{Acl, NodeKind, ZooKeeperClient};
use lock_zk::{ErrorKind, Mutex, MutexGuard, SessionState, ZkLocks};

use crate::support::{LASTING, PROMPTLY, SESSION, client, eventually, fails, link, ms, nodes, over, server, soon};

const TASKS: usize = 24;

/// The requests that a test may see beside its own: heartbeats, and renewals.
const BESIDE: u64 = 8;

fn name(task: usize) -> String {
    format!("together-{task:02}")
}

fn mutexes(locks: &ZkLocks) -> Vec<Mutex> {
    (0..TASKS).map(|task| locks.mutex(name(task))).collect()
}

/// Makes the directories of all: what follows needs no more than places.
async fn prepare(locks: &ZkLocks) {
    release_all(lock_all(&mutexes(locks)).await).await;
}

/// Every task asks at one moment.
async fn lock_all(mutexes: &[Mutex]) -> Vec<MutexGuard> {
    let locked = soon("every lock", PROMPTLY, join_all(mutexes.iter().map(Mutex::lock))).await;
    locked.into_iter().map(Result::unwrap).collect()
}

async fn release_all(held: Vec<MutexGuard>) {
    for released in soon("every release", PROMPTLY, join_all(held.into_iter().map(MutexGuard::release))).await {
        released.unwrap();
    }
}

/// Nothing is left of any, or one node of each that is held.
async fn left(truth: &ZooKeeperClient, count: impl Fn(usize) -> usize) {
    for task in 0..TASKS {
        let of = format!("{} has {} nodes", name(task), count(task));
        eventually(&of, PROMPTLY, async || nodes(truth, &name(task)).await.len() == count(task)).await;
    }
}

/// Nobody but its owner may do anything in the directory of this lock.
async fn close_to_us(truth: &ZooKeeperClient, name: &str) {
    let somebody =
        Acl { permissions: 31, scheme: "digest".to_owned(), id: "somebody:1c7Cvxv9mzQAnIbRG2kFF5Dk0lY=".to_owned() };
    assert!(truth.set_acl(&format!("/lock/mutex/{name}"), &[somebody]).await.unwrap());
}

#[tokio::test]
async fn many_locks_take_few_requests_and_each_has_the_token_of_its_own_node() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let locks = client(&over([&link]), LASTING).await;
    prepare(&locks).await;
    let mutexes = mutexes(&locks);
    let mut before = [0; TASKS];
    for _ in 0..3 {
        let sent = link.requests();
        let held = lock_all(&mutexes).await;
        let sent = link.requests() - sent;
        assert!(sent <= 4 + BESIDE, "{sent} requests for {TASKS} locks");
        for (task, held) in held.iter().enumerate() {
            let node = nodes(&truth, &name(task)).await.remove(0);
            let czxid = truth.exists(&node).await.unwrap().unwrap().czxid;
            let token = held.fencing_token().unwrap().as_u64();
            assert_eq!(Ok(token), u64::try_from(czxid), "the token of {node}");
            assert!(token > before[task]);
            before[task] = token;
        }
        let sent = link.requests();
        release_all(held).await;
        let sent = link.requests() - sent;
        assert!(sent <= 2 + BESIDE, "{sent} requests for {TASKS} releases");
    }
    left(&truth, |_| 0).await;
}

#[tokio::test]
async fn two_places_in_one_queue_have_two_tokens_in_the_order_of_the_queue() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let lock = locks.rwlock("shared");
    lock.read().await.unwrap().release().await.unwrap();
    let held = soon("every reader", PROMPTLY, join_all((0..TASKS).map(|_| lock.read()))).await;
    let held: Vec<_> = held.into_iter().map(Result::unwrap).collect();
    let tokens: Vec<_> = held.iter().map(|held| held.fencing_token().unwrap().as_u64()).collect();
    assert!(tokens.is_sorted_by(|before, after| before < after), "{tokens:?}");
    let names = truth.children("/lock/rwlock/shared").await.unwrap().unwrap();
    assert_eq!(names.len(), TASKS);
    for released in join_all(held.into_iter().map(|held| held.release())).await {
        released.unwrap();
    }
}

#[tokio::test]
async fn one_that_lacks_its_directory_is_no_matter_of_the_others() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    prepare(&locks).await;
    assert!(truth.delete("/lock/mutex/together-07").await.unwrap());
    let held = lock_all(&mutexes(&locks)).await;
    left(&truth, |_| 1).await;
    release_all(held).await;
    left(&truth, |_| 0).await;
}

/// The readers' directory is listed once for all of them, and one of them has its place later than that.
#[tokio::test]
async fn a_place_whose_batch_was_refused_is_in_the_listing_behind_it() {
    const READERS: usize = 8;
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    prepare(&locks).await;
    let (mutexes, lock) = (mutexes(&locks), locks.rwlock("beside"));
    lock.read().await.unwrap().release().await.unwrap();
    assert!(truth.delete("/lock/mutex/together-07").await.unwrap());
    let reading = join_all((0..READERS).map(|_| lock.try_read()));
    let (held, read) = soon("all of them", PROMPTLY, async { join!(lock_all(&mutexes), reading) }).await;
    let read: Vec<_> = read.into_iter().map(|read| read.unwrap().expect("nobody writes")).collect();
    let names = truth.children("/lock/rwlock/beside").await.unwrap().unwrap();
    assert_eq!(names.len(), READERS, "one who does not see its own place has asked for another one");
    release_all(held).await;
    for released in join_all(read.into_iter().map(|read| read.release())).await {
        released.unwrap();
    }
    assert!(truth.children("/lock/rwlock/beside").await.unwrap().unwrap_or_default().is_empty());
    left(&truth, |_| 0).await;
}

#[tokio::test]
async fn one_that_is_denied_is_told_so_and_the_others_are_granted() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    prepare(&locks).await;
    close_to_us(&truth, "together-07").await;
    let mutexes = mutexes(&locks);
    for _ in 0..3 {
        let tried = soon("every try", PROMPTLY, join_all(mutexes.iter().map(Mutex::try_lock))).await;
        let mut held = Vec::new();
        for (task, tried) in tried.into_iter().enumerate() {
            if task == 7 {
                assert!(fails(tried, ErrorKind::Denied).is_definite());
            } else {
                held.push(tried.unwrap().expect("nobody holds it"));
            }
        }
        release_all(held).await;
    }
    // The denied one's directory is not ours to see.
    for task in (0..TASKS).filter(|task| *task != 7) {
        assert!(nodes(&truth, &name(task)).await.is_empty(), "{task} is left");
    }
}

#[tokio::test]
async fn one_node_that_is_gone_is_told_to_its_holder_alone() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    prepare(&locks).await;
    let held = lock_all(&mutexes(&locks)).await;
    let node = nodes(&truth, &name(7)).await.remove(0);
    assert!(truth.delete(&node).await.unwrap());
    let released = soon("every release", PROMPTLY, join_all(held.into_iter().map(MutexGuard::release))).await;
    for (task, released) in released.into_iter().enumerate() {
        if task == 7 {
            fails(released, ErrorKind::NotHeld);
        } else {
            released.unwrap();
        }
    }
    left(&truth, |_| 0).await;
}

#[test]
fn a_batch_that_is_cut_or_unanswered_makes_one_node_for_each() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (link, truth) = (link(&server), server.client().await.unwrap());
        let locks = client(&over([&link]), LASTING).await;
        prepare(&locks).await;
        let mutexes = mutexes(&locks);
        // The transaction does not arrive whole; it is carried out, and its answer is lost; so with the listing behind it.
        let faults = [
            (Toxic::CutAfter { bytes: 700 }, Direction::ToServer, 1),
            (Toxic::Reset, Direction::ToClient, 1),
            (Toxic::Reset, Direction::ToClient, 2),
            (Toxic::Swallow, Direction::ToClient, 1),
        ];
        for (toxic, direction, nth) in faults {
            let fault = link.inject(LinkFault::new(toxic.clone(), direction).on_request(nth, name(TASKS - 1)));
            let held = lock_all(&mutexes).await;
            fault.proven().unwrap_or_else(|error| panic!("{toxic:?}: {error}"));
            drop(fault);
            left(&truth, |_| 1).await;
            release_all(held).await;
            left(&truth, |_| 0).await;
        }
        assert_eq!(locks.session_state(), SessionState::Connected);
    });
}

#[tokio::test]
async fn a_dropped_part_leaves_an_unsent_batch_and_is_undone_in_a_sent_one() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let locks = client(&over([&link]), LASTING).await;
    prepare(&locks).await;
    let mutexes = mutexes(&locks);
    for is_sent in [false, true] {
        let answers = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient));
        let before = link.requests();
        let mut asked: Vec<_> = mutexes.iter().map(|mutex| Some(Box::pin(mutex.lock()))).collect();
        for asked in asked.iter_mut().flatten() {
            assert!(asked.as_mut().now_or_never().is_none());
        }
        if is_sent {
            eventually("the batch is sent", PROMPTLY, async || link.requests() >= before + 4).await;
        }
        for task in (1..TASKS).step_by(3) {
            asked[task] = None;
        }
        answers.applied(PROMPTLY).await.unwrap();
        answers.heal().unwrap();
        let kept = join_all(asked.into_iter().flatten());
        let held: Vec<_> = soon("the others", PROMPTLY, kept).await.into_iter().map(Result::unwrap).collect();
        left(&truth, |task| usize::from(task % 3 != 1)).await;
        release_all(held).await;
        left(&truth, |_| 0).await;
    }
}

/// The batch is refused after one part was dropped, and the others go singly: the dropped one does not go behind its own undo.
#[tokio::test]
async fn a_part_that_is_dropped_before_its_batch_is_refused_is_not_made_later() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let locks = client(&over([&link]), LASTING).await;
    prepare(&locks).await;
    assert!(truth.delete("/lock/mutex/together-07").await.unwrap());
    let mutexes = mutexes(&locks);
    let answers = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient));
    let before = link.requests();
    let mut asked: Vec<_> = mutexes.iter().map(|mutex| Box::pin(mutex.lock())).collect();
    for asked in &mut asked {
        assert!(asked.as_mut().now_or_never().is_none());
    }
    eventually("the batch is sent", PROMPTLY, async || link.requests() >= before + 4).await;
    let dropped = asked.pop();
    drop(dropped);
    // Its undo looks for its node, behind the batch.
    eventually("the undo asks", PROMPTLY, async || link.requests() >= before + 6).await;
    answers.applied(PROMPTLY).await.unwrap();
    answers.heal().unwrap();
    let held: Vec<_> = soon("the others", PROMPTLY, join_all(asked)).await.into_iter().map(Result::unwrap).collect();
    release_all(held).await;
    left(&truth, |_| 0).await;
}

#[test]
fn a_batch_whose_session_is_lost_is_granted_in_the_next_one() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (link, truth) = (link(&server), server.client().await.unwrap());
        let locks = client(&over([&link]), SESSION).await;
        prepare(&locks).await;
        let mutexes = mutexes(&locks);
        let cut = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient));
        let waiting = tokio::spawn(async move { lock_all(&mutexes).await });
        eventually("the session is lost", PROMPTLY, async || locks.session_state() == SessionState::Lost).await;
        tokio::time::sleep(ms(100)).await;
        cut.heal().unwrap();
        let held = soon("every lock", PROMPTLY * 2, waiting).await.unwrap();
        assert!(held.iter().all(|held| held.is_held()));
        left(&truth, |_| 1).await;
        release_all(held).await;
        left(&truth, |_| 0).await;
    });
}

/// Others stand behind in each queue, as long as if they were thousands: the listings of all are longer than what servers and other
/// clients take in one request by default (`jute.maxbuffer`, 1 MiB).
#[tokio::test]
async fn listings_of_long_queues_that_go_together_cost_nobody_the_connection() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let locks = client(&over([&link]), LASTING).await;
    prepare(&locks).await;
    for task in 0..TASKS {
        let beside = (0..16).map(|number| {
            let path = format!("/lock/mutex/{}/_c_{}-lock-{:010}", name(task), "long".repeat(2000), 9000 + number);
            let truth = &truth;
            async move { truth.create(&path, &[], NodeKind::Persistent).await.unwrap() }
        });
        join_all(beside).await;
    }
    let made = link.connections();
    release_all(lock_all(&mutexes(&locks)).await).await;
    // From now on it is known how long they are: four of 128 KB are one answer.
    let sent = link.requests();
    let held = lock_all(&mutexes(&locks)).await;
    let sent = link.requests() - sent;
    let listings = TASKS as u64 / 4;
    assert!(sent >= 2 + listings && sent <= 4 + listings + BESIDE, "{sent} requests");
    release_all(held).await;
    assert_eq!((link.connections(), locks.session_state()), (made, SessionState::Connected));
}

/// Without the right to the stamp no transaction makes places: each goes by itself.
#[tokio::test]
async fn where_the_stamp_may_not_be_changed_every_place_goes_by_itself() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    prepare(&locks).await;
    let readers = Acl { permissions: 1, scheme: "world".to_owned(), id: "anyone".to_owned() };
    assert!(truth.set_acl("/lock", &[readers]).await.unwrap());
    for _ in 0..2 {
        let held = lock_all(&mutexes(&locks)).await;
        left(&truth, |_| 1).await;
        release_all(held).await;
    }
    left(&truth, |_| 0).await;
}
