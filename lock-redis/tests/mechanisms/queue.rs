//! The queue: dead waiters, cancelled ones, and many.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use lock_redis::{ClientOptions, RedisConfig, RedisLocks};
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use tokio::task::JoinHandle;

use crate::server::{HAND_OVER, PROMPTLY, SLACK, Server, about_time, configured, hasty, key, long, ms, obtain, soon};

/// Waiters that are in the queue in the order of their numbers; each notes its number when it is granted.
pub(crate) struct QueuedTasks {
    order: Arc<Mutex<Vec<usize>>>,
    waiters: Vec<JoinHandle<()>>,
}

impl QueuedTasks {
    /// So many, each behind the one before, through these clients in turn.
    pub(crate) async fn up(server: &Server, clients: &[&RedisLocks], name: &str, count: usize) -> Self {
        let order = Arc::<Mutex<Vec<_>>>::default();
        let mut waiters = Vec::new();
        for number in 0..count {
            let (mutex, order) = (clients[number % clients.len()].mutex(name).with_lease(long()), order.clone());
            waiters.push(tokio::spawn(async move {
                let held = mutex.lock().await.unwrap();
                order.lock().unwrap().push(number);
                held.release().await.unwrap();
            }));
            server.until_queued(name, number + 1).await;
        }
        Self { order, waiters }
    }

    /// The order in which those that were not cancelled were granted.
    pub(crate) async fn order(self, within: Duration) -> Vec<usize> {
        for waiter in self.waiters {
            match soon("a waiter is granted", within, waiter).await {
                Ok(()) => {}
                Err(error) => assert!(error.is_cancelled(), "{error}"),
            }
        }
        self.order.lock().unwrap().clone()
    }

    fn cancel(&self, number: usize) {
        self.waiters[number].abort();
    }
}

