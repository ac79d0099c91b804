//! A random sequence on both servers that does more than the specification knows of: foreign data under the keys, keys that
//! foreign clients share, records, several mutexes in one script.

use std::time::Duration;

use lock_testkit_servers::resp::Value;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::EPOCH;
use crate::model::{Mode, Request};
use crate::pair::Pair;
use crate::requests::{Attempt, CHANNELS, Kind};
use crate::scripts::{self, Script};

/// A lock on which things are done at random.
pub(crate) struct Course<'a> {
    pair: &'a mut Pair,
    rng: StdRng,
    kind: Kind,
    /// Those of every script, in their order: lock, queue, waiters, tokens, forced; where pushes are noted; the record; lock and
    /// queue of another mutex.
    keys: [String; 9],
    /// `1` if foreign clients use the lock's key too.
    shared: &'static str,
    attempts: Vec<Attempt>,
    /// The ms for which each key lived on when it was last looked at.
    left: Vec<i64>,
}

impl<'a> Course<'a> {
    pub(crate) fn new(pair: &'a mut Pair, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let kind = Kind::any(&mut rng);
        let keys = ["", ":q", ":w", ":tokens", ":x", ":noted", ":r", ":other", ":other:q"]
            .map(|ending| format!("{{{seed}}}{ending}"));
        let shared = if kind == Kind::Mutex && rng.random_ratio(1, 4) { "1" } else { "" };
        pair.now = EPOCH;
        Self { pair, rng, kind, keys, shared, attempts: Vec::new(), left: Vec::new() }
    }

    /// Runs it; where the two differ, if they do.
    pub(crate) async fn run(mut self) -> Result<(), String> {
        for step in 0..self.rng.random_range(10..60) {
            let outcome = self.step().await;
            outcome.map_err(|difference| format!("step {step} of {:?}: {difference}", self.kind))?;
            let looked = self.pair.look(&self.keys).await.map_err(|what| format!("after step {step}: {what}"))?;
            self.left = looked.iter().map(|look| look.left).collect();
            self.pair.command(&["DEL", &self.keys[5]]).await?;
        }
        Ok(())
    }

    async fn step(&mut self) -> Result<(), String> {
        if self.rng.random_ratio(1, 2) {
            self.pair.now += Duration::from_micros(self.rng.random_range(0..3000));
        }
        match self.rng.random_range(0..40) {
            0..=13 => self.ask_anew().await,
            14..=16 => self.ask_again().await,
            17..=20 => self.release().await,
            21 | 22 => self.cancel().await,
            23 | 24 => self.renew().await,
            25 if self.kind == Kind::Mutex => self.leave().await,
            25 => self.change().await,
            26 => self.force().await,
            27 | 28 => self.heartbeat().await,
            29 if self.kind != Kind::Mutex && self.rng.random() => {
                self.all(&scripts::PERMITS_HELD, &[]).await.map(drop)
            }
            29 if self.kind == Kind::Mutex && self.rng.random() => self.record().await,
            29 => self.all(&self.kind.scripts().inspect, &["2"]).await.map(drop),
            30 => self.meddle().await,
            31 | 32 if self.kind == Kind::Mutex => self.record().await,
            _ => {
                self.pass();
                Ok(())
            }
        }
    }

    async fn ask_anew(&mut self) -> Result<(), String> {
        let mut attempt = Attempt::any(self.kind, &mut self.rng);
        if let Mode::Permits { limit, .. } = &mut attempt.request.mode {
            // Now and then one that is of another opinion.
            *limit += u64::from(self.rng.random_ratio(1, 30));
        }
        self.attempts.push(attempt);
        self.ask(self.attempts.len() - 1).await
    }

    /// A copy of an earlier request, or a waiter that asks again.
    async fn ask_again(&mut self) -> Result<(), String> {
        if self.attempts.is_empty() {
            return Ok(());
        }
        let number = self.rng.random_range(0..self.attempts.len());
        self.ask(number).await
    }

