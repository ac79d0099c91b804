//! Random sequences of scripts on three sides at once: the specification, the real server and the simulated one.

mod holdings;
mod steps;

use std::collections::BTreeSet;
use std::time::Duration;

use lock_testkit_servers::resp::Value;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::model::{Holder, Model, Request};
use crate::pair::{Look, Pair};
use crate::requests::{Attempt, CHANNELS, CLIENTS, Kind};
use crate::scripts::{self, Script};

use holdings::Holdings;

/// One lock on all three sides.
pub(crate) struct Sequence<'a> {
    pair: &'a mut Pair,
    model: Model,
    kind: Kind,
    rng: StdRng,
    /// The keys of every script, in their order, and the one under which pushes are noted.
    keys: [String; 6],
    /// Everything that was ever asked for.
    attempts: Vec<Attempt>,
    /// Those of mutexes that were left, under the nonces by which they were.
    left: Vec<Request>,
    /// Pushes that must come, and the nonces of grants that were told once by a push or a release.
    told: BTreeSet<String>,
    /// The nonces of grants that were the answer to their own request.
    heard: BTreeSet<String>,
    done: Vec<String>,
}

impl<'a> Sequence<'a> {
    pub(crate) fn new(pair: &'a mut Pair, kind: fn(&mut StdRng) -> Kind, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let kind = kind(&mut rng);
        let keys = ["", ":q", ":w", ":tokens", ":x", ":noted"].map(|ending| format!("{{{kind:?}{seed}}}{ending}"));
        let model = Model::at(pair.now.as_micros() as u64);
        let (told, heard) = (BTreeSet::new(), BTreeSet::new());
        Self { pair, model, kind, rng, keys, attempts: Vec::new(), left: Vec::new(), told, heard, done: Vec::new() }
    }

    /// Runs it; panics where two of the three differ.
    pub(crate) async fn run(mut self) {
        for _ in 0..self.rng.random_range(1..=50) {
            if self.rng.random_ratio(1, 2) {
                let next = self.model.now + self.rng.random_range(1..=300);
                self.set_time(next);
            }
            self.step().await;
            self.compare().await;
        }
        self.end().await;
    }

    async fn step(&mut self) {
        match self.rng.random_range(0..20) {
            0..=3 => self.ask_anew(false).await,
            4..=8 => self.ask_anew(true).await,
            9 => self.ask_again().await,
            10..=12 => self.release().await,
            13 => self.cancel().await,
            14 => self.renew().await,
            15 if self.kind != Kind::Mutex => self.change().await,
            15 => self.leave().await,
            16 => self.force().await,
            17 => self.heartbeat().await,
            _ => self.pass().await,
        }
    }

    fn set_time(&mut self, now: u64) {
        self.pair.now = Duration::from_micros(now);
        self.model.set_time(now);
        self.forget_former_grants();
    }

    /// A nonce that is granted again is told again.
    fn forget_former_grants(&mut self) {
        for nonces in [&mut self.told, &mut self.heard] {
            nonces.retain(|nonce| nonce.contains(' ') || self.model.holder(nonce).is_some());
        }
    }

    /// Time passes; often to the very millisecond in which something ends, now and then back.
    async fn pass(&mut self) {
        let (now, back) = (self.model.now, self.rng.random_ratio(1, 5));
        if back {
            // What has ended is to be cleared away before: an end that lies ahead again is not over.
            self.heartbeat().await;
            self.compare().await;
        }
        let ahead = self.model.ends().into_iter().filter(|end| *end > now / 1000).collect::<Vec<_>>();
        let end = ahead.choose(&mut self.rng).copied();
        let next = match (end, self.rng.random_range(0..8)) {
            _ if back => now - [500_000, 1_400_000, 4_000_000].choose(&mut self.rng).unwrap(),
            (Some(end), 0..=3) => {
                // One ms before the end, in it, or after it.
                let ms = end + self.rng.random_range(0..3) - 1;
                now.max(ms * 1000 + self.rng.random_range(0..1000))
            }
            (_, 4) => now + 4_000_000,
            (_, 5) if self.rng.random_ratio(1, 4) => now + 30_000_000,
            _ => now + self.rng.random_range(0..1_600_000),
        };
        self.note(format!("at {next}"));
        self.set_time(next);
    }

    /// Runs a script on both servers, which must say the same.
    async fn ask_both(&mut self, script: &'static Script, keys: &[usize], args: &[&str]) -> Value {
        let keys: Vec<_> = keys.iter().chain(&[5]).map(|key| self.keys[*key].clone()).collect();
        let outcome = self.pair.run(script, &keys.iter().map(String::as_str).collect::<Vec<_>>(), args).await;
        outcome.unwrap_or_else(|difference| panic!("{difference}{self}"))
    }

    /// Returns what both servers hold, which must be the same.
    async fn look(&mut self) -> Holdings {
        let looked = self.pair.look(&self.keys).await;
        let looked: Vec<Look> = looked.unwrap_or_else(|difference| panic!("{difference}{self}"));
        let cleared = self.pair.command(&["DEL", &self.keys[5]]).await;
        cleared.unwrap_or_else(|difference| panic!("{difference}{self}"));
        Holdings::of(looked)
    }

