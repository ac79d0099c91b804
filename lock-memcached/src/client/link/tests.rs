//! A link to a server that never answers, and to one whose name cannot be looked up for a while.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;

use async_trait::async_trait;
use futures_util::future::join_all;
use lock_testkit::testing::eventually;
use tokio::sync::watch;

use super::*;
use crate::network::{Stream, SystemNetwork};

/// A socket at which nobody ever answers.
async fn socket() -> (tokio::net::TcpListener, std::net::SocketAddr) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap();
    (listener, place)
}

#[tokio::test]
async fn a_connection_whose_time_has_passed_is_not_kept_beside_as_many_as_there_may_be() {
    let (_server, place) = socket().await;
    let link = Link::new(
        crate::url::parse(&format!("memcached://{place}")).unwrap(),
        1,
        Duration::from_secs(60),
        Arc::new(SystemNetwork),
    );
    let late = link.for_steps(SystemClock.now().plus(Duration::from_millis(10))).await.unwrap();
    let next = link.for_steps(link.deadline()).await.expect("its right is another's by then");
    drop(next);
    drop(late);
    assert_eq!(link.pool().idle.len(), 1);
}

#[tokio::test]
async fn what_has_no_time_left_is_not_sent_and_told_so() {
    let (server, place) = socket().await;
    let link = Link::new(
        crate::url::parse(&format!("memcached://{place}")).unwrap(),
        1,
        Duration::from_secs(60),
        Arc::new(SystemNetwork),
    );
    drop(link.for_steps(link.deadline()).await.unwrap());
    let mut late = link.for_steps(SystemClock.now().plus(Duration::from_millis(10))).await.unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let answer = late.run_one(Command::Forget { key: crate::store::keys::writer("a") }).await;
    assert!(answer.failure().is_some_and(|failure| !failure.is_unknown), "{answer:?}");
    drop(late);
    assert_eq!(link.pool().idle.len(), 1, "the connection is in order");
    drop(link);
    let (mut accepted, mut received) = (server.accept().await.unwrap().0, Vec::new());
    tokio::io::AsyncReadExt::read_to_end(&mut accepted, &mut received).await.unwrap();
    assert!(received.is_empty(), "{received:?}");
}

#[tokio::test]
async fn a_server_that_turns_a_connection_away_has_carried_nothing_out() {
    let (server, place) = socket().await;
    let link = Link::new(
        crate::url::parse(&format!("memcached://{place}")).unwrap(),
        1,
        Duration::from_secs(60),
        Arc::new(SystemNetwork),
    );
    let turns_away = async {
        let mut accepted = server.accept().await.unwrap().0;
        let _ = tokio::io::AsyncReadExt::read(&mut accepted, &mut [0; 512]).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut accepted, b"ERROR Too many open connections\r\n").await.unwrap();
    };
    let forget = || Command::Forget { key: crate::store::keys::writer("a") };
    let (answers, ()) = tokio::join!(link.run(vec![forget(), forget()]), turns_away);
    for answer in answers {
        let CommandAnswer::Failed(failure) = answer else { panic!("{answer:?}") };
        let error = link.error(failure, Phase::Release);
        assert!(error.kind() == lock_core::ErrorKind::Unavailable && error.is_definite(), "{error}");
    }
    assert!(link.pool().idle.is_empty());
}

#[tokio::test]
async fn a_connection_is_kept_for_whoever_was_handed_the_right_to_it() {
    let (_server, place) = socket().await;
    let link = Link::new(
        crate::url::parse(&format!("memcached://{place}")).unwrap(),
        2,
        Duration::from_secs(60),
        Arc::new(SystemNetwork),
    );
    let mut used = Vec::new();
    for _ in 0..2 {
        used.push(link.for_steps(link.deadline()).await.unwrap());
    }
    let mut waiting = [(); 2].map(|()| Box::pin(link.for_steps(link.deadline())));
    for waits in &mut waiting {
        assert!(futures_util::FutureExt::now_or_never(waits.as_mut()).is_none());
    }
    drop(used);
    assert_eq!(link.pool().idle.len(), 2, "one was closed before the right that was handed over was used");
    for waits in waiting {
        waits.await.unwrap();
    }
    assert_eq!(link.pool().opened, 2);
}

#[tokio::test]
async fn whatever_is_open_to_a_former_place_is_not_used_again() {
    let ((_first, before), (_second, after)) = (socket().await, socket().await);
    let address = crate::url::parse(&format!("memcached://{before}")).unwrap();
    let link = Link::new(address, 4, Duration::from_secs(5), Arc::new(SystemNetwork));
    let number = |used: &InUse<'_>| used.pipe.as_ref().map(Connection::number);
    let (idle, in_use) =
        (link.for_steps(link.deadline()).await.unwrap(), link.for_steps(link.deadline()).await.unwrap());
    let first = number(&idle);
    drop(idle);
    let idle = link.for_steps(link.deadline()).await.unwrap();
    assert_eq!(number(&idle), first, "it is used again while the server is where it was");
    drop(idle);
    // The name is resolved to another place, and the server is reached there.
    link.pool().places.resolved(SystemClock.now(), vec![after]);
    let moved = link.newly_opened(link.deadline()).await.unwrap();
    assert_eq!(link.pool().moves, 1);
    assert_eq!(link.pool().idle.len(), 0);
    drop(in_use);
    assert!(link.pool().idle.is_empty(), "it leads to the former place");
    drop(moved);
    assert_eq!(link.pool().idle.len(), 1);
}

