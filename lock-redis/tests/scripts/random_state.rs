//! Mutexes in random states: something was done to each by chance, for the tests that compare two ways to do the next thing.
//! That each script does what it should is shown by the agreement of three sides, in `tests/simulation`.

use lock_testkit::SeededRng;

use crate::lock::{ALL, CHANNELS, Lock};
use crate::scripts::{ACQUIRE_SHORT, MUTEX, RELEASE_SHORT};

pub(crate) const CLIENTS: [&str; 4] = ["000000000000000a", "000000000000000b", "000000000000000c", "000000000000000d"];

/// A mutex, and those who have asked for it.
pub(crate) struct RandomState {
    pub(crate) lock: Lock,
    rng: SeededRng,
    /// Nonces and clients.
    pub(crate) attempts: Vec<(String, String)>,
}

impl RandomState {
    /// Comes from this seed, by so many steps.
    pub(crate) async fn after(mut lock: Lock, seed: u64, steps: u64) -> Self {
        lock.rename(format!("random{seed}"));
        let mut state = Self { lock, rng: SeededRng::new(seed), attempts: Vec::new() };
        for _ in 0..steps {
            state.step().await;
        }
        state
    }

    /// The nonce and the client of the holder.
    pub(crate) async fn holder(&mut self) -> Option<(String, String)> {
        let held = self.lock.look().await.0.held.remove("")?;
        let fields: Vec<_> = held.split(':').collect();
        Some((fields[0].to_owned(), fields[1].to_owned()))
    }

    async fn step(&mut self) {
        self.lock.now += self.rng.below(300);
        match self.rng.below(10) {
            0..=4 => self.ask().await,
            5 => self.release().await,
            6 => self.force().await,
            7 => self.cancel().await,
            8 => self.heartbeat().await,
            // At last nobody of those who wait counts as alive.
            _ => self.lock.now += self.rng.below(1_600_000),
        }
    }

    async fn ask(&mut self) {
        let nonce = format!("{:016x}{:016x}", self.rng.next_u64(), self.rng.next_u64());
        let client = self.rng.one_of(&CLIENTS).to_owned();
        self.attempts.push((nonce.clone(), client.clone()));
        if self.rng.once_in(3) {
            let me = format!("{nonce}:{client}:{{}}:");
            self.lock.run(&ACQUIRE_SHORT, &["", ":q", ":tokens"], &[&me, "60000"]).await.unwrap();
        } else {
            let args = [&*nonce, &client, "60000", "{}", "1", "", CHANNELS, "", ""];
            self.lock.run(&MUTEX.acquire, &ALL, &args).await.unwrap();
        }
    }

    async fn release(&mut self) {
        let Some((nonce, client)) = self.holder().await else { return };
        if self.rng.once_in(2) {
            let reply = self.lock.run(&RELEASE_SHORT, &[""], &[&nonce]).await.unwrap();
            if reply.as_text().unwrap().ends_with('+') {
                return;
            }
        }
        self.lock.run(&MUTEX.release, &ALL, &[&nonce, &client, CHANNELS, "", ""]).await.unwrap();
    }

    async fn force(&mut self) {
        let Some((nonce, _)) = self.holder().await else { return };
        self.lock.run(&MUTEX.force_release, &ALL, &[&nonce, CHANNELS, "", "why"]).await.unwrap();
    }

    async fn cancel(&mut self) {
        if !self.attempts.is_empty() {
            let (nonce, client) = self.rng.one_of(&self.attempts);
            self.lock.run(&MUTEX.cancel, &ALL, &[&nonce, &client, CHANNELS, "", ""]).await.unwrap();
        }
    }

    async fn heartbeat(&mut self) {
        let client = self.rng.one_of(&CLIENTS);
        self.lock.run(&MUTEX.heartbeat, &ALL, &[client, CHANNELS, "", "7", ""]).await.unwrap();
    }
}
