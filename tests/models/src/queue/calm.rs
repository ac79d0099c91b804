//! The course of a state if nothing more goes wrong.

use super::client::Phase;
use super::{Action, Queue, State};

/// Steps after which a state that has not come to rest never will.
const ENOUGH: usize = 300;

impl Queue {
    /// Whether everybody who lives gets the lock, or gives up, if from now on nothing is lost and nobody dallies.
    pub(super) fn comes_to_rest(&self, state: &State) -> bool {
        let mut state = state.clone();
        let mut actions = Vec::new();
        for _ in 0..ENOUGH {
            if state.clients.iter().all(|client| client.is_over()) {
                return true;
            }
            actions.clear();
            for at in 0..state.clients.len() {
                self.client_actions(&state, at, &mut actions);
            }
            let next =
                actions.iter().copied().filter(|action| is_calm(&state, *action)).min_by_key(|action| rank(*action));
            self.step(&mut state, next.unwrap_or(Action::Tick));
        }
        false
    }
}

fn is_calm(state: &State, action: Action) -> bool {
    match action {
        Action::Leave(at) => state.clients[at].phase == Phase::Holding,
        Action::Cut(_) | Action::Crash(_) => false,
        _ => true,
    }
}

/// First what is under way, then what a client does by itself.
fn rank(action: Action) -> u8 {
    match action {
        Action::Serve(_) | Action::Hear(_) => 0,
        Action::Reopen(_) => 1,
        Action::Heartbeat(_) => 2,
        _ => 3,
    }
}
