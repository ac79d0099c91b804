//! Random sequences of scripts, compared with the model after each step.

use std::collections::{BTreeMap, BTreeSet};

use lock_testkit::SeededRng;
use lock_testkit_servers::resp::Value;

use crate::lock::{ALL, CHANNELS, Data, Lock, Real, server, texts};
use crate::model::{Asked, Holder, KEEP, Mode, Model, Request};
use crate::scripts::{self, Scripts};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mutex,
    Reentrant,
    ReadWrite,
    Semaphore,
}

/// A lock at the server and its model.
pub(crate) struct Sequence {
    pub(crate) lock: Lock,
    pub(crate) model: Model,
    kind: Kind,
    limit: u64,
    pub(crate) rng: SeededRng,
    /// Everything that was ever asked for, and the last ticket that it was told.
    pub(crate) requests: Vec<(Request, Option<u64>)>,
    real: Real,
    /// Pushes that must come, and the nonces of grants that were told once by a push or a release.
    told: BTreeSet<String>,
    /// The nonces of grants that were the answer to their own request.
    heard: BTreeSet<String>,
    done: Vec<String>,
}

/// ms in which a test has looked at what is about to end, on a busy machine too.
const SAFE: u64 = 8000;

pub(crate) const CLIENTS: [&str; 4] = ["000000000000000a", "000000000000000b", "000000000000000c", "000000000000000d"];

impl Sequence {
    /// Nothing is held yet.
    pub(crate) fn of_mutexes(lock: Lock, seed: u64) -> Self {
        Self::new(lock, Kind::Mutex, seed)
    }

    fn new(mut lock: Lock, kind: Kind, seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        lock.rename(format!("{kind:?}{seed}"));
        let model = Model::at(lock.now);
        let limit = 1 + rng.below(5);
        let (real, told, heard) = (Real::start(), BTreeSet::new(), BTreeSet::new());
        Self { lock, model, kind, limit, rng, requests: Vec::new(), real, told, heard, done: Vec::new() }
    }