    async fn ask(&mut self, number: usize) -> Result<(), String> {
        let Attempt { request, ticket, .. } = self.attempts[number].clone();
        if self.kind == Kind::Mutex && self.rng.random_ratio(1, 3) {
            let me = format!("{}:{}:{{}}:", request.nonce, request.client);
            let (keys, tokens) = (self.keys[..2].to_vec(), [self.keys[3].clone()]);
            let (ttl, other) = (request.ttl.to_string(), self.keys[7..].to_vec());
            if self.rng.random() {
                let keys = [&keys[..], &tokens].concat();
                return self.run_with(&scripts::ACQUIRE_SHORT, &keys, &[&me, &ttl]).await.map(drop);
            }
            // Another mutex, and this one once more under another nonce: each as if by itself.
            let rival = format!("{:032x}:{}:{{}}:", self.rng.random::<u128>(), request.client);
            let keys = [&other[..], &keys, &other, &keys, &tokens].concat();
            let args = [&*rival, &ttl, &me, &ttl, &me, &ttl, &rival, &ttl];
            return self.run_with(&scripts::ACQUIRE_BATCH, &keys, &args).await.map(drop);
        }
        if ![Kind::Mutex, Kind::Reentrant].contains(&self.kind) && self.shared.is_empty() && self.rng.random_ratio(1, 3)
        {
            // Twice, and once more under another nonce: each as if by itself.
            let keys: Vec<_> = [0, 1, 0, 1, 0, 1, 3].map(|key| self.keys[key].clone()).to_vec();
            let rival = format!("{:032x}", self.rng.random::<u128>());
            let (ttl, mode) = (request.ttl.to_string(), request.mode.text());
            let args = [&request.nonce, &rival, &request.nonce]
                .map(|nonce| [nonce.as_str(), &request.client, &ttl, "{}", &mode]);
            return self.run_with(&scripts::ACQUIRE_HOLDERS_BATCH, &keys, &args.concat()).await.map(drop);
        }
        // The only one of several.
        if [Mode::Mutex, Mode::Write].contains(&request.mode) && self.shared.is_empty() && self.rng.random_ratio(1, 5) {
            let (ttl, mode) = (request.ttl.to_string(), request.mode.text());
            return self.all(&scripts::SEVERAL, &[&request.nonce, &request.client, &ttl, "{}", &mode]).await.map(drop);
        }
        let stays = if self.rng.random_ratio(2, 3) { "1" } else { "" };
        let Request { nonce, client, mode, ttl } = &request;
        let (ttl, mode) = (ttl.to_string(), mode.text());
        let ticket = ticket.map_or(String::new(), |ticket| ticket.to_string());
        // "0" says that it has asked before, and heard nothing.
        let ticket = if self.rng.random_ratio(1, 4) { "0" } else { &*ticket };
        let args = [nonce, client, &*ttl, "{}", stays, ticket, CHANNELS, self.shared, &mode];
        let reply = self.all(&self.kind.scripts().acquire, &args).await?.into_parts();
        if let Some(ticket) = reply.get(3).and_then(Value::as_text).filter(|_| stays == "1") {
            self.attempts[number].ticket = ticket.parse().ok().filter(|ticket| *ticket > 0);
        }
        Ok(())
    }

    async fn release(&mut self) -> Result<(), String> {
        let Some(Request { nonce, client, .. }) = self.a_request() else { return Ok(()) };
        if self.kind == Kind::Mutex && self.rng.random_ratio(1, 2) {
            let keys = [self.keys[0].clone()];
            if self.rng.random() {
                return self.run_with(&scripts::RELEASE_SHORT, &keys, &[&nonce]).await.map(drop);
            }
            let other = self.a_request().map_or_else(String::new, |other| other.nonce);
            let keys = [&self.keys[7..8], &keys, &self.keys[7..8], &keys].concat();
            return self.run_with(&scripts::RELEASE_BATCH, &keys, &[&nonce, &other, &other, &nonce]).await.map(drop);
        }
        if self.kind != Kind::Mutex && self.shared.is_empty() && self.rng.random_ratio(1, 3) {
            let other = self.a_request().map_or_else(String::new, |other| other.nonce);
            let keys: Vec<_> = [0, 1].repeat(3).into_iter().map(|key| self.keys[key].clone()).collect();
            return self.run_with(&scripts::RELEASE_HOLDERS_BATCH, &keys, &[&nonce, &other, &nonce]).await.map(drop);
        }
        let args = [&*nonce, &client, CHANNELS, self.shared, ""];
        self.all(&self.kind.scripts().release, &args).await.map(drop)
    }

    async fn cancel(&mut self) -> Result<(), String> {
        let Some(Request { nonce, client, .. }) = self.a_request() else { return Ok(()) };
        let args = [&*nonce, &client, CHANNELS, self.shared, ""];
        self.all(&self.kind.scripts().cancel, &args).await.map(drop)
    }

    async fn renew(&mut self) -> Result<(), String> {
        let Some(Request { nonce, .. }) = self.a_request() else { return Ok(()) };
        let ttl = *[1, 100, 3000, 20_000].choose(&mut self.rng).unwrap();
        let (keys, forced) = ([self.keys[0].clone()], self.keys[4].clone());
        let args = [&*nonce, &ttl.to_string(), &forced];
        self.run_with(&self.kind.scripts().renew, &keys, &args).await.map(drop)
    }

    /// Has a mutex end after a time, under another nonce: always the same one, as a repetition has it.
    async fn leave(&mut self) -> Result<(), String> {
        let Some(Request { nonce, .. }) = self.a_request() else { return Ok(()) };
        let (left, time): (String, _) =
            (nonce.chars().rev().collect(), *["1", "700", "20000"].choose(&mut self.rng).unwrap());
        let (keys, forced) = ([self.keys[0].clone()], self.keys[4].clone());
        self.run_with(&scripts::LEAVE, &keys, &[&nonce, &left, time, &forced]).await.map(drop)
    }

