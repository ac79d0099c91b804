//! The cost of locks at the server, in commands of clients.

use std::time::Instant;

use futures_util::future::join_all;
use lock_redis::LeaseOptions;

use crate::server::{HAND_OVER, PROMPTLY, SLACK, Server, about_time, calls, eventually, long, ms, obtain, runs, soon};

#[tokio::test(flavor = "multi_thread")]
async fn a_free_lock_costs_one_command_to_take_and_one_to_release() {
    let Some(server) = Server::start().await else { return };
    let mutex = server.client().await.mutex("cost").with_lease(long());
    // The first ones carry the text of the scripts.
    mutex.lock().await.unwrap().release().await.unwrap();
    server.say("CONFIG RESETSTAT").await;
    for _ in 0..20 {
        mutex.lock().await.unwrap().release().await.unwrap();
        mutex.try_lock().await.unwrap().unwrap().release().await.unwrap();
    }
    let stats = server.say("INFO commandstats").await.as_text().unwrap();
    let by_itself = match server.own_delete().await {
        Some(name) => calls(&server, name).await,
        None => 0,
    };
    // A server that compares and deletes by itself needs no script for a release.
    let expected = if server.own_delete().await.is_some() { (40, 40) } else { (80, 0) };
    assert_eq!((runs(&server).await, by_itself), expected, "{stats}");
    assert!(!stats.contains("cmdstat_eval:"), "a script was sent with its text again: {stats}");
}

#[test]
fn fifty_that_wait_for_one_lock_cost_two_commands_a_second_at_most() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let (holder, locks) = (server.client().await, server.client().await);
        let held = holder.mutex("cost").with_lease(long()).lock().await.unwrap();
        let waiting: Vec<_> = (0..50)
            .map(|_| {
                let mutex = locks.mutex("cost").with_lease(long());
                tokio::spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() })
            })
            .collect();
        server.until_queued("cost", 50).await;
        let (before, began) = (runs(&server).await, Instant::now());
        let asked = eventually("they give signs of life", PROMPTLY, async || {
            let asked = runs(&server).await - before;
            (asked >= 6).then_some(asked)
        })
        .await;
        // One more, as the first may have been due already.
        assert!(asked as f64 <= 2.0 * began.elapsed().as_secs_f64() + 1.0, "{asked} commands in {:?}", began.elapsed());
        let before = runs(&server).await;
        held.release().await.unwrap();
        let granted = join_all(waiting.into_iter().map(|waiting| async { waiting.await.unwrap() }));
        soon("all of them in turn", HAND_OVER * 5 + SLACK, granted).await;
        let each = (runs(&server).await - before) as f64 / 50.0;
        assert!(each <= 4.0, "{each} commands per hand-over");
        server.is_as_new(&holder, "cost").await;
    });
}

#[test]
fn one_that_waits_for_a_lock_that_its_own_client_holds_costs_one_command_in_each_period() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let locks = server.client().await;
        // It is not renewed meanwhile.
        let held = locks.mutex("cost").with_lease(LeaseOptions::new(ms(120_000))).lock().await.unwrap();
        let waiting = tokio::spawn(obtain(&locks, "cost", PROMPTLY * 6));
        server.until_queued("cost", 1).await;
        let (before, began) = (runs(&server).await, Instant::now());
        let asked = eventually("it gives signs of life", PROMPTLY * 2, async || {
            let asked = runs(&server).await - before;
            (asked >= 10).then_some(asked)
        })
        .await;
        // A period is 0.71 s at least. One more, as the first may have been due already, and one for the first way in.
        assert!(
            asked as f64 <= began.elapsed().as_secs_f64() / 0.71 + 2.0,
            "{asked} commands in {:?}",
            began.elapsed()
        );
        held.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
        server.is_as_new(&locks, "cost").await;
    });
}