    fn scripts(&self) -> &'static Scripts {
        if self.kind == Kind::Mutex { &scripts::MUTEX } else { &scripts::HOLDERS }
    }

    /// One random step, and the comparison.
    pub(crate) async fn step(&mut self) {
        if self.rng.once_in(2) {
            self.lock.now += 1 + self.rng.below(300);
            self.model.set_time(self.lock.now);
        }
        match self.rng.below(20) {
            0..=3 => self.ask_anew(false).await,
            4..=8 => self.ask_anew(true).await,
            9 => self.ask_again().await,
            10..=12 => self.release().await,
            13 => self.cancel().await,
            14 => self.renew().await,
            15 if self.kind != Kind::Mutex => self.change().await,
            15 | 16 => self.force().await,
            17 => self.heartbeat().await,
            _ => self.pass().await,
        }
        self.compare().await;
    }

    fn a_mode(&mut self) -> Mode {
        match self.kind {
            Kind::Mutex => Mode::Mutex,
            Kind::Reentrant => Mode::Owner(self.rng.below(3) as u8),
            Kind::ReadWrite => self.rng.one_of(&[Mode::Read, Mode::Read, Mode::Write]),
            Kind::Semaphore => Mode::Permits { permits: 1 + self.rng.below(self.limit), limit: self.limit },
        }
    }

    async fn ask_anew(&mut self, waits: bool) {
        let nonce = format!("{:016x}{:016x}", self.rng.next_u64(), self.rng.next_u64());
        let client = self.rng.one_of(&CLIENTS).to_owned();
        // Longer than what is safe: a lock's key ends by the server's own time, however late the next step comes.
        let (mode, ttl) = (self.a_mode(), self.rng.one_of(&[9000, 12_000, 20_000, 60_000]));
        let request = Request { nonce, client, mode, ttl, claim: 9000 };
        self.requests.push((request, None));
        self.ask(self.requests.len() - 1, waits).await;
    }

    /// A copy of an earlier request, or a waiter that enters again, perhaps at its old place.
    async fn ask_again(&mut self) {
        if !self.requests.is_empty() {
            let number = self.rng.below(self.requests.len() as u64) as usize;
            let waits = self.rng.once_in(2);
            self.ask(number, waits).await;
        }
    }

    async fn ask(&mut self, number: usize, waits: bool) {
        let (request, ticket) = self.requests[number].clone();
        self.note(format!("ask {request:?}, waits: {waits}, ticket: {ticket:?}"));
        if self.kind == Kind::Mutex && self.rng.once_in(2) && self.took(&request).await {
            return;
        }
        let Request { nonce, client, mode, ttl, claim } = &request;
        let (ttl, claim, mode) = (ttl.to_string(), claim.to_string(), mode.text());
        let stays = if waits { "1" } else { "" };
        let place = ticket.map_or(String::new(), |ticket| ticket.to_string());
        let args = [&**nonce, client, &ttl, "{}", stays, &place, CHANNELS, "", &claim, &mode];
        let reply = texts(self.lock.run(&self.scripts().acquire, &ALL, &args).await.unwrap());
        let first_end = self.model.holders.iter().map(|holder| holder.end).min();
        let asked = self.model.ask(&request, waits, ticket);
        let last = self.model.last_token;
        assert_eq!(reply[0], *nonce, "{self}");
        match asked {
            Asked::Granted { token, for_ms } => {
                assert_eq!(reply[1..], ["1".to_owned(), token.to_string(), for_ms.to_string()], "{self}");
                self.heard.insert(nonce.clone());
            }
            Asked::Refused => assert!(reply[1] == "0" && reply[3..] == ["0", "1", "0"], "{reply:?} {self}"),
            Asked::Queued { ticket, known } => {
                self.requests[number].1 = Some(ticket);
                let known = u8::from(known).to_string();
                assert_eq!(reply[1], "0", "{self}");
                assert_eq!(reply[3..], [ticket.to_string(), known, last.to_string()], "{self}");
            }
        }
        if reply[1] == "0" && first_end.is_some() && self.kind != Kind::Mutex {
            self.is_no_later_than_the_first_end(&reply[2]);
        }
    }

    /// Waiters look again when a lease may have ended: never after the first end.
    fn is_no_later_than_the_first_end(&self, said: &str) {
        let first = self.model.holders.iter().map(|holder| holder.end - self.model.now / 1000).min();
        let said: i64 = said.parse().unwrap();
        assert!(first.is_none_or(|first| (0..=first as i64).contains(&said)), "{said} ms of {first:?} {self}");
    }

    /// The short way to a free mutex; whether it decided.
    async fn took(&mut self, request: &Request) -> bool {
        let me = format!("{}:{}:{{}}:", request.nonce, request.client);
        let args = [&*me, &request.ttl.to_string()];
        let reply = self.lock.run(&scripts::ACQUIRE_SHORT, &["", ":f"], &args).await.unwrap().as_text().unwrap();
        let (nonce, answer) = reply.split_at(32);
        assert_eq!(nonce, request.nonce, "{self}");
        if let Some(token) = answer.strip_prefix('+') {
            let asked = self.model.ask(request, false, None);
            let token = token.parse().unwrap();
            assert_eq!(asked, Asked::Granted { token, for_ms: request.ttl }, "{self}");
            self.heard.insert(request.nonce.clone());
        } else {
            let held = !self.model.holders.is_empty();
            assert_eq!(answer, if held { "-" } else { "?" }, "{self}");
        }
        answer.starts_with('+')
    }

    fn a_request(&mut self) -> Option<Request> {
        // Rather one that holds.
        if !self.model.holders.is_empty() && !self.rng.once_in(4) {
            let nonce = self.rng.one_of(&self.model.holders).nonce;
            return self
                .requests
                .iter()
                .find(|(request, _)| request.nonce == nonce)
                .map(|(request, _)| request.clone());
        }
        if self.requests.is_empty() { None } else { Some(self.rng.one_of(&self.requests).0) }
    }

    async fn release(&mut self) {
        let Some(Request { nonce, client, .. }) = self.a_request() else { return };
        self.note(format!("release {nonce}"));
        if self.kind == Kind::Mutex && self.rng.once_in(2) {
            let reply = self.lock.run(&scripts::RELEASE_SHORT, &[""], &[&nonce]).await.unwrap().as_text().unwrap();
            if reply == format!("{nonce}+") {
                assert!(self.model.queue().is_empty() && self.model.release(&nonce), "{self}");
                return;
            }
            assert_eq!(reply, format!("{nonce}?"), "{self}");
        }
        let before = self.model.holders.clone();
        let held = self.model.release(&nonce);
        let reply = self.lock.run(&self.scripts().release, &ALL, &[&nonce, &client, CHANNELS, "", ""]).await;
        self.given_back(reply.unwrap(), &nonce, &client, held, &before);
    }

    async fn cancel(&mut self) {
        let Some(Request { nonce, client, .. }) = self.a_request() else { return };
        self.note(format!("cancel {nonce}"));
        let before = self.model.holders.clone();
        self.model.cancel(&nonce);
        let reply = self.lock.run(&self.scripts().cancel, &ALL, &[&nonce, &client, CHANNELS, "", ""]).await;
        self.given_back(reply.unwrap(), &nonce, &client, true, &before);
    }

    async fn change(&mut self) {
        let Some(Request { nonce, client, mode, .. }) = self.a_request() else { return };
        let to = match mode {
            Mode::Permits { limit, .. } => Mode::Permits { permits: 1 + self.rng.below(limit), limit },
            Mode::Write => Mode::Read,
            other => other,
        };
        self.note(format!("change {nonce} to {to:?}"));
        let before = self.model.holders.clone();
        let held = self.model.change(&nonce, to);
        let args = [&*nonce, &client, CHANNELS, "", &to.text()];
        let reply = self.lock.run(&scripts::CHANGE_MODE, &ALL, &args).await.unwrap();
        let forced = self.model.forced.take();
        self.given_back(reply, &nonce, &client, held, &before);
        self.model.forced = forced;
    }

    /// The reply tells of this client's new grants, and pushes tell of all others'.
    fn given_back(&mut self, reply: Value, nonce: &str, client: &str, held: bool, before: &[Holder]) {
        let reply = texts(reply);
        let forced = self.model.forced.as_deref() == Some(nonce);
        let new = self.model.holders.iter().filter(|holder| before.iter().all(|old| old.nonce != holder.nonce));
        let own = new.filter(|holder| holder.client == client);
        let mut expected = vec![nonce.to_owned(), u8::from(held).to_string()];
        for holder in own {
            let claim = (holder.end - self.model.now / 1000).to_string();
            expected.extend([holder.nonce.clone(), holder.token.to_string(), claim]);
            self.told.insert(holder.nonce.clone());
        }
        if !held {
            expected.push(if forced { "why".to_owned() } else { String::new() });
        }
        assert_eq!(reply, expected, "{self}");
    }

    async fn renew(&mut self) {
        let Some(Request { nonce, .. }) = self.a_request() else { return };
        let ttl = self.rng.one_of(&[100, 1000, 3000, 20_000]);
        self.note(format!("renew {nonce} for {ttl}"));
        let held = self.model.extend(&nonce, ttl).is_some();
        let args = [&*nonce, &ttl.to_string(), &self.lock.key(":x")];
        let reply = self.lock.run(&self.scripts().renew, &[""], &args).await.unwrap();
        let why = if self.model.forced.as_deref() == Some(&nonce) { "why" } else { "" };
        let expected = if held { vec![&*nonce, "1"] } else { vec![&*nonce, "0", why] };
        assert_eq!(texts(reply), expected, "{self}");
    }

    async fn force(&mut self) {
        let Some(Request { nonce, .. }) = self.a_request() else { return };
        self.note(format!("force {nonce}"));
        let client = self.model.holder(&nonce).map(|holder| holder.client.clone());
        let held = self.model.force(&nonce);
        let reply = self.lock.run(&self.scripts().force_release, &ALL, &[&nonce, CHANNELS, "", "why"]).await.unwrap();
        assert_eq!(texts(reply), [nonce.clone(), u8::from(held).to_string()], "{self}");
        if let Some(client) = client {
            self.told.insert(format!("{CHANNELS}{client} F{nonce}:why"));
        }
    }

    async fn heartbeat(&mut self) {
        let client = self.rng.one_of(&CLIENTS);
        self.note(format!("heartbeat of {client}"));
        let own = self.requests.iter().map(|(request, _)| request).filter(|request| request.client == client);
        let nonces: Vec<_> = own.map(|request| request.nonce.clone()).collect();
        let args: Vec<_> =
            [client, CHANNELS, "", "7", "1"].into_iter().chain(nonces.iter().map(|nonce| &**nonce)).collect();
        let reply = texts(self.lock.run(&self.scripts().heartbeat, &ALL, &args).await.unwrap());
        self.told.insert(format!("{CHANNELS}{client} E"));
        let waited = self.model.queue();
        let known = self.model.heartbeat(client);
        let queue = self.model.queue();
        let is_queued = |nonce: &String| queue.iter().any(|(member, _)| member.starts_with(&**nonce));
        let queued: String = nonces.iter().map(|nonce| if is_queued(nonce) { '1' } else { '0' }).collect();
        assert_eq!([&reply[0], &reply[1], &reply[3]], ["7", &*u8::from(known).to_string(), &queued], "{self}");
        assert_eq!(reply[4], self.model.last_token.to_string(), "{self}");
        let named: BTreeMap<_, _> = reply[5..].chunks(3).map(|grant| (grant[0].clone(), grant[1].clone())).collect();
        let held = self.model.holders.iter().filter(|holder| holder.client == client);
        let held: BTreeMap<_, _> = held.map(|holder| (holder.nonce.clone(), holder.token.to_string())).collect();
        assert_eq!(named, held, "{self}");
        // What a heartbeat has let in is told by its reply.
        let let_in = |nonce: &String| waited.iter().any(|(member, _)| member.starts_with(&**nonce));
        self.heard.extend(named.into_keys().filter(let_in));
    }

    /// Time passes; often to the very end of a lease, now and then back.
    async fn pass(&mut self) {
        let (now, back) = (self.model.now, self.rng.once_in(5));
        if back {
            // What has ended is to be cleared away before: an end that lies ahead again is not over.
            self.heartbeat().await;
            self.compare().await;
        }
        let ends: Vec<_> = self.model.holders.iter().map(|holder| holder.end * 1000).collect();
        let next = match self.rng.below(8) {
            _ if back => now - self.rng.one_of(&[500_000, 1_400_000, 4_000_000]),
            0..=3 if !ends.is_empty() => self.rng.one_of(&ends) - self.rng.one_of(&[1, 0, 1000]),
            4 => now + 4_000_000,
            5 if self.rng.once_in(4) => now + KEEP * 1000,
            _ => now + self.rng.below(1_600_000),
        };
        let left = self.model.last_end().map_or(0, |end| end.saturating_sub(next / 1000));
        // A mutex' key is what holds it, and it is not to end while the test looks.
        let next = if self.kind == Kind::Mutex && left < SAFE { next + left * 1000 } else { next };
        self.note(format!("at {next}"));
        self.lock.now = next;
        let queued = !self.model.queue().is_empty();
        self.model.set_time(next);
        if queued && self.model.queue().is_empty() {
            self.lock.command(&["DEL", &self.lock.key(":q"), &self.lock.key(":w")]).await;
        }
        // The lock's key ends by the server's clock; here with its last grant, or a while after that.
        let left = self.model.last_end().map_or(0, |end| end - next / 1000);
        self.real = Real::start();
        if left > 0 {
            self.lock.ends_in(left.max(SAFE)).await;
        } else if self.kind == Kind::Mutex || self.rng.once_in(2) {
            self.lock.ends_in(0).await;
        }
    }

    /// The server holds what the model says.
    async fn compare(&mut self) {
        let (data, ends_in) = self.lock.look().await;
        let now = self.model.now / 1000;
        assert_eq!(holders(&data, self.kind, now), self.expected(), "{self}");
        assert_eq!(data.queue, self.model.queue(), "{self}");
        assert_eq!(data.waiters.is_empty(), data.queue.is_empty(), "{data:?} {self}");
        let both = data.queue.iter().find(|(member, _)| self.model.holder(&member[..32]).is_some());
        assert_eq!(both, None, "it holds and waits {self}");
        if let Some(end) = self.model.last_end() {
            let left = (end - now) as i64;
            assert!(ends_in + self.real.ms() >= left, "ends in {ends_in} ms, not {left} {self}");
            assert!(self.kind != Kind::Mutex || ends_in <= left + 20, "ends in {ends_in} ms, not {left} {self}");
        }
        if self.kind == Kind::Mutex {
            self.has_its_marks(&data);
        }
        for most in [2, 1000] {
            let inspected =
                self.lock.run(&self.scripts().inspect, &ALL, &[&most.to_string()]).await.unwrap().into_parts();
            let [lock, _, held, others, queue, cards, more] = inspected.try_into().unwrap();
            let listed = data.queue.len().min(most);
            let card = |(member, _): &(String, u64)| data.waiters[&member[..32]].clone();
            assert_eq!(
                (lock.as_text(), texts(queue).len() / 2, texts(cards), more.as_int()),
                (
                    Some(self.lock.key("")),
                    listed,
                    data.queue.iter().take(most).map(card).collect(),
                    Some((data.queue.len() - listed) as i64)
                ),
                "{self}"
            );
            if self.kind != Kind::Mutex {
                let is_grant = |field: &&str| !field.starts_with('#');
                let all = data.held.keys().map(String::as_str).filter(is_grant).count();
                let fields = texts(held);
                let listed = fields.iter().step_by(2).map(String::as_str).filter(is_grant).count();
                assert_eq!(listed as i64 + others.as_int().unwrap(), all as i64, "{self}");
            }
        }
        // Not always: it clears away what has ended.
        if self.kind != Kind::Mutex && self.rng.once_in(4) {
            let used = texts(self.lock.run(&scripts::PERMITS_HELD, &ALL, &[]).await.unwrap());
            let weights = self.model.holders.iter().map(|holder| holder.mode.weight()).sum::<u64>().to_string();
            assert_eq!(used, [self.lock.key(""), weights, "0".to_owned()], "{self}");
        }
        self.told(&data);
    }

    fn expected(&self) -> BTreeMap<String, String> {
        let one = |holder: &Holder| {
            let Holder { nonce, client, mode, token, end } = holder;
            let end = if self.kind == Kind::Mutex { 0 } else { *end };
            (nonce.clone(), format!("{end}:{token}:{client}:{}", mode.text()))
        };
        self.model.holders.iter().map(one).collect()
    }

    /// The short ways see by the fence and by the lock that somebody waits.
    fn has_its_marks(&self, data: &Data) {
        if !data.queue.is_empty() {
            assert!(data.fence.ends_with('q'), "{data:?} {self}");
            assert!(data.held.values().all(|held| held.ends_with('!')), "{data:?} {self}");
        }
    }

    /// Every grant that was handed over was told once: by a reply to its client, or by a push on its channel.
    fn told(&mut self, data: &Data) {
        for push in &data.told {
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
        self.told.retain(|nonce| self.model.holder(nonce).is_some());
        self.heard.retain(|nonce| self.model.holder(nonce).is_some());
        for nonce in self.model.holders.iter().map(|holder| &holder.nonce) {
            assert!(self.told.contains(nonce) || self.heard.contains(nonce), "{nonce} was not told {self}");
        }
    }

    fn note(&mut self, what: String) {
        self.done.push(what);
    }

    /// Everybody leaves; what remains is the last token, and why the last grant was freed by force.
    async fn end(mut self) -> Lock {
        for (request, _) in self.requests.clone() {
            self.model.cancel(&request.nonce);
            let args = [&*request.nonce, &request.client, CHANNELS, "", ""];
            self.lock.run(&self.scripts().cancel, &ALL, &args).await.unwrap();
        }
        assert!(self.model.holders.is_empty() && self.model.queue().is_empty(), "{self}");
        let (data, ends_in) = self.lock.look().await;
        let left = (data.held.len(), data.queue.len(), data.waiters.len(), ends_in);
        assert_eq!(left, (0, 0, 0, -2), "{data:?} {self}");
        assert!(!data.fence.ends_with('q'), "{data:?} {self}");
        self.lock
    }
}

