//! The single steps of a sequence; each reply is compared with what the specification says.

use std::collections::BTreeMap;

use lock_testkit_servers::resp::Value;
use rand::RngExt;
use rand::seq::IndexedRandom;

use super::holdings::texts;
use super::{CHANNELS, CLIENTS, Kind, Sequence};
use crate::model::{Asked, Holder, Request};
use crate::requests::Attempt;
use crate::scripts;

/// The keys of most scripts.
const ALL: [usize; 5] = [0, 1, 2, 3, 4];

impl Sequence<'_> {
    pub(super) async fn ask_anew(&mut self, waits: bool) {
        self.attempts.push(Attempt { waits, ..Attempt::any(self.kind, &mut self.rng) });
        self.ask(self.attempts.len() - 1).await;
    }

    /// A copy of an earlier request, or a waiter that enters again, perhaps at its old place. What was a try stays one, as a
    /// client has it: a try beside a place in the queue could be granted twice.
    pub(super) async fn ask_again(&mut self) {
        if !self.attempts.is_empty() {
            let number = self.rng.random_range(0..self.attempts.len());
            self.ask(number).await;
        }
    }

    async fn ask(&mut self, number: usize) {
        let Attempt { request, waits, ticket } = self.attempts[number].clone();
        self.note(format!("ask {request:?}, waits: {waits}, ticket: {ticket:?}"));
        if self.kind == Kind::Mutex && self.rng.random() && self.took(&request).await {
            return;
        }
        let Request { nonce, client, mode, ttl } = &request;
        let (ttl, mode) = (ttl.to_string(), mode.text());
        let stays = if waits { "1" } else { "" };
        let place = ticket.map_or(String::new(), |ticket| ticket.to_string());
        let args = [&**nonce, client, &ttl, "{}", stays, &place, CHANNELS, "", &mode];
        let reply = texts(self.ask_both(&self.kind.scripts().acquire, &ALL, &args).await);
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
                self.attempts[number].ticket = Some(ticket);
                let known = u8::from(known).to_string();
                assert_eq!(reply[1], "0", "{self}");
                assert_eq!(reply[3..], [ticket.to_string(), known, last.to_string()], "{self}");
            }
        }
        if reply[1] == "0" {
            self.is_no_later_than_the_first_end(&reply[2]);
        }
    }

    /// Waiters look again when a lease may have ended: never after the first end.
    fn is_no_later_than_the_first_end(&self, said: &str) {
        let first = self.model.holders.iter().map(|holder| (holder.end - self.model.now / 1000) as i64).min();
        let said: i64 = said.parse().unwrap();
        // One that joins others of its client is told nothing: they look anyway.
        let is_untold = self.kind == Kind::Mutex && said == -1;
        assert!(is_untold || first.is_none_or(|first| (0..=first).contains(&said)), "{said} ms of {first:?} {self}");
    }

    /// The short way to a free mutex; whether it decided.
    async fn took(&mut self, request: &Request) -> bool {
        let me = format!("{}:{}:{{}}:", request.nonce, request.client);
        let args = [&*me, &request.ttl.to_string()];
        let reply = self.ask_both(&scripts::ACQUIRE_SHORT, &[0, 1, 3], &args).await.as_text().unwrap();
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
        let holder = self.model.holders.choose(&mut self.rng).map(|holder| holder.nonce.clone());
        // Rather one that holds.
        if let Some(nonce) = holder.filter(|_| self.rng.random_ratio(3, 4)) {
            let all = self.attempts.iter().map(|attempt| &attempt.request).chain(&self.left);
            return all.into_iter().find(|request| request.nonce == nonce).cloned();
        }
        self.attempts.choose(&mut self.rng).map(|attempt| attempt.request.clone())
    }

    pub(super) async fn release(&mut self) {
        let Some(Request { nonce, client, .. }) = self.a_request() else { return };
        self.note(format!("release {nonce}"));
        if self.kind == Kind::Mutex && self.rng.random() {
            let reply = self.ask_both(&scripts::RELEASE_SHORT, &[0], &[&nonce]).await.as_text().unwrap();
            if reply == format!("{nonce}+") {
                assert!(self.model.queue().is_empty() && self.model.release(&nonce, &client), "{self}");
                return;
            }
            assert_eq!(reply, format!("{nonce}?"), "{self}");
        }
        let before = self.model.holders.clone();
        let held = self.model.release(&nonce, &client);
        let reply = self.ask_both(&self.kind.scripts().release, &ALL, &[&nonce, &client, CHANNELS, "", ""]).await;
        let why = self.why(&nonce);
        self.let_in(reply, (&nonce, &client), held, why, &before);
    }

    /// A mutex is left, perhaps once more.
    pub(super) async fn leave(&mut self) {
        let Some(request) = self.a_request() else { return };
        let before = self.attempts.iter().find(|attempt| left_of(&attempt.request.nonce) == request.nonce);
        let request = before.map_or(request, |attempt| attempt.request.clone());
        let (nonce, left) = (request.nonce.clone(), left_of(&request.nonce));
        let time = *[1, 700, 20_000].choose(&mut self.rng).unwrap();
        self.note(format!("leave {nonce} for {time}"));
        let held = self.model.leave_held(&nonce, &left, time);
        let args = [&*nonce, &left, &time.to_string(), &self.keys[4].clone()];
        let reply = self.ask_both(&scripts::LEAVE, &[0], &args).await;
        let expected = if held { vec![&*nonce, "1"] } else { vec![&*nonce, "0", self.why(&nonce)] };
        assert_eq!(texts(reply), expected, "{self}");
        if held {
            self.heard.insert(left.clone());
            self.left.push(Request { nonce: left, ..request });
        }
    }

    pub(super) async fn cancel(&mut self) {
        let Some(Request { nonce, client, .. }) = self.a_request() else { return };
        self.note(format!("cancel {nonce}"));
        let before = self.model.holders.clone();
        self.model.cancel(&nonce, &client);
        let reply = self.ask_both(&self.kind.scripts().cancel, &ALL, &[&nonce, &client, CHANNELS, "", ""]).await;
        self.let_in(reply, (&nonce, &client), true, "", &before);
    }

    pub(super) async fn change(&mut self) {
        let Some(Request { nonce, client, mode, .. }) = self.a_request() else { return };
        let to = self.kind.changed(mode, &mut self.rng);
        self.note(format!("change {nonce} to {to:?}"));
        let before = self.model.holders.clone();
        let held = self.model.change(&nonce, to, &client);
        let args = [&*nonce, &client, CHANNELS, "", &to.text()];
        let reply = self.ask_both(&scripts::CHANGE_MODE, &ALL, &args).await;
        let why = self.why(&nonce);
        self.let_in(reply, (&nonce, &client), held, why, &before);
    }

    /// The reply tells of this client's new grants, and pushes tell of all others'.
    fn let_in(&mut self, reply: Value, (nonce, client): (&str, &str), held: bool, why: &str, before: &[Holder]) {
        let new = self.model.holders.iter().filter(|holder| before.iter().all(|old| old.nonce != holder.nonce));
        let own = new.filter(|holder| holder.client == client);
        let mut expected = vec![nonce.to_owned(), u8::from(held).to_string()];
        for holder in own {
            let claim = (holder.end - self.model.now / 1000).to_string();
            expected.extend([holder.nonce.clone(), holder.token.to_string(), claim]);
            self.told.insert(holder.nonce.clone());
        }
        if !held {
            expected.push(why.to_owned());
        }
        assert_eq!(texts(reply), expected, "{self}");
    }

    fn why(&self, nonce: &str) -> &'static str {
        if self.model.is_forced(nonce) { "why" } else { "" }
    }

    pub(super) async fn renew(&mut self) {
        let Some(Request { nonce, .. }) = self.a_request() else { return };
        let ttl = *[100, 1000, 3000, 20_000].choose(&mut self.rng).unwrap();
        self.note(format!("renew {nonce} for {ttl}"));
        let held = self.model.extend(&nonce, ttl).is_some();
        let args = [&*nonce, &ttl.to_string(), &self.keys[4].clone()];
        let reply = self.ask_both(&self.kind.scripts().renew, &[0], &args).await;
        let expected = if held { vec![&*nonce, "1"] } else { vec![&*nonce, "0", self.why(&nonce)] };
        assert_eq!(texts(reply), expected, "{self}");
    }

    pub(super) async fn force(&mut self) {
        let Some(Request { nonce, .. }) = self.a_request() else { return };
        self.note(format!("force {nonce}"));
        let client = self.model.holder(&nonce).map(|holder| holder.client.clone());
        let held = self.model.force(&nonce);
        let reply = self.ask_both(&self.kind.scripts().force_release, &ALL, &[&nonce, CHANNELS, "", "why"]).await;
        assert_eq!(texts(reply), [nonce.clone(), u8::from(held).to_string()], "{self}");
        if let Some(client) = client {
            self.told.insert(format!("{CHANNELS}{client} F{nonce}:why"));
        }
    }

    pub(super) async fn heartbeat(&mut self) {
        let client = *CLIENTS.choose(&mut self.rng).unwrap();
        self.note(format!("heartbeat of {client}"));
        let own = self.attempts.iter().map(|attempt| &attempt.request).filter(|request| request.client == client);
        let nonces: Vec<_> = own.map(|request| request.nonce.clone()).collect();
        let args: Vec<_> =
            [client, CHANNELS, "", "7", "1"].into_iter().chain(nonces.iter().map(|nonce| &**nonce)).collect();
        let reply = texts(self.ask_both(&self.kind.scripts().heartbeat, &ALL, &args).await);
        self.told.insert(format!("{CHANNELS}{client} E"));
        let waited = self.model.queue();
        let known = self.model.heartbeat(client);
        let queue = self.model.queue();
        let is_queued = |nonce: &String| queue.iter().any(|(member, _)| member.starts_with(&**nonce));
        let queued: String = nonces.iter().map(|nonce| if is_queued(nonce) { '1' } else { '0' }).collect();
        assert_eq!([&reply[0], &reply[1], &reply[3]], ["7", &*u8::from(known).to_string(), &queued], "{self}");
        assert_eq!(reply[4], self.model.last_token.to_string(), "{self}");
        let named: BTreeMap<_, _> = reply[5..].chunks(3).map(|grant| (grant[0].clone(), grant[1..].to_vec())).collect();
        let now = self.model.now / 1000;
        let held = self.model.holders.iter().filter(|holder| holder.client == client);
        let left = |holder: &Holder| vec![holder.token.to_string(), (holder.end - now).to_string()];
        let held: BTreeMap<_, _> = held.map(|holder| (holder.nonce.clone(), left(holder))).collect();
        assert_eq!(named, held, "{self}");
        // Whom a heartbeat has let in, its reply tells.
        let let_in = |nonce: &String| waited.iter().any(|(member, _)| member.starts_with(&**nonce));
        self.heard.extend(named.into_keys().filter(let_in));
    }
}

/// The nonce under which a mutex is left: no request's.
fn left_of(nonce: &str) -> String {
    format!("x{}", &nonce[1..])
}