    /// The servers hold what the specification says.
    async fn compare(&mut self) {
        let found = self.look().await;
        let now = self.model.now / 1000;
        assert_eq!(found.holders(now), self.holders(), "{self}");
        assert_eq!(found.queue, self.model.queue(), "{self}");
        assert_eq!(found.waiters.is_empty(), found.queue.is_empty(), "{found:?} {self}");
        let both = found.queue.iter().find(|(member, _)| self.model.holder(&member[..32]).is_some());
        assert_eq!(both, None, "it holds and waits {self}");
        let alive = self.model.alive_until();
        assert_eq!(found.alive_until(alive.keys()), alive, "{found:?} {self}");
        // Of grants that have all ended the next run clears the key away.
        let [lock, queue] = self.model.left().map(|left| left.map(|left| left as i64));
        assert!(lock.is_none() || found.lock_left == lock, "{:?}, not {lock:?} {self}", found.lock_left);
        assert_eq!(found.queue_left, queue, "{self}");
        if self.kind == Kind::Mutex {
            self.has_its_mark(&found);
        }
        for most in [2, 1000] {
            self.inspect(&found, most).await;
        }
        // Not always: it clears away what has ended.
        if self.kind != Kind::Mutex && self.rng.random_ratio(1, 4) {
            let used = holdings::texts(self.ask_both(&scripts::PERMITS_HELD, &[0, 1, 2, 3, 4], &[]).await);
            let weights = self.model.holders.iter().map(|holder| holder.mode.weight()).sum::<u64>().to_string();
            assert_eq!(used, [self.keys[0].clone(), weights, "0".to_owned()], "{self}");
        }
        self.check_pushes(&found);
    }

    async fn inspect(&mut self, found: &Holdings, most: usize) {
        let script = &self.kind.scripts().inspect;
        let inspected = self.ask_both(script, &[0, 1, 2, 3, 4], &[&most.to_string()]).await.into_parts();
        let [lock, _, held, others, queue, entries, more] = inspected.try_into().unwrap();
        let listed = found.queue.len().min(most);
        let entry = |(member, _): &(String, u64)| found.waiters[&member[..32]].clone();
        assert_eq!(
            (lock.as_text(), holdings::texts(queue).len() / 2, holdings::texts(entries), more.as_int()),
            (
                Some(self.keys[0].clone()),
                listed,
                found.queue.iter().take(most).map(entry).collect(),
                Some((found.queue.len() - listed) as i64)
            ),
            "{self}"
        );
        if self.kind != Kind::Mutex {
            let is_grant = |field: &&str| !field.starts_with('#');
            let all = found.held.keys().map(String::as_str).filter(is_grant).count();
            let fields = holdings::texts(held);
            let listed = fields.iter().step_by(2).map(String::as_str).filter(is_grant).count();
            assert_eq!(listed as i64 + others.as_int().unwrap(), all as i64, "{self}");
        }
    }

    /// The holders that the specification has.
    fn holders(&self) -> BTreeSet<Holder> {
        self.model.holders.iter().cloned().collect()
    }

    /// The short release sees by the lock that somebody waits.
    fn has_its_mark(&self, found: &Holdings) {
        if !found.queue.is_empty() {
            assert!(found.held.values().all(|held| held.ends_with('!')), "{found:?} {self}");
        }
    }

    /// Every grant that was handed over was told once: by a reply to its client, or by a push on its channel.
    fn check_pushes(&mut self, found: &Holdings) {
        for push in &found.pushed {
            let (channel, message) = push.split_once(' ').unwrap();
            if let Some(grant) = message.strip_prefix('G') {
                let [nonce, token, claim] = grant.split(':').collect::<Vec<_>>().try_into().unwrap();
                let holder = self.model.holder(nonce).unwrap_or_else(|| panic!("{push} {self}"));
                let left = holder.end - self.model.now / 1000;
                assert_eq!(channel, format!("{CHANNELS}{}", holder.client), "{self}");
                assert_eq!([token, claim], [&*holder.token.to_string(), &*left.to_string()], "{self}");
                assert!(self.told.insert(nonce.to_owned()), "{nonce} was told twice {self}");
            } else {
                assert!(self.told.remove(push), "{push} {self}");
            }
        }
        let untold = self.told.iter().find(|told| told.contains(' '));
        assert_eq!(untold, None, "{self}");
        self.forget_former_grants();
        for nonce in self.model.holders.iter().map(|holder| &holder.nonce) {
            assert!(self.told.contains(nonce) || self.heard.contains(nonce), "{nonce} was not told {self}");
        }
    }

    fn note(&mut self, what: String) {
        self.done.push(what);
    }

    /// Everybody leaves; what remains is the last token, and why the last grant was freed by force.
    async fn end(mut self) {
        let attempts = self.attempts.iter().map(|attempt| attempt.request.clone());
        for request in attempts.chain(self.left.clone()).collect::<Vec<_>>() {
            self.model.cancel(&request.nonce, &request.client);
            let args = [&*request.nonce, &request.client, CHANNELS, "", ""];
            self.ask_both(&self.kind.scripts().cancel, &[0, 1, 2, 3, 4], &args).await;
        }
        assert!(self.model.holders.is_empty() && self.model.queue().is_empty(), "{self}");
        let found = self.look().await;
        assert_eq!((found.held.len(), found.queue.len(), found.waiters.len()), (0, 0, 0), "{found:?} {self}");
    }
}

impl std::fmt::Display for Sequence<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\n{}\nafter\n  {}", self.keys[0], self.done.join("\n  "))
    }
}