impl std::fmt::Display for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\n{}\nafter\n  {}", self.lock.key(""), self.done.join("\n  "))
    }
}

/// The holders, as `nonce -> end:token:client:mode`; of a mutex, whose end is its key's, with an end of 0.
fn holders(data: &Data, kind: Kind, now: u64) -> BTreeMap<String, String> {
    if kind == Kind::Mutex {
        let held = data.held.get("").map(|held| held.trim_end_matches('!').splitn(4, ':').collect::<Vec<_>>());
        let held = held.map(|held| (held[0].to_owned(), format!("0:{}:{}:", held[3], held[1])));
        return held.into_iter().collect();
    }
    let grants = data.held.iter().filter(|(nonce, _)| !nonce.starts_with('#'));
    let grants = grants.map(|(nonce, record)| (nonce.clone(), record.strip_suffix(":{}").unwrap().to_owned()));
    grants.filter(|(_, record)| record.split(':').next().unwrap().parse::<u64>().unwrap() > now).collect()
}

/// Sequences over several connections at once.
async fn agree(kind: Kind) {
    const CONNECTIONS: u64 = 2;
    const SEQUENCES: u64 = 300;
    let Some(server) = server().await else { return };
    let seeds = |connection| (0..SEQUENCES).filter(move |seed| seed % CONNECTIONS == connection);
    let tasks = (0..CONNECTIONS).map(|connection| {
        let resp = server.client().unwrap();
        tokio::spawn(async move {
            let mut lock = Lock::new(resp, "");
            for seed in seeds(connection) {
                let mut sequence = Sequence::new(lock, kind, seed);
                let steps = 1 + sequence.rng.below(50);
                for _ in 0..steps {
                    sequence.step().await;
                }
                lock = sequence.end().await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("it has said what is wrong");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_sequences_on_a_mutex_agree_with_the_model() {
    agree(Kind::Mutex).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_sequences_on_a_reentrant_lock_agree_with_the_model() {
    agree(Kind::Reentrant).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_sequences_on_a_read_write_lock_agree_with_the_model() {
    agree(Kind::ReadWrite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_sequences_on_a_semaphore_agree_with_the_model() {
    agree(Kind::Semaphore).await;
}
