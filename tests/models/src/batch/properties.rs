//! The things that must hold in every state, and those that must happen in some.

use stateright::Property;

use super::attempt::{Attempt, Outcome, Phase};
use super::client::Sender;
use super::wire::{Answer, Sent};
use super::{BatchedAttempts, State};

/// The properties of this configuration.
pub(super) fn of(model: &BatchedAttempts) -> Vec<Property<BatchedAttempts>> {
    let mut properties = vec![
        Property::always("exclusion", |model: &BatchedAttempts, state: &State| {
            let holders = || state.those(|attempt| attempt.phase == Phase::Holding);
            holders().all(|at| holders().all(|other| at == other || model.locks[at] != model.locks[other]))
        }),
        Property::always("one outcome each", |_, state: &State| !state.client.told_twice),
        Property::always("each outcome is its own", |_, state: &State| {
            state.those(|_| true).all(|at| match state.client.attempts[at].phase {
                Phase::Holding => state.server.holds(at),
                Phase::Done(Outcome::Held) => state.server.has_denied(at),
                _ => true,
            })
        }),
        Property::always("what was not sent is not granted", |_, state: &State| {
            state.have_nothing(&[Outcome::Left, Outcome::NotSent])
        }),
        Property::always("a definite no is final", |_, state: &State| {
            state.have_nothing(&[Outcome::Held, Outcome::Refused])
        }),
        Property::always("nothing is left", |_, state: &State| state.have_nothing(&[Outcome::Ended])),
        Property::always("nobody fails for others", |_, state: &State| !state.client.failed_for_others),
        Property::always("somebody sends what waits", |_, state: &State| {
            !state.client.has_waiting() || state.client.senders.iter().any(Sender::sees_to_all)
        }),
        Property::always("one task sees to all", |_, state: &State| {
            state.client.senders.iter().filter(|sender| sender.sees_to_all()).count() < 2
        }),
        Property::always("attempts get on", |model: &BatchedAttempts, state: &State| {
            // What is under way leads to a state without it.
            !state.link.is_quiet() || model.comes_to_rest(state)
        }),
        Property::sometimes("a batch has an answer for each", |_, state: &State| {
            let is_told = |answer| move |sent: &Sent| sent.answers.contains(&answer);
            state
                .link
                .replies
                .iter()
                .filter(|sent| is_told(Answer::Granted)(sent))
                .any(|sent| is_told(Answer::Held)(sent))
        }),
    ];
    if model.hurries {
        properties.push(Property::sometimes("a batch is sent at once", |_, state: &State| {
            state.client.senders.iter().any(|sender| matches!(sender, Sender::SendingAtOnce { .. }))
        }));
    }
    if model.kills {
        properties.push(Property::always("a cancellation comes last", |_, state: &State| !state.server.was_overtaken));
    }
    if model.locks.len() > 3 {
        properties.push(Property::sometimes("two batches are under way", |_, state: &State| {
            state.link.batches().count() > 1
        }));
    }
    if model.gone > 0 {
        properties.push(Property::sometimes("one leaves before its batch is taken", |_, state: &State| {
            state.those(|attempt| attempt.phase == Phase::Done(Outcome::Left)).count() > 0
        }));
        properties.push(Property::sometimes("one gives up whose batch is under way", |_, state: &State| {
            state.those(|attempt| attempt.phase == Phase::Undoing).any(|at| state.link.carries(at))
        }));
    }
    if model.late > 0 {
        properties.push(Property::sometimes("one is told that it was not sent", |_, state: &State| {
            state.those(|attempt| attempt.phase == Phase::Done(Outcome::NotSent)).count() > 0
        }));
    }
    if model.cuts + model.doubts + model.deaths > 0 {
        properties.push(Property::sometimes("one goes on whose batch is carried out", |_, state: &State| {
            state.those(|attempt| attempt.phase == Phase::Alone && attempt.is_unknown).any(|at| state.server.holds(at))
        }));
    }
    if model.doubts > 0 {
        properties.push(Property::sometimes(
            "one is granted over a connection that was given up",
            |_, state: &State| {
                state.link.former_replies.iter().any(|sent| sent.is_awaited && sent.answers.contains(&Answer::Granted))
            },
        ));
    }
    if model.cuts + model.doubts > 0 && model.is_pipeline {
        properties.push(Property::sometimes("half of a batch is carried out", |_, state: &State| {
            state.link.former.iter().any(|sent| !sent.answers.is_empty() && !sent.left().is_empty())
        }));
    }
    if model.refusals > 0 {
        properties.push(Property::sometimes("one is told that it was refused", |_, state: &State| {
            state.those(|attempt| attempt.phase == Phase::Done(Outcome::Refused)).count() > 0
        }));
    }
    properties
}

impl State {
    /// The attempts of which this is true.
    fn those(&self, these: impl Fn(&Attempt) -> bool) -> impl Iterator<Item = usize> {
        self.client.attempts.iter().enumerate().filter(move |(_, attempt)| these(attempt)).map(|(at, _)| at)
    }

    /// Whether all attempts that have ended like this have nothing at the server, and never will.
    fn have_nothing(&self, outcomes: &[Outcome]) -> bool {
        let may_have = |at| self.server.holds(at) || self.link.carries(at) || self.client.taken().contains(&at);
        !self.those(|attempt| matches!(attempt.phase, Phase::Done(of) if outcomes.contains(&of))).any(may_have)
    }
}
