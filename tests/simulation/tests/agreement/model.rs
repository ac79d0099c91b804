//! The specification of a lock, without a server: the rules of `lock_core::memory`, and those of the queue of living waiters.

use std::collections::BTreeMap;

/// As `scripts/queue.lua` has them, ms.
const LIVENESS: u64 = 3000;
const CLAIM: u64 = 2000;
const STALL: u64 = 1500;
const KEEP: u64 = 30_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    Mutex,
    Read,
    Write,
    Owner(u8),
    Permits { permits: u64, limit: u64 },
}

impl Mode {
    /// As the scripts write it.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Mutex => String::new(),
            Self::Read => "R".to_owned(),
            Self::Write => "W".to_owned(),
            Self::Owner(owner) => format!("O{owner:032x}"),
            Self::Permits { permits, limit } => format!("P{permits}/{limit}"),
        }
    }

    /// Reads what [`text`](Self::text) writes.
    pub(crate) fn read(text: &str) -> Self {
        match text.split_at(text.len().min(1)) {
            ("", _) => Self::Mutex,
            ("R", _) => Self::Read,
            ("W", _) => Self::Write,
            ("O", owner) => Self::Owner(u8::from_str_radix(owner, 16).unwrap()),
            (_, permits) => {
                let (permits, limit) = permits.split_once('/').unwrap();
                Self::Permits { permits: permits.parse().unwrap(), limit: limit.parse().unwrap() }
            }
        }
    }

    pub(crate) fn weight(self) -> u64 {
        if let Self::Permits { permits, .. } = self { permits } else { 1 }
    }

    /// Whether a grant with this end is over: a mutex' key lives through its last millisecond, the others' records do not.
    fn is_over(self, end: u64, ms: u64) -> bool {
        if self == Self::Mutex { end < ms } else { end <= ms }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder {
    pub(crate) nonce: String,
    pub(crate) client: String,
    pub(crate) mode: Mode,
    pub(crate) token: u64,
    /// ms.
    pub(crate) end: u64,
}

/// A request, and what it is to have if it is admitted at once, or handed the lock later.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) nonce: String,
    pub(crate) client: String,
    pub(crate) mode: Mode,
    pub(crate) ttl: u64,
}

impl Request {
    /// The time for which it has a lock that is handed over: its client may have died a moment ago, unless it is the one that
    /// makes room.
    fn handed_over_for(&self, caller: &str) -> u64 {
        if self.client == caller { self.ttl } else { self.ttl.min(CLAIM) }
    }
}

#[derive(Debug, Clone)]
struct Waiter {
    ticket: u64,
    request: Request,
}

/// The state of the waiting clients while anybody waits.
#[derive(Debug, Clone, Default)]
struct Signs {
    alive_until: BTreeMap<String, u64>,
    last_sign: Option<u64>,
    /// The instant until which nobody is dropped who was alive then.
    grace: Option<(u64, u64)>,
    last_ticket: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    /// µs.
    pub(crate) now: u64,
    pub(crate) holders: Vec<Holder>,
    queue: Vec<Waiter>,
    signs: Signs,
    pub(crate) last_token: u64,
    /// ms at which the lock's key ends.
    lock_end: u64,
    /// ms at which the queue is forgotten.
    kept_until: u64,
    /// The grant that was freed by force at last, and until when that is known, ms.
    forced: Option<(String, u64)>,
}

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Granted { token: u64, for_ms: u64 },
    Refused,
    Queued { ticket: u64, known: bool },
}

impl Model {
    pub(crate) fn at(now: u64) -> Self {
        Self { now, ..Self::default() }
    }

    fn ms(&self) -> u64 {
        self.now / 1000
    }

