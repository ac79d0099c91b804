//! Late requests, and marks from another time: copies of earlier requests, and marks of a clock that was set back since.

use lock_redis::LockName;

use crate::server::{COUNTER, PROMPTLY, SLACK, Server, key, long, ms, soon};

#[tokio::test(flavor = "multi_thread")]
async fn late_copies_of_requests_never_shorten_an_extended_lease() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    let held = locks.mutex("late").with_lease(long()).lock().await.unwrap();
    held.extend(ms(120_000)).await.unwrap();
    let (lock, nonce) = (key("late"), held.grant_id().to_string());
    let forced = format!("{lock}:x");
    let me = format!("{nonce}:0123456789abcdef:{{}}:");
    let [queue, waiters] = ["q", "w"].map(|ending| format!("{lock}:{ending}"));
    let acquire = concat!(
        include_str!("../../src/store/scripts/base.lua"),
        include_str!("../../src/store/scripts/mutex/text.lua"),
        include_str!("../../src/store/scripts/mutex/one.lua"),
        include_str!("../../src/store/scripts/acquire_free.lua"),
    );
    let copies: [&[&str]; 3] = [
        &["EVAL", include_str!("../../src/store/scripts/mutex/renew.lua"), "1", &lock, &nonce, "1000", &forced],
        &[
            "EVAL",
            include_str!("../../src/store/scripts/mutex/acquire_short.lua"),
            "3",
            &lock,
            &queue,
            COUNTER,
            &me,
            "1000",
        ],
        &[
            "EVAL",
            acquire,
            "5",
            &lock,
            &queue,
            &waiters,
            COUNTER,
            &forced,
            &nonce,
            "0123456789abcdef",
            "1000",
            "{}",
            "1",
            "",
            "lock:client:",
            "",
            "1000",
            "",
        ],
    ];
    for copy in copies {
        server.run(copy).await;
        let left = server.run(&["PTTL", &lock]).await.as_int().unwrap();
        assert!(left > 100_000, "{left} ms are left");
    }
    held.release().await.unwrap();
    server.is_as_new(&locks, "late").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moment_left_to_foreign_clients_ends_although_the_clock_was_set_back() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    let mutex = locks.mutex(LockName::from_key("late").unwrap());
    server.say("SET late foreign NX PX 60000").await;
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    let waiters = "lock:key:{late}:late:w";
    crate::server::eventually("it waits", PROMPTLY, async || {
        (server.run(&["EXISTS", waiters]).await.as_int() == Some(1)).then_some(())
    })
    .await;
    // A mark of an hour ahead, as a clock leaves it that is set back by an hour.
    let now = server.say("TIME").await.into_parts()[0].as_text().unwrap().parse::<u64>().unwrap();
    server.run(&["HSET", waiters, "#yield", &((now + 3600) * 1000).to_string()]).await;
    server.say("DEL late").await;
    let held = soon("the lock is granted", ms(2000) + SLACK, waiting).await.unwrap();
    held.release().await.unwrap();
}
