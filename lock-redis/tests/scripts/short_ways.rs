//! The short ways of the mutex: each does what the long way would have done, or nothing.

use lock_testkit_servers::resp::Value;

use crate::lock::{ALL, CHANNELS, Data, Lock, server, texts};
use crate::random_state::{CLIENTS, RandomState};
use crate::scripts::{ACQUIRE_SHORT, MUTEX, RELEASE_SHORT};

const JOIN: &str = include_str!("../../src/store/scripts/mutex/enqueue_short.lua");
const HAND_OVER: &str = include_str!("../../src/store/scripts/mutex/handover_short.lua");

/// Two copies of a lock: one that is taken the short way, one that is taken the long way.
struct Twins {
    short: Lock,
    long: Lock,
    before: Data,
    /// The number of times that each of the short scripts decided.
    decided: [u32; 4],
}

impl Twins {
    async fn of(&mut self, lock: &mut Lock) {
        let now = lock.now + 10;
        (self.short.now, self.long.now) = (now, now);
        lock.copy_to(&self.short).await;
        lock.copy_to(&self.long).await;
        self.before = self.short.look().await.0;
    }

    /// Both hold the same now; but for when the last sign was given, of which a join need not tell.
    async fn are_alike(&mut self, way: usize, what: &str) {
        let ((mut short, short_ends), (mut long, long_ends)) = (self.short.look().await, self.long.look().await);
        assert!((short_ends - long_ends).abs() < 2000, "{short_ends} ms and {long_ends} ms: {what}");
        short.waiters.remove("#seen");
        long.waiters.remove("#seen");
        assert_eq!(short, long, "{what}");
        self.decided[way] += 1;
    }

    async fn did_nothing(&mut self, what: &str) {
        assert_eq!(self.short.look().await.0, self.before, "{what}");
    }

    async fn take(&mut self, nonce: &str, client: &str) {
        let me = format!("{nonce}:{client}:{{}}:");
        let short =
            self.short.run(&ACQUIRE_SHORT, &["", ":q", ":tokens"], &[&me, "20000"]).await.unwrap().as_text().unwrap();
        let answer = short.strip_prefix(nonce).unwrap();
        let what = format!("take by {nonce}: {answer}");
        if answer == "-" || answer == "?" {
            return self.did_nothing(&what).await;
        }
        let long = self.long.run(&MUTEX.acquire, &ALL, &ask(nonce, client, false)).await.unwrap();
        assert_eq!(texts(long), [nonce, "1", &answer[1..], "20000"], "{what}");
        self.are_alike(0, &what).await;
    }

    async fn join(&mut self, nonce: &str, client: &str, asked_before: bool) {
        let mut args = ask(nonce, client, true);
        args[5] = if asked_before { "0" } else { "" };
        let short = self.short.run_part(JOIN, "join", &ALL, &args).await.unwrap();
        let what = format!("join by {nonce}: {short}");
        if short == Value::Nil {
            return self.did_nothing(&what).await;
        }
        let long = MUTEX.acquire.code.strip_prefix(JOIN).unwrap();
        let (short, long) = (texts(short), texts(self.long.run_part(long, "no join", &ALL, &args).await.unwrap()));
        // The third tells when to look again; joining a client that looks anyway need not know.
        assert_eq!((&short[..2], &short[3..]), (&long[..2], &long[3..]), "{what}");
        self.are_alike(1, &what).await;
    }

    async fn drop(&mut self, nonce: &str, client: &str) {
        let short = self.short.run(&RELEASE_SHORT, &[""], &[nonce]).await.unwrap().as_text().unwrap();
        let what = format!("drop by {nonce}: {short}");
        if short.ends_with('?') {
            return self.did_nothing(&what).await;
        }
        let long = self.long.run(&MUTEX.release, &ALL, &[nonce, client, CHANNELS, ""]).await.unwrap();
        assert_eq!(texts(long), [nonce, "1"], "{what}");
        self.are_alike(2, &what).await;
    }

    async fn hand_over(&mut self, nonce: &str, client: &str) {
        let args = [nonce, client, CHANNELS, ""];
        let short = self.short.run_part(HAND_OVER, "hand over", &ALL, &args).await.unwrap();
        let what = format!("hand-over by {nonce}: {short}");
        if short == Value::Nil {
            return self.did_nothing(&what).await;
        }
        let long = MUTEX.release.code.strip_prefix(HAND_OVER).unwrap();
        let long = self.long.run_part(long, "no hand-over", &ALL, &args).await.unwrap();
        assert_eq!(texts(short), texts(long), "{what}");
        self.are_alike(3, &what).await;
    }
}

fn ask<'a>(nonce: &'a str, client: &'a str, waits: bool) -> [&'a str; 9] {
    [nonce, client, "20000", "{}", if waits { "1" } else { "" }, "", CHANNELS, "", ""]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_short_ways_of_a_mutex_do_what_the_long_ones_do_or_nothing() {
    let Some(server) = server().await else { return };
    let lock = |name| Lock::new(server.client().unwrap(), name);
    let before = lock("empty").look().await.0;
    let mut twins = Twins { short: lock("short"), long: lock("long"), before, decided: [0; 4] };
    for seed in 1..=120 {
        let mut state = RandomState::after(lock(""), seed, 1 + seed % 12).await;
        let newcomers = CLIENTS.iter().map(|client| (format!("{seed:032x}"), (*client).to_owned()));
        let mut others: Vec<_> = state.holder().await.into_iter().chain(newcomers).collect();
        others.extend(state.attempts.first().into_iter().chain(state.attempts.last()).cloned());
        for (nonce, client) in others {
            let asked_before = state.attempts.iter().any(|(earlier, _)| *earlier == nonce);
            twins.of(&mut state.lock).await;
            twins.take(&nonce, &client).await;
            twins.of(&mut state.lock).await;
            twins.join(&nonce, &client, asked_before).await;
            if asked_before {
                // Its request is sent once more, as it was.
                twins.of(&mut state.lock).await;
                twins.join(&nonce, &client, false).await;
            }
            twins.of(&mut state.lock).await;
            twins.drop(&nonce, &client).await;
            twins.of(&mut state.lock).await;
            twins.hand_over(&nonce, &client).await;
        }
    }
    assert!(twins.decided.iter().all(|times| *times >= 20), "too few short ways were taken: {:?}", twins.decided);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_joins_a_queue_once_more_is_told_of_the_place_that_it_has() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "twice");
    let client = CLIENTS[0];
    for nonce in [1, 2] {
        lock.run(&MUTEX.acquire, &ALL, &ask(&format!("{nonce:032x}"), client, true)).await.unwrap();
    }
    let nonce = format!("{:032x}", 3);
    let mut tickets = Vec::new();
    for _ in 0..2 {
        lock.now += 1000;
        let reply = lock.run_part(JOIN, "join", &ALL, &ask(&nonce, client, true)).await.unwrap();
        tickets.push(texts(reply)[3].parse::<u64>().unwrap());
        let queue = lock.look().await.0.queue;
        assert_eq!(queue.last(), Some(&(format!("{nonce}:{client}"), tickets[0])));
    }
    assert_eq!(tickets[0], tickets[1]);
}
