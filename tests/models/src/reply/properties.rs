//! The things that must hold in every state, and those that must happen in some.

use stateright::Property;

use super::client::{Client, Phase, Waiter};
use super::wire::{Reply, Request};
use super::{ReplyHandOver, State};

/// The properties of this configuration.
pub(super) fn of(model: &ReplyHandOver) -> Vec<Property<ReplyHandOver>> {
    let mut properties = vec![
        Property::always("exclusion", |_: &ReplyHandOver, state: &State| state.believers().count() <= 1),
        Property::always("belief is true", |_, state: &State| {
            let lock = state.server.lock.as_ref();
            state
                .believers()
                .all(|(waiter, until)| lock.is_some_and(|grant| grant.nonce == waiter.nonce && grant.ends >= until))
        }),
        Property::always("tokens grow", |_, state: &State| !state.server.token_went_back),
        Property::always("a lost grant is asked for at once", |_, state: &State| {
            state.grant_under_way().is_none_or(|(at, comes)| comes || state.clients[at].asks(state.server.now))
        }),
        Property::always("what nobody wants is given back at once", |_, state: &State| {
            state.alive().all(|(at, client)| client.waiters.iter().all(|waiter| !state.is_kept(at, waiter)))
        }),
        Property::always("nothing is left", |_, state: &State| {
            let mut ended = state.alive().flat_map(|(_, client)| &client.waiters);
            !ended.any(|waiter| waiter.phase == Phase::Done && state.server.has(waiter.nonce))
        }),
        Property::always("waiters get on", |model: &ReplyHandOver, state: &State| {
            // What is under way leads to a state without it.
            !state.links.iter().all(|link| link.is_quiet()) || model.comes_to_rest(state)
        }),
    ];
    if model.waiters[0] > 1 {
        properties.push(Property::sometimes("a reply makes a holder", |_, state: &State| {
            let lock = state.server.lock.as_ref().filter(|grant| grant.is_in_reply);
            lock.is_some_and(|grant| state.believers().any(|(waiter, _)| waiter.nonce == grant.nonce))
        }));
    }
    if model.waiters.len() > 1 {
        properties.push(Property::sometimes("another client has a push", |_, state: &State| {
            state.links[1..].iter().any(|link| !link.pushes.is_empty())
        }));
    }
    if model.cuts + model.drops > 0 {
        properties.push(Property::sometimes("a reply with a grant is lost", |_, state: &State| {
            state.grant_under_way().is_some_and(|(_, comes)| !comes)
        }));
    }
    if model.gone > 0 {
        properties.push(Property::sometimes("a grant comes for one that has given up", |_, state: &State| {
            state.alive().any(|(_, client)| client.waiters.iter().any(|waiter| waiter.is_unwanted))
        }));
    }
    if model.crashes > 0 {
        properties.push(Property::sometimes("a process dies before the reply", |_, state: &State| {
            let lock = state.server.lock.as_ref().filter(|grant| grant.is_in_reply);
            lock.is_some_and(|grant| state.clients[usize::from(grant.nonce.client)].is_dead)
        }));
    }
    properties
}

impl State {
    fn alive(&self) -> impl Iterator<Item = (usize, &Client)> {
        self.clients.iter().enumerate().filter(|(_, client)| !client.is_dead)
    }

    /// Those who believe to hold the lock, each by its own clock, and until when.
    fn believers(&self) -> impl Iterator<Item = (&Waiter, u8)> {
        self.alive().flat_map(|(_, client)| &client.waiters).filter_map(|waiter| match waiter.phase {
            Phase::Holding { until } if until > self.server.now => Some((waiter, until)),
            _ => None,
        })
    }

    /// The client of a waiter that was let in by a release or a cancellation and does not know yet, and whether the reply comes.
    fn grant_under_way(&self) -> Option<(usize, bool)> {
        let nonce = self.server.lock.as_ref().filter(|grant| grant.is_in_reply)?.nonce;
        let at = usize::from(nonce.client);
        let waiter = &self.clients[at].waiters[usize::from(nonce.waiter)];
        let mut replies = self.links[at].replies.iter();
        let comes = replies.any(|(_, reply)| matches!(reply, Reply::Ended(Some(told)) if told.nonce == nonce));
        let is_in_the_dark = !self.clients[at].is_dead && waiter.phase == Phase::Waiting && !waiter.is_woken;
        is_in_the_dark.then_some((at, comes))
    }

    /// Whether a client keeps what it was told of, for a waiter that had given up.
    fn is_kept(&self, at: usize, waiter: &Waiter) -> bool {
        let returns = [Request::GiveBack(waiter.nonce), Request::Cancel(waiter.nonce)];
        let is_returned = returns.into_iter().any(|request| self.links[at].carries(request));
        waiter.is_unwanted && self.server.holds(waiter.nonce) && !is_returned
    }

    pub(super) fn is_done(&self) -> bool {
        self.clients.iter().all(Client::is_done)
    }
}
