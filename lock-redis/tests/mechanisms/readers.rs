//! Readers and writers: the dead among them, batches, and a downgrade.

use std::time::Instant;

use futures_util::future::join_all;
use lock_redis::{ErrorKind, LeaseOptions};

use crate::queue::Doomed;
use crate::server::{HAND_OVER, PROMPTLY, SLACK, Server, about_time, long, ms, runs, soon};

const KEY: &str = "lock:rwlock:{readers}";

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_reader_delays_a_writer_by_its_own_lease_however_busy_the_others_are() {
    let Some(server) = Server::start().await else { return };
    let (a, b) = (server.client().await, server.client().await);
    let dead = LeaseOptions::new(ms(2000)).with_auto_renew(false);
    let mut living = a.rwlock("readers").with_lease(long()).read().await.unwrap();
    std::mem::forget(a.rwlock("readers").with_lease(dead).read().await.unwrap());
    let died = Instant::now();
    // The others come, go, and renew.
    for _ in 0..8 {
        let next = b.rwlock("readers").with_lease(long()).read().await.unwrap();
        next.extend(ms(31_000)).await.unwrap();
        living.release().await.unwrap();
        living = next;
        tokio::time::sleep(ms(50)).await;
    }
    let writer = tokio::spawn({
        let lock = a.rwlock("readers").with_lease(long());
        async move { lock.write().await.unwrap() }
    });
    server.until_in_line(KEY, 1).await;
    assert!(b.rwlock("readers").try_read().await.unwrap().is_none(), "a reader passed the writer");
    living.release().await.unwrap();
    let left = ms(2000).saturating_sub(died.elapsed());
    soon("the writer is let in", left + HAND_OVER + SLACK, writer).await.unwrap().release().await.unwrap();
    server.has_nothing_left().await;
}

#[test]
fn a_writer_that_died_in_line_delays_the_readers_behind_it_by_five_seconds_at_most() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let (holder, reader) = (server.client().await, server.client().await);
        let held = holder.rwlock("readers").with_lease(long()).read().await.unwrap();
        let dead = Doomed::new(&server, |locks| Box::pin(async move { drop(locks.rwlock("readers").write().await) }));
        server.until_in_line(KEY, 1).await;
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let lock = reader.rwlock("readers").with_lease(long());
                tokio::spawn(async move { lock.read().await.unwrap() })
            })
            .collect();
        server.until_in_line(KEY, 4).await;
        dead.die();
        let together = soon("readers beside a reader", ms(3000) + ms(2000) + ms(900) + SLACK, join_all(readers)).await;
        assert!(held.is_held());
        held.release().await.unwrap();
        for reader in together {
            reader.unwrap().release().await.unwrap();
        }
        server.has_nothing_left().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_lets_the_readers_in_front_in_and_keeps_the_writer_behind_them_out() {
    let Some(server) = Server::start().await else { return };
    let (a, b) = (server.client().await, server.client().await);
    // Without memory too: nothing new is kept.
    for memory in ["0", "1"] {
        let writer = a.rwlock("readers").with_lease(long()).write().await.unwrap();
        let token = writer.fencing_token();
        let mut readers = Vec::new();
        for number in 0..3 {
            let lock = [&a, &b][number % 2].rwlock("readers").with_lease(long());
            readers.push(tokio::spawn(async move { lock.read().await.unwrap() }));
            server.until_in_line(KEY, number + 1).await;
        }
        let lock = b.rwlock("readers").with_lease(long());
        let next = tokio::spawn(async move { lock.write().await.unwrap() });
        server.until_in_line(KEY, 4).await;
        server.say(&format!("CONFIG SET maxmemory {memory}")).await;
        let reader = writer.downgrade().await.unwrap();
        server.say("CONFIG SET maxmemory 0").await;
        assert_eq!(reader.fencing_token(), token);
        let readers = soon("the readers are let in", HAND_OVER + SLACK, join_all(readers)).await;
        assert!(reader.is_held() && !next.is_finished());
        assert!(a.rwlock("readers").try_read().await.unwrap().is_none(), "a reader passed the writer");
        for reader in readers {
            reader.unwrap().release().await.unwrap();
        }
        assert!(!next.is_finished());
        reader.release().await.unwrap();
        soon("the writer is let in", HAND_OVER + SLACK, next).await.unwrap().release().await.unwrap();
        server.has_nothing_left().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_readers_in_line_are_let_in_together_for_three_commands_each() {
    let Some(server) = Server::start().await else { return };
    let (a, b) = (server.client().await, server.client().await);
    let writer = a.rwlock("readers").with_lease(long()).write().await.unwrap();
    // What the server has not seen before is sent twice: a release that hands over, a renewal, a claim.
    writer.extend(ms(31_000)).await.unwrap();
    let lock = || b.rwlock("scripts").with_lease(long());
    let (held, next) = (lock().write().await.unwrap(), lock());
    let next = tokio::spawn(async move { next.read().await.unwrap() });
    server.until_in_line("lock:rwlock:{scripts}", 1).await;
    held.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    server.say("CONFIG RESETSTAT").await;
    let began = Instant::now();
    let readers: Vec<_> = (0..200)
        .map(|number| {
            let lock = [&a, &b][number % 2].rwlock("readers").with_lease(long());
            tokio::spawn(async move { lock.read().await.unwrap() })
        })
        .collect();
    server.until_in_line(KEY, 200).await;
    writer.release().await.unwrap();
    let readers = soon("all are let in", HAND_OVER + SLACK, join_all(readers)).await;
    let readers: Vec<_> = readers.into_iter().map(Result::unwrap).collect();
    assert!(readers.iter().all(|reader| reader.is_held()));
    // Entering, claiming, and the renewal of a claim that came late.
    let claimed = readers.iter().map(|reader| async {
        crate::server::eventually("claimed", PROMPTLY, async || (reader.remaining() > ms(5000)).then_some(())).await;
    });
    join_all(claimed).await;
    let runs = runs(&server).await as f64;
    // And, on a slow machine, two signs of life a second of each client while they come in.
    let signs = 2.0 * 2.0 * began.elapsed().as_secs_f64();
    assert!(runs <= 3.0 * 200.0 + signs, "{runs} commands for 200 grants, {signs} of them signs of life");
    join_all(readers.into_iter().map(|reader| async { reader.release().await.unwrap() })).await;
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_whose_downgrade_was_not_answered_is_no_writer_any_more() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    let writer = locks.rwlock("doubt").with_lease(long()).write().await.unwrap();
    let grant = writer.grant_id();
    server.stop().unwrap();
    let failed = writer.downgrade().await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Indeterminate);
    // The server may carry it out, and let readers in.
    assert!(!failed.guard.is_held() && failed.guard.remaining().is_zero());
    let work = failed.guard.while_held(async {}).await;
    assert_eq!(work.unwrap_err().error.kind(), ErrorKind::Indeterminate);
    server.cont().unwrap();
    let mut guard = failed.guard;
    let reader = loop {
        match guard.downgrade().await {
            Ok(reader) => break reader,
            Err(failed) => guard = failed.guard,
        }
    };
    assert!(reader.is_held() && reader.grant_id() == grant);
    let other = server.client().await.rwlock("doubt").try_read().await.unwrap().unwrap();
    for reader in [reader, other] {
        reader.release().await.unwrap();
    }
    server.has_nothing_left().await;
}
