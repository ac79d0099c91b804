//! The counter of tokens that the locks of a batch share, and the queues that a batch looks at.

use crate::lock::{ALL, CHANNELS, Lock, server};
use crate::random_state::CLIENTS;
use crate::scripts::{
    ACQUIRE_BATCH, ACQUIRE_HOLDERS_BATCH, ACQUIRE_SHORT, HOLDERS, MUTEX, RELEASE_BATCH, RELEASE_HOLDERS_BATCH,
};

const COUNTER: &str = "counter";

/// The locks that a batch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Mutexes,
    Readers,
}

impl Of {
    fn mode(self) -> &'static str {
        if self == Self::Mutexes { "" } else { "R" }
    }
}

fn nonce(number: usize) -> String {
    format!("{number:032x}")
}

/// The keys of these locks, each with its queue.
fn with_queues(locks: &[String]) -> Vec<String> {
    locks.iter().flat_map(|lock| [lock.clone(), format!("{lock}:q")]).collect()
}

/// Takes these locks in one batch, each under the nonce of its place; returns the replies without the nonces.
async fn take(lock: &mut Lock, of: Of, locks: &[String]) -> Vec<String> {
    let nonces: Vec<_> = (0..locks.len()).map(nonce).collect();
    let texts: Vec<_> = nonces.iter().map(|nonce| format!("{nonce}:{}:{{}}:", CLIENTS[0])).collect();
    let (script, args) = match of {
        Of::Mutexes => (&*ACQUIRE_BATCH, texts.iter().flat_map(|text| vec![&**text, "20000"]).collect::<Vec<_>>()),
        Of::Readers => {
            let args = nonces.iter().flat_map(|nonce| vec![&**nonce, CLIENTS[0], "20000", "{}", "R"]);
            (&*ACQUIRE_HOLDERS_BATCH, args.collect())
        }
    };
    let keys = [with_queues(locks), vec![COUNTER.to_owned()]].concat();
    let reply = lock.run_at(script, keys, &args).await.unwrap().as_text().unwrap();
    assert_eq!(reply.lines().count(), locks.len(), "{reply:?}");
    let replies = reply.lines().zip(&nonces).map(|(line, nonce)| line.replacen(&**nonce, "", 1));
    replies.collect()
}

async fn release(lock: &mut Lock, of: Of, locks: &[String]) {
    let nonces: Vec<_> = (0..locks.len()).map(nonce).collect();
    let args: Vec<_> = nonces.iter().map(String::as_str).collect();
    let reply = match of {
        Of::Mutexes => lock.run_at(&RELEASE_BATCH, locks.to_vec(), &args).await,
        Of::Readers => lock.run_at(&RELEASE_HOLDERS_BATCH, with_queues(locks), &args).await,
    };
    let expected: String = nonces.iter().map(|nonce| format!("{nonce}+\n")).collect();
    assert_eq!(reply.unwrap().as_text(), Some(expected));
}

fn tokens(replies: &[String]) -> Vec<u64> {
    replies
        .iter()
        .map(|reply| reply.strip_prefix('+').unwrap_or_else(|| panic!("{replies:?}")).parse().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_free_lock_for_which_somebody_waits_is_taken_neither_alone_nor_in_a_batch() {
    let Some(server) = server().await else { return };
    for of in [Of::Mutexes, Of::Readers] {
        let mut lock = Lock::new(server.client().unwrap(), format!("{of:?}"));
        let scripts = if of == Of::Mutexes { &*MUTEX } else { &*HOLDERS };
        for (number, mode) in [(100, if of == Of::Readers { "W" } else { "" }), (101, of.mode())] {
            let args = [&*nonce(number), CLIENTS[1], "60000", "{}", "1", "", CHANNELS, "", mode];
            lock.run(&scripts.acquire, &ALL, &args).await.unwrap();
        }
        // The holder's lease ends, and nobody has let the waiter in yet.
        lock.command(&["DEL", &lock.key("")]).await;
        let both = [lock.key(""), format!("another {of:?}")];
        let replies = take(&mut lock, of, &both).await;
        assert!(replies[0] == "?" && replies[1].starts_with('+'), "{replies:?}");
        if of == Of::Mutexes {
            let me = format!("{}:{}:{{}}:", nonce(7), CLIENTS[0]);
            let reply = lock.run(&ACQUIRE_SHORT, &["", ":q", ":tokens"], &[&me, "20000"]).await.unwrap();
            assert_eq!(reply.as_text(), Some(format!("{}?", nonce(7))));
        }
        assert_eq!(lock.command(&["EXISTS", &both[0]]).await.as_int(), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_batches_grow_although_the_clock_is_set_back_or_stands_still() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "clock");
    let mut last = 0;
    for (round, back) in [0, 3_000_000, 1, 0, 0].into_iter().enumerate() {
        lock.now -= back;
        for of in [Of::Readers, Of::Mutexes] {
            let locks: Vec<_> = (0..5).map(|i| format!("{of:?} {i}")).collect();
            let tokens = tokens(&take(&mut lock, of, &locks).await);
            assert!(tokens.iter().all(|token| *token > last), "round {round}, {of:?}: {tokens:?} after {last}");
            last = *tokens.iter().max().unwrap();
            let counter = lock.command(&["GET", COUNTER]).await.as_text().unwrap();
            assert_eq!(counter, last.to_string(), "the counter knows the last");
            release(&mut lock, of, &locks).await;
        }
    }
    // An hour beyond the time when the clock has come to the last token, at least.
    let ahead = (last - lock.now) / 1000;
    let left = lock.command(&["PTTL", COUNTER]).await.as_int().unwrap();
    assert!(left >= i64::try_from(ahead + 3_600_000).unwrap(), "{left} ms, and it is {ahead} ms ahead");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_something_else_in_the_place_of_the_counter_a_batch_takes_nothing_and_answers_nobody() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "foreign");
    lock.command(&["RPUSH", COUNTER, "foreign"]).await;
    for of in [Of::Mutexes, Of::Readers] {
        let locks: Vec<_> = (0..3).map(|i| format!("{of:?} {i}")).collect();
        assert_eq!(take(&mut lock, of, &locks).await.concat(), "");
        assert_eq!(lock.command(&["DBSIZE"]).await.as_int(), Some(1));
    }
}