/// The time after which something is known not to happen.
const LONG: Duration = Duration::from_secs(60);

/// Ends the server that is where the name leads to at first, and waits until the link has reached it where it is then.
async fn follows(link: &Link, first: tokio::net::TcpListener) {
    link.resolve(link.deadline()).await.unwrap();
    drop(link.for_steps(link.deadline()).await.unwrap());
    drop(first);
    eventually("the server is reached where it is now", LONG, async || {
        link.for_steps(link.deadline()).await.is_ok() && link.pool().moves == 1
    })
    .await;
}

/// A network in which the first lookup ends at once, and each later one when it is told what it finds.
#[derive(Debug)]
struct SlowNames {
    first: SocketAddr,
    asked: AtomicUsize,
    found: watch::Sender<Option<SocketAddr>>,
}

#[async_trait]
impl Network for SlowNames {
    async fn resolve(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        if self.asked.fetch_add(1, Ordering::Relaxed) == 0 {
            return Ok(vec![self.first]);
        }
        let mut found = self.found.subscribe();
        let found = *found.wait_for(Option::is_some).await.unwrap();
        Ok(found.into_iter().collect())
    }

    async fn connect(&self, place: SocketAddr) -> io::Result<Box<dyn Stream>> {
        SystemNetwork.connect(place).await
    }
}

#[tokio::test]
async fn a_name_is_looked_up_few_times_at_once_whoever_waits_for_it_and_however_long() {
    const MANY: usize = 64;
    let (server, first) = socket().await;
    let names = Arc::new(SlowNames { first, asked: AtomicUsize::new(0), found: watch::Sender::new(None) });
    let link = Link::new(
        crate::url::parse("memcached://locks.invalid").unwrap(),
        MANY,
        Duration::from_millis(50),
        names.clone(),
    );
    link.resolve(link.deadline()).await.unwrap();
    drop(link.for_steps(link.deadline()).await.unwrap());
    drop(server);
    let asked = || names.asked.load(Ordering::Relaxed);
    for _ in 0..2 {
        eventually("the name is to be looked up", LONG, async || {
            // What is known is believed for a second each time.
            let is_due = link.pool().places.to_try(SystemClock.now()).is_none();
            drop(join_all((0..MANY).map(|_| link.for_steps(link.deadline()))).await);
            is_due
        })
        .await;
        assert!((2..=1 + lookup::MOST).contains(&asked()), "lookups that nobody can end pile up");
    }
    // Whoever began it has gone.
    let (_server, moved) = socket().await;
    names.found.send_replace(Some(moved));
    eventually("what it found is known", LONG, async || link.for_steps(link.deadline()).await.is_ok()).await;
    assert!(asked() <= 1 + lookup::MOST);
    assert_eq!(link.pool().moves, 1);
}

/// A network in which the first lookup ends at once, the second one panics, and the third one never ends.
#[derive(Debug)]
struct BrokenNames {
    first: SocketAddr,
    moved: SocketAddr,
    asked: AtomicUsize,
}

#[async_trait]
impl Network for BrokenNames {
    async fn resolve(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        match self.asked.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(vec![self.first]),
            1 => panic!("no thread for a lookup, as the test wants it"),
            2 => std::future::pending().await,
            _ => Ok(vec![self.moved]),
        }
    }

    async fn connect(&self, place: SocketAddr) -> io::Result<Box<dyn Stream>> {
        SystemNetwork.connect(place).await
    }
}

#[tokio::test]
async fn a_lookup_that_panics_and_one_that_never_ends_keep_nobody_from_the_next_one() {
    let ((server, first), (_moved, moved)) = (socket().await, socket().await);
    let names = Arc::new(BrokenNames { first, moved, asked: AtomicUsize::new(0) });
    let url = crate::url::parse("memcached://locks.invalid").unwrap();
    let link = Link::new(url, 4, Duration::from_millis(50), names.clone());
    follows(&link, server).await;
    assert_eq!(names.asked.load(Ordering::Relaxed), 4);
}

/// A network whose lookups take longer than half an operation timeout, but for the first one.
#[derive(Debug)]
struct LateNames {
    first: SocketAddr,
    moved: SocketAddr,
    asked: AtomicUsize,
}

#[async_trait]
impl Network for LateNames {
    async fn resolve(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        if self.asked.fetch_add(1, Ordering::Relaxed) == 0 {
            return Ok(vec![self.first]);
        }
        // As the system does: in a thread, which goes on when nobody asks for what it finds.
        let found = tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(1500)));
        found.await.map(|()| vec![self.moved]).map_err(io::Error::other)
    }

    async fn connect(&self, place: SocketAddr) -> io::Result<Box<dyn Stream>> {
        SystemNetwork.connect(place).await
    }
}

#[tokio::test]
async fn what_a_lookup_finds_after_its_callers_have_gone_is_for_the_next_one() {
    let ((server, first), (_moved, moved)) = (socket().await, socket().await);
    let names = Arc::new(LateNames { first, moved, asked: AtomicUsize::new(0) });
    let url = crate::url::parse("memcached://locks.invalid").unwrap();
    let link = Link::new(url, 4, Duration::from_secs(2), names.clone());
    follows(&link, server).await;
    assert_eq!(names.asked.load(Ordering::Relaxed), 2);
}