    pub(crate) fn holder(&self, nonce: &str) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.nonce == nonce)
    }

    pub(crate) fn queue(&self) -> Vec<(String, u64)> {
        let member = |waiter: &Waiter| format!("{}:{}", waiter.request.nonce, waiter.request.client);
        self.queue.iter().map(|waiter| (member(waiter), waiter.ticket)).collect()
    }

    /// The clients of the waiters, and until when each counts as alive, ms.
    pub(crate) fn alive_until(&self) -> BTreeMap<String, u64> {
        let until = |client: &String| self.signs.alive_until.get(client).copied().unwrap_or(0);
        self.queue.iter().map(|waiter| (waiter.request.client.clone(), until(&waiter.request.client))).collect()
    }

    /// Returns for how many ms the lock's key and the queue live on.
    pub(crate) fn left(&self) -> [Option<u64>; 2] {
        let lock = (!self.holders.is_empty()).then_some(self.lock_end);
        let queue = (!self.queue.is_empty()).then_some(self.kept_until);
        [lock, queue].map(|end| end.map(|end| end - self.ms()))
    }

    /// Whether this is the grant that was freed by force at last.
    pub(crate) fn is_forced(&self, nonce: &str) -> bool {
        self.forced.as_ref().is_some_and(|(forced, _)| forced == nonce)
    }

    /// The instants, in ms, at which a lease, a sign of life, or the patience with a silent server ends.
    pub(crate) fn ends(&self) -> Vec<u64> {
        let holders = self.holders.iter().map(|holder| holder.end);
        let (stall, grace) = (self.signs.last_sign.map(|last| last + STALL), self.signs.grace.map(|(until, _)| until));
        let queue = self.left()[1].map(|_| self.kept_until);
        holders.chain(self.alive_until().into_values()).chain(stall).chain(grace).chain(queue).collect()
    }

    /// Another time has come.
    pub(crate) fn set_time(&mut self, now: u64) {
        self.now = now;
        let ms = self.ms();
        self.holders.retain(|holder| !holder.mode.is_over(holder.end, ms));
        if !self.queue.is_empty() && self.kept_until < ms {
            self.queue.clear();
            self.signs = Signs::default();
        }
        self.forced.take_if(|(_, until)| *until < ms);
    }

    pub(crate) fn ask(&mut self, request: &Request, waits: bool, ticket: Option<u64>) -> Asked {
        if let Some(token) = self.extend(&request.nonce, request.ttl) {
            return Asked::Granted { token, for_ms: request.ttl };
        }
        if self.admits(request.mode) && (self.queue.is_empty() || self.is_inside(request.mode)) {
            self.leave_the_queue(&request.nonce);
            return Asked::Granted { token: self.grant(request, request.ttl), for_ms: request.ttl };
        }
        if !waits {
            self.promote("");
            if self.queue.is_empty() && self.admits(request.mode) {
                return Asked::Granted { token: self.grant(request, request.ttl), for_ms: request.ttl };
            }
            return Asked::Refused;
        }
        let (known, goes_along) =
            (self.signs.alive_until.contains_key(&request.client), self.goes_along(request, ticket));
        let ticket = self.enter(request, ticket);
        if goes_along {
            self.signs.alive_until.insert(request.client.clone(), self.ms() + LIVENESS);
        } else {
            self.sign(&request.client);
        }
        self.promote("");
        if !known {
            self.drop_dead();
        }
        match self.holder(&request.nonce) {
            Some(holder) => Asked::Granted { token: holder.token, for_ms: request.handed_over_for("") },
            None => Asked::Queued { ticket, known },
        }
    }

    /// Whether the request joins others of its client that wait for a mutex; then the queue need not be made to last.
    fn goes_along(&self, request: &Request, ticket: Option<u64>) -> bool {
        let is_new = ticket.is_none() && (1..self.now).contains(&self.signs.last_ticket);
        let is_known = self.signs.alive_until.contains_key(&request.client);
        let is_seen = self.signs.last_sign.is_some_and(|last| self.ms().abs_diff(last) <= STALL);
        request.mode == Mode::Mutex
            && !self.holders.is_empty()
            && !self.queue.is_empty()
            && is_new
            && is_known
            && is_seen
    }

    /// The ticket of the request's place; the one that it has, comes with, or a new one.
    fn enter(&mut self, request: &Request, ticket: Option<u64>) -> u64 {
        let ticket = ticket.unwrap_or_else(|| self.now.max(self.signs.last_ticket + 1));
        self.signs.last_ticket = self.signs.last_ticket.max(ticket);
        if let Some(waiter) = self.queue.iter_mut().find(|waiter| waiter.request.nonce == request.nonce) {
            waiter.request = request.clone();
            return waiter.ticket;
        }
        self.queue.push(Waiter { ticket, request: request.clone() });
        self.queue.sort_by(|a, b| (a.ticket, &a.request.nonce).cmp(&(b.ticket, &b.request.nonce)));
        ticket
    }

    /// Never shortens.
    pub(crate) fn extend(&mut self, nonce: &str, ttl: u64) -> Option<u64> {
        let end = self.ms() + ttl;
        let holder = self.holders.iter_mut().find(|holder| holder.nonce == nonce)?;
        holder.end = holder.end.max(end);
        self.lock_end = self.lock_end.max(end);
        Some(holder.token)
    }

    /// Has a mutex end after a time, sooner or later, under another nonce; or once more, if it is under that one already.
    pub(crate) fn leave_held(&mut self, nonce: &str, left: &str, time: u64) -> bool {
        let end = self.ms() + time;
        let Some(holder) = self.holders.iter_mut().find(|holder| [nonce, left].contains(&&*holder.nonce)) else {
            return false;
        };
        left.clone_into(&mut holder.nonce);
        holder.end = end;
        self.lock_end = end;
        true
    }

    pub(crate) fn release(&mut self, nonce: &str, client: &str) -> bool {
        let held = self.remove(nonce);
        if held {
            self.promote(client);
        }
        held
    }

    pub(crate) fn cancel(&mut self, nonce: &str, client: &str) {
        self.leave_the_queue(nonce);
        self.remove(nonce);
        self.promote(client);
    }

    fn leave_the_queue(&mut self, nonce: &str) {
        if let Some(place) = self.queue.iter().position(|waiter| waiter.request.nonce == nonce) {
            self.leave(place);
        }
    }

    pub(crate) fn force(&mut self, nonce: &str) -> bool {
        let known_until = self.lock_end.max(self.ms() + 1000);
        let held = self.release(nonce, "");
        if held {
            self.forced = Some((nonce.to_owned(), known_until));
        }
        held
    }

    pub(crate) fn change(&mut self, nonce: &str, to: Mode, client: &str) -> bool {
        let Some(holder) = self.holders.iter_mut().find(|holder| holder.nonce == nonce) else { return false };
        if holder.mode.weight() >= to.weight() {
            holder.mode = to;
        }
        self.promote(client);
        true
    }

    /// Whether the client was known to wait.
    pub(crate) fn heartbeat(&mut self, client: &str) -> bool {
        let known = self.signs.alive_until.contains_key(client);
        if known {
            self.sign(client);
        }
        self.promote("");
        if known {
            self.drop_dead();
        }
        // One that came before its owner was inside need not wait for its turn.
        let early = |model: &Self| {
            model.queue.iter().position(|it| it.request.client == client && model.is_inside(it.request.mode))
        };
        while let Some(place) = early(self) {
            let request = self.leave(place).request;
            self.grant(&request, request.handed_over_for(""));
        }
        known
    }

    fn remove(&mut self, nonce: &str) -> bool {
        let before = self.holders.len();
        self.holders.retain(|holder| holder.nonce != nonce);
        self.holders.len() < before
    }

    fn leave(&mut self, place: usize) -> Waiter {
        let waiter = self.queue.remove(place);
        if self.queue.is_empty() {
            self.signs = Signs::default();
        }
        waiter
    }

    fn sign(&mut self, client: &str) {
        let ms = self.ms();
        if self.signs.last_sign.is_some() {
            self.notice_a_stall();
        }
        self.signs.alive_until.insert(client.to_owned(), ms + LIVENESS);
        self.signs.last_sign = Some(ms);
        self.kept_until = ms + KEEP;
    }

    /// Nobody gave a sign for too long: it was the server that stood still, or its clock that was set back.
    fn notice_a_stall(&mut self) {
        let (ms, last) = (self.ms(), self.signs.last_sign.unwrap_or(0));
        if self.is_grace() || ms.abs_diff(last) <= STALL {
            return;
        }
        self.signs.grace = Some((ms + LIVENESS, if last > ms { 0 } else { last }));
        // Nobody is spared twice for one silence.
        self.signs.last_sign = Some(ms + LIVENESS);
    }

    fn is_grace(&self) -> bool {
        let ms = self.ms();
        self.signs.grace.is_some_and(|(until, _)| ms < until && until <= ms + LIVENESS + STALL)
    }

    fn lives(&self, client: &str) -> bool {
        let (ms, until) = (self.ms(), self.signs.alive_until.get(client).copied().unwrap_or(0));
        let spared = self.is_grace() && self.signs.grace.is_some_and(|(_, alive_at)| until >= alive_at);
        (ms..=ms + LIVENESS + STALL).contains(&until) || spared
    }

    /// Lets in who is first, lives and fits; drops who is first and dead, while there is room for anybody. The caller is the client
    /// that makes room, if there is one.
    fn promote(&mut self, caller: &str) {
        while self.has_room() && !self.queue.is_empty() {
            self.notice_a_stall();
            let request = self.queue[0].request.clone();
            if !self.lives(&request.client) {
                self.signs.alive_until.remove(&request.client);
                self.leave(0);
            } else if self.admits(request.mode) {
                self.leave(0);
                self.grant(&request, request.handed_over_for(caller));
            } else {
                return;
            }
        }
    }

    /// Drops who is dead, wherever in the queue; one run of the scripts looks at one this short as a whole.
    fn drop_dead(&mut self) {
        assert!(self.queue.len() < 32, "one run does not look at all of them");
        while let Some(place) = self.queue.iter().position(|waiter| !self.lives(&waiter.request.client)) {
            let client = self.leave(place).request.client;
            self.signs.alive_until.remove(&client);
        }
    }

    fn used(&self) -> u64 {
        self.holders.iter().map(|holder| holder.mode.weight()).sum()
    }

    fn has_room(&self) -> bool {
        self.holders.iter().all(|holder| match holder.mode {
            Mode::Mutex | Mode::Write => false,
            Mode::Read | Mode::Owner(_) => true,
            Mode::Permits { limit, .. } => self.used() < limit,
        })
    }

    fn admits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Read | Mode::Owner(_) => self.holders.iter().all(|holder| holder.mode == mode),
            Mode::Permits { permits, limit } => self.used() + permits <= limit,
            Mode::Mutex | Mode::Write => self.holders.is_empty(),
        }
    }

    /// Whether its owner holds already.
    fn is_inside(&self, mode: Mode) -> bool {
        matches!(mode, Mode::Owner(_)) && self.holders.iter().any(|holder| holder.mode == mode)
    }

    fn grant(&mut self, request: &Request, ttl: u64) -> u64 {
        let again = if self.is_inside(request.mode) { self.holders.first().map(|holder| holder.token) } else { None };
        let token = again.unwrap_or_else(|| {
            self.last_token = self.now.max(self.last_token + 1);
            self.last_token
        });
        let Request { nonce, client, mode, .. } = request.clone();
        let end = self.ms() + ttl;
        self.lock_end = if self.holders.is_empty() { end } else { self.lock_end.max(end) };
        self.holders.push(Holder { nonce, client, mode, token, end });
        token
    }
}
