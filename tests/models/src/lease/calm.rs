//! The course of a state if nothing more goes wrong.

use stateright::Model;

use super::client::Phase;
use super::{Action, LeaseLock, State};

/// Steps after which a state that has not come to rest never will.
const ENOUGH: usize = 300;

impl LeaseLock {
    /// Whether everybody who lives gets the lock, or gives up, if from now on nothing is lost and nobody dallies.
    ///
    /// This is the form that "a waiter gets on" takes here: it is a question to each single state, so that the answer
    /// is exact, and a state without a way on is its own witness.
    pub(super) fn comes_to_rest(&self, state: &State) -> bool {
        let mut state = state.clone();
        let mut asked = vec![false; state.clients.len()];
        let mut actions = Vec::new();
        for _ in 0..ENOUGH {
            if state.clients.iter().all(|client| client.is_over()) {
                return true;
            }
            actions.clear();
            self.actions(&state, &mut actions);
            // Time can always pass.
            let next = actions.drain(..).min_by_key(|action| urgency(&state, &asked, *action));
            let Some(action) = next else { return false };
            match action {
                Action::Tick => asked.fill(false),
                Action::Heartbeat(at) => asked[at] = true,
                _ => {}
            }
            self.step(&mut state, action);
        }
        false
    }
}

/// First what is under way, then what a client does by itself, then time; never what goes wrong.
fn urgency(state: &State, asked: &[bool], action: Action) -> u8 {
    match action {
        Action::Serve(_) | Action::ServeFormer(_) | Action::Hear(_) | Action::HearPush(..) => 0,
        Action::Start(_) => 1,
        Action::Leave(at) if matches!(state.clients[at].phase, Phase::Holding { .. }) => 1,
        Action::Heartbeat(at) if !asked[at] => 2,
        Action::Tick => 3,
        _ => 4,
    }
}