/// A client in a process of its own, as far as the server can tell, that waits until it vanishes without a word.
pub(crate) struct Doomed {
    die: tokio::sync::oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Doomed {
    /// Waits for this mutex.
    fn wait_for(server: &Server, name: &'static str) -> Self {
        Self::new(server, move |locks| Box::pin(async move { drop(obtain(&locks, name, PROMPTLY * 6).await) }))
    }

    pub(crate) fn new(
        server: &Server,
        wait: impl FnOnce(RedisLocks) -> BoxFuture<'static, ()> + Send + 'static,
    ) -> Self {
        let url = server.url().to_owned();
        let (die, dies) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let locks = RedisLocks::connect(url).await.unwrap();
                tokio::select! {
                    () = wait(locks) => panic!("it was granted before its turn"),
                    told = dies => told.unwrap(),
                    // Whatever a cancelled wait would send: nothing is polled any more.
                }
            });
        });
        Self { die, thread }
    }

    /// Dies; the order to do so takes effect while its wait is still in the queue.
    pub(crate) fn die(self) {
        self.die.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

#[test]
fn dead_waiters_together_delay_the_next_living_one_by_five_seconds_at_most() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let (holder, waiter) = (server.client().await, server.client().await);
        let held = holder.mutex("line").with_lease(long()).lock().await.unwrap();
        let mut doomed = Vec::new();
        for number in 0..8 {
            doomed.push(Doomed::wait_for(&server, "line"));
            server.until_queued("line", number + 1).await;
        }
        let waiting = tokio::spawn(obtain(&waiter, "line", PROMPTLY * 6));
        server.until_queued("line", 9).await;
        doomed.into_iter().for_each(Doomed::die);
        assert_eq!(server.queued("line").await, 9, "the dead ones have said good-bye");
        let began = Instant::now();
        held.release().await.unwrap();
        // Liveness, one claim, one question.
        let bound = ms(3000) + ms(2000) + ms(900);
        let held = soon("the living one is granted", bound + SLACK, waiting).await.unwrap();
        println!("granted after {:?}", began.elapsed());
        held.release().await.unwrap();
        server.is_as_new(&waiter, "line").await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_waiters_of_a_lock_that_stays_held_are_gone_soon_and_those_who_live_stay() {
    let Some(server) = Server::start().await else { return };
    let (holder, waiter) = (server.client().await, server.client().await);
    let held = holder.mutex("gone").with_lease(long()).lock().await.unwrap();
    let doomed = [(); 3].map(|()| Doomed::wait_for(&server, "gone"));
    server.until_queued("gone", 3).await;
    let waiting = [(); 2].map(|()| {
        let obtained = obtain(&waiter, "gone", PROMPTLY * 6);
        tokio::spawn(async move { obtained.await.release().await })
    });
    server.until_queued("gone", 5).await;
    doomed.into_iter().for_each(Doomed::die);
    server.until_queued("gone", 2).await;
    assert!(held.is_held());
    held.release().await.unwrap();
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    server.is_as_new(&waiter, "gone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_line_that_nobody_watched_delays_a_newcomer_by_five_seconds_at_most() {
    let Some(server) = Server::start().await else { return };
    let (holder, newcomer) = (server.client().await, server.client().await);
    let held = holder.mutex("line").with_lease(long()).lock().await.unwrap();
    let mut doomed = Vec::new();
    for number in 0..6 {
        doomed.push(Doomed::wait_for(&server, "line"));
        server.until_queued("line", number + 1).await;
    }
    doomed.into_iter().for_each(Doomed::die);
    held.release().await.unwrap();
    // The first of the dead has its claim now, and nobody gives a sign of life.
    tokio::time::sleep(ms(2200)).await;
    let held = obtain(&newcomer, "line", ms(3000) + ms(2000) + ms(900) + SLACK).await;
    held.release().await.unwrap();
    server.is_as_new(&newcomer, "line").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_that_cancel_at_the_instant_of_the_hand_over_lose_nothing() {
    let Some(server) = Server::start().await else { return };
    let (holder, a, b) = (server.client().await, server.client().await, server.client().await);
    for round in 0..40 {
        let held = holder.mutex("line").with_lease(long()).lock().await.unwrap();
        let queue = QueuedTasks::up(&server, &[&a, &b], "line", 3).await;
        let released = tokio::spawn(held.release());
        tokio::time::sleep(Duration::from_micros(50 * (round % 20))).await;
        queue.cancel(0);
        released.await.unwrap().unwrap();
        let order = queue.order(PROMPTLY).await;
        assert!(order == [1, 2] || order == [0, 1, 2], "{order:?}");
    }
    server.is_as_new(&holder, "line").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_waiters_that_are_dropped_at_once_leave_nothing() {
    let Some(server) = Server::start().await else { return };
    let (holder, crowd) = (server.client().await, server.client().await);
    let held = holder.mutex("line").with_lease(long()).lock().await.unwrap();
    let waiting: Vec<_> = (0..1000).map(|_| tokio::spawn(obtain(&crowd, "line", PROMPTLY * 6))).collect();
    server.until_queued("line", 1000).await;
    let behind = tokio::spawn(obtain(&holder, "line", PROMPTLY * 6));
    server.until_queued("line", 1001).await;
    waiting.iter().for_each(JoinHandle::abort);
    server.until_queued("line", 1).await;
    held.release().await.unwrap();
    soon("who stood behind them is granted", HAND_OVER + SLACK, behind).await.unwrap().release().await.unwrap();
    server.is_as_new(&crowd, "line").await;
}

#[test]
fn a_server_that_was_not_asked_is_not_taken_for_silent() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let held = server.client().await.mutex("line").with_lease(long()).lock().await.unwrap();
        let mut options = hasty();
        (options.op_timeout, options.patience) = (ms(600), ms(600));
        let locks = RedisLocks::connect_with(RedisConfig::new(server.url()).with_client(options)).await.unwrap();
        let mutex = locks.mutex("line");
        // Longer than both, and over before a waiting client asks again.
        assert!(mutex.try_lock_for(ms(700)).await.unwrap().is_none());
        let waiting = tokio::spawn(async move { mutex.lock().await });
        server.until_queued("line", 1).await;
        tokio::time::sleep(ms(2000)).await;
        held.release().await.unwrap();
        soon("it waits in the queue until then", HAND_OVER + SLACK, waiting)
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
        server.is_as_new(&locks, "line").await;
    });
}

#[test]
fn a_waiter_whose_connection_dies_in_silence_keeps_its_turn_however_patient_its_client_is() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let (link, holder, behind) =
            (Proxy::to(server.address(), Protocol::Resp).unwrap(), server.client().await, server.client().await);
        let held = holder.mutex("line").with_lease(long()).lock().await.unwrap();
        let mut options = ClientOptions::default();
        (options.op_timeout, options.patience) = (ms(10_000), ms(60_000));
        let config = RedisConfig::new(format!("redis://{}", link.address())).with_client(options);
        let locks = configured(config).await.unwrap();
        let first = tokio::spawn(obtain(&locks, "line", PROMPTLY * 2));
        server.until_queued("line", 1).await;
        let second = tokio::spawn(obtain(&behind, "line", PROMPTLY * 2));
        server.until_queued("line", 2).await;
        // From its next sign of life on nothing passes over this connection, and nobody is told.
        let dead = link.inject(LinkFault::new(Toxic::Blackhole, Direction::Both).on_request(1, key("line")));
        dead.applied(PROMPTLY).await.unwrap();
        // For longer than a client without a sign keeps its place.
        tokio::time::sleep(ms(4500)).await;
        held.release().await.unwrap();
        let held = soon("who came first is granted", HAND_OVER + SLACK, first).await.unwrap();
        assert!(!second.is_finished(), "two are granted");
        held.release().await.unwrap();
        soon("and then who came second", HAND_OVER + SLACK, second).await.unwrap().release().await.unwrap();
        dead.heal().unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_of_the_client_that_releases_has_the_whole_lease_of_a_mutex_by_the_reply() {
    let Some(server) = Server::start().await else { return };
    let mutex = server.client().await.mutex("own").with_lease(long().with_auto_renew(false));
    // With and without another one behind it.
    for behind in [0, 1] {
        let held = mutex.lock().await.unwrap();
        let mut waiting = Vec::new();
        for number in 1..=1 + behind {
            let mutex = mutex.clone();
            waiting.push(tokio::spawn(async move { mutex.lock().await }));
            server.until_queued("own", number).await;
        }
        held.release().await.unwrap();
        let left = server.run(&["PTTL", &key("own")]).await.as_int().unwrap();
        assert!((20_000..=30_000).contains(&left), "{left} ms");
        for waiting in waiting {
            let next = soon("handed over", HAND_OVER + SLACK, waiting).await.unwrap().unwrap();
            assert!(next.remaining() > ms(20_000), "{:?}", next.remaining());
            next.release().await.unwrap();
        }
    }
}
