//! The short ways into the queue and out of it of the read-write lock and the semaphore: each does what the long way would have done, or
//! nothing.

use lock_testkit::SeededRng;
use lock_testkit_servers::resp::Value;

use crate::lock::{ALL, CHANNELS, Data, Lock, server, texts};
use crate::random_state::CLIENTS;
use crate::scripts::HOLDERS;

const ENQUEUE: &str = concat!(
    include_str!("../../src/store/scripts/holders/acquire_short.lua"),
    include_str!("../../src/store/scripts/holders/enqueue_short.lua")
);
const HAND_OVER: &str = concat!(
    include_str!("../../src/store/scripts/holders/release_short.lua"),
    include_str!("../../src/store/scripts/holders/handover_short.lua")
);

/// So long that Redis keeps a holder's record in a hash table, whose order tells nothing.
const INFO: &str =
    "{\"name\":\"a name that is longer than sixty-four bytes, as those of a host, a process and a task are\"}";

/// Two copies of a lock: one that is taken the short way, one that is taken the long way.
struct Twins {
    short: Lock,
    long: Lock,
    /// The number of times that each of the short scripts decided.
    decided: [u32; 2],
}

impl Twins {
    /// Runs the short part of a script on one copy of this lock and the rest on the other one; both must hold the same then, or the short
    /// part must have left everything to the rest. Returns the short reply.
    async fn compare(&mut self, lock: &mut Lock, [short, long]: [(&str, &'static str); 2], args: &[&str]) -> Value {
        let now = lock.now + 10;
        (self.short.now, self.long.now) = (now, now);
        lock.copy_to(&self.short).await;
        lock.copy_to(&self.long).await;
        let before: Data = self.short.look().await.0;
        let reply = self.short.run_part(short.0, short.1, &ALL, args).await.unwrap();
        let what = format!("{} {args:?}: {reply} on {before:?}", short.1);
        if reply == Value::Nil {
            assert_eq!(self.short.look().await.0, before, "{what}");
            return reply;
        }
        let long_reply = self.long.run_part(long.0, long.1, &ALL, args).await.unwrap();
        assert_eq!(texts(reply.clone()), texts(long_reply), "{what}");
        let ((short, short_ends), (long, long_ends)) = (self.short.look().await, self.long.look().await);
        assert!((short_ends - long_ends).abs() < 2000, "{short_ends} ms and {long_ends} ms: {what}");
        assert_eq!(short, long, "{what}");
        reply
    }

    async fn enqueue(&mut self, lock: &mut Lock, nonce: &str, client: &str, mode: &str) {
        let long = HOLDERS.acquire.code.strip_prefix(ENQUEUE).unwrap();
        let args = [nonce, client, "20000", INFO, "1", "", CHANNELS, "", mode];
        let reply = self.compare(lock, [(ENQUEUE, "short enqueue"), (long, "long enqueue")], &args).await;
        // A grant is the short acquisition's.
        self.decided[0] += u32::from(reply != Value::Nil && texts(reply)[1] == "0");
    }

    async fn hand_over(&mut self, lock: &mut Lock, nonce: &str, client: &str) {
        let long = HOLDERS.release.code.strip_prefix(HAND_OVER).unwrap();
        let args = [nonce, client, CHANNELS, ""];
        let queued = !lock.look().await.0.queue.is_empty();
        let reply = self.compare(lock, [(HAND_OVER, "short hand-over"), (long, "long hand-over")], &args).await;
        self.decided[1] += u32::from(queued && reply != Value::Nil);
    }
}

/// A lock in a random state, and the modes in which it is asked for.
struct RandomState<'a> {
    lock: &'a mut Lock,
    modes: &'static [&'static str],
    rng: SeededRng,
    attempts: Vec<(String, &'static str)>,
}

impl RandomState<'_> {
    async fn step(&mut self) {
        self.lock.now += self.rng.below(300_000);
        match self.rng.below(11) {
            0..=5 => {
                let (nonce, client) = (format!("{:032x}", self.rng.next_u64()), self.rng.one_of(&CLIENTS));
                let mode = self.rng.one_of(self.modes);
                let ttl = if self.rng.once_in(3) { "900" } else { "60000" };
                let args = [&*nonce, client, ttl, INFO, "1", "", CHANNELS, "", mode];
                self.lock.run(&HOLDERS.acquire, &ALL, &args).await.unwrap();
                self.attempts.push((nonce, client));
            }
            6 | 7 => {
                let Some((nonce, client)) = self.some_holder().await else { return };
                self.lock.run(&HOLDERS.release, &ALL, &[&nonce, &client, CHANNELS, "", ""]).await.unwrap();
            }
            8 => {
                let client = self.rng.one_of(&CLIENTS);
                self.lock.run(&HOLDERS.heartbeat, &ALL, &[client, CHANNELS, "", "7", ""]).await.unwrap();
            }
            9 => {
                let Some((nonce, _)) = self.some_holder().await else { return };
                self.lock.run(&HOLDERS.renew, &ALL, &[&nonce, "60000", &self.lock.key(":x")]).await.unwrap();
            }
            // At last nobody of those who wait counts as alive.
            _ => self.lock.now += self.rng.below(1_600_000),
        }
    }