    async fn change(&mut self) -> Result<(), String> {
        let Some(Request { nonce, client, mode, .. }) = self.a_request() else { return Ok(()) };
        let mode = self.kind.changed(mode, &mut self.rng).text();
        self.all(&scripts::CHANGE_MODE, &[&nonce, &client, CHANNELS, "", &mode]).await.map(drop)
    }

    async fn force(&mut self) -> Result<(), String> {
        let Some(Request { nonce, .. }) = self.a_request() else { return Ok(()) };
        self.all(&self.kind.scripts().force_release, &[&nonce, CHANNELS, self.shared, "why"]).await.map(drop)
    }

    async fn heartbeat(&mut self) -> Result<(), String> {
        let Some(Request { client, nonce, .. }) = self.a_request() else { return Ok(()) };
        if self.kind == Kind::Mutex && self.rng.random_ratio(1, 3) {
            let keys = [self.keys[0].clone(), self.keys[2].clone()];
            let holder = self.a_request().filter(|_| self.rng.random()).map_or_else(String::new, |other| other.nonce);
            let args = [&client, CHANNELS, "7", "", &nonce, &holder[..holder.len().min(16)]];
            return self.run_with(&scripts::HEARTBEAT_SHORT, &keys, &args).await.map(drop);
        }
        let own = self.attempts.iter().map(|attempt| &attempt.request).filter(|request| request.client == client);
        let nonces: Vec<_> = own.map(|request| request.nonce.clone()).collect();
        let args = [&*client, CHANNELS, self.shared, "7", "1"].into_iter().chain(nonces.iter().map(String::as_str));
        self.all(&self.kind.scripts().heartbeat, &args.collect::<Vec<_>>()).await.map(drop)
    }

    /// Reads the record beside the lock, or writes it with a token of about this time.
    async fn record(&mut self) -> Result<(), String> {
        let record = self.keys[6].clone();
        let Some(Request { nonce, .. }) = self.a_request().filter(|_| self.rng.random_ratio(3, 4)) else {
            return self.run_with(&scripts::READ_RECORD, &[record], &["?"]).await.map(drop);
        };
        let token = format!("{:016}", self.pair.now.as_micros() as u64 + self.rng.random_range(0..3));
        let (has_data, data) = *[("", ""), ("1", ""), ("1", "data: 17")].choose(&mut self.rng).unwrap();
        let retention = *["1", "700", "60000"].choose(&mut self.rng).unwrap();
        let keys = [self.keys[0].clone(), record];
        self.run_with(&scripts::RECORD, &keys, &[&nonce, &token, retention, has_data, data]).await.map(drop)
    }

    /// Somebody else puts something in our place, or takes it away.
    async fn meddle(&mut self) -> Result<(), String> {
        let key = self.keys.choose(&mut self.rng).unwrap();
        let command: &[&str] = match self.rng.random_range(0..4) {
            0 => &["SET", key, "foreign", "NX", "PX", "700"],
            1 => &["RPUSH", key, "foreign"],
            2 => &["PEXPIRE", key, "50"],
            _ => &["DEL", key],
        };
        self.pair.command(command).await.map(drop)
    }

    /// Time passes: often to the very millisecond in which a key ends, the one before or the one after; now and then back.
    fn pass(&mut self) {
        let ends: Vec<_> = self.left.iter().filter_map(|left| u64::try_from(*left).ok()).collect();
        let now = self.pair.now;
        self.pair.now = match (ends.choose(&mut self.rng), self.rng.random_range(0..10)) {
            (_, 0) => now.saturating_sub(Duration::from_millis(self.rng.random_range(0..5000))).max(EPOCH),
            (Some(left), 1..=6) => {
                let end = now.as_millis() as u64 + left + self.rng.random_range(0..3);
                Duration::from_micros((end - 1) * 1000 + self.rng.random_range(0..1000))
            }
            _ => now + Duration::from_micros(self.rng.random_range(0..4_000_000)),
        };
    }

    fn a_request(&mut self) -> Option<Request> {
        self.attempts.choose(&mut self.rng).map(|attempt| attempt.request.clone())
    }

    /// With all keys of the lock.
    async fn all(&mut self, script: &'static Script, args: &[&str]) -> Result<Value, String> {
        let keys: Vec<_> = self.keys[..5].to_vec();
        self.run_with(script, &keys, args).await
    }

    async fn run_with(&mut self, script: &'static Script, keys: &[String], args: &[&str]) -> Result<Value, String> {
        let keys: Vec<_> = keys.iter().chain([&self.keys[5]]).map(String::as_str).collect();
        self.pair.run(script, &keys, args).await
    }
}