    /// The nonce and the client of one that holds.
    async fn some_holder(&mut self) -> Option<(String, String)> {
        let held = self.lock.look().await.0.held;
        let (nonce, record) = held.into_iter().find(|(field, _)| !field.starts_with('#'))?;
        Some((nonce, record.split(':').nth(2).unwrap().to_owned()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_short_ways_of_the_other_kinds_do_what_the_long_ones_do_or_nothing() {
    let Some(server) = server().await else { return };
    let lock = |name| Lock::new(server.client().unwrap(), name);
    for modes in [&["W"] as &'static [&'static str], &["R", "W"], &["P1/1"], &["P1/3"], &["P1/3", "P2/3", "P3/3"]] {
        let mut twins = Twins { short: lock("short"), long: lock("long"), decided: [0; 2] };
        for seed in 1..=60 {
            let mut lock = lock("");
            lock.rename(format!("random{}{seed}", modes.concat()));
            let mut state = RandomState { lock: &mut lock, modes, rng: SeededRng::new(seed), attempts: Vec::new() };
            for _ in 0..1 + seed % 14 {
                state.step().await;
            }
            let holder = state.some_holder().await;
            let (attempts, mut rng) = (state.attempts, state.rng);
            for (nonce, client) in
                attempts.iter().map(|(nonce, client)| (nonce.clone(), (*client).to_owned())).chain(holder)
            {
                twins.hand_over(&mut lock, &nonce, &client).await;
                // Its request is sent once more, as it was.
                twins.enqueue(&mut lock, &nonce, &client, rng.one_of(modes)).await;
            }
            for client in CLIENTS {
                twins.enqueue(&mut lock, &format!("{seed:032x}"), client, rng.one_of(modes)).await;
            }
        }
        assert!(twins.decided.iter().all(|times| *times >= 10), "too few short ways of {modes:?}: {:?}", twins.decided);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_released_although_something_else_is_in_the_place_of_its_queue() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "foreign queue");
    let (nonce, client) = (format!("{:032x}", 1), CLIENTS[0]);
    lock.run(&HOLDERS.acquire, &ALL, &[&nonce, client, "20000", INFO, "", "", CHANNELS, "", "W"]).await.unwrap();
    lock.command(&["RPUSH", &lock.key(":q"), "foreign"]).await;
    let reply = lock.run(&HOLDERS.release, &ALL, &[&nonce, client, CHANNELS, "", ""]).await;
    assert_eq!(reply.map(texts), Ok(vec![nonce, "1".to_owned()]));
    assert_eq!(lock.command(&["EXISTS", &lock.key("")]).await, Value::Int(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_look_at_the_queue_is_told_so_and_releases_nothing() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "no right");
    let (nonce, client) = (format!("{:032x}", 1), CLIENTS[0]);
    lock.run(&HOLDERS.acquire, &ALL, &[&nonce, client, "20000", INFO, "", "", CHANNELS, "", "W"]).await.unwrap();
    lock.command(&["ACL", "SETUSER", "default", "-zrange"]).await;
    let refused = lock.run(&HOLDERS.release, &ALL, &[&nonce, client, CHANNELS, "", ""]).await;
    // In words that differ from version to version.
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(lock.command(&["HEXISTS", &lock.key(""), &nonce]).await, Value::Int(1));
}
