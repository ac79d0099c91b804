//! The course of a state if nothing more goes wrong.

use stateright::Model;

use super::{Action, HandOver, State};

/// Steps after which a state that has not come to rest never will.
const ENOUGH: usize = 400;

/// Seconds within which every waiter has had the lock: claims and leases that nobody ended, and the quarantine after a restart.
const SECONDS: u8 = 30;

impl HandOver {
    /// Whether everybody gets the lock, if from now on nothing is lost and nobody dallies.
    pub(super) fn comes_to_rest(&self, state: &State) -> bool {
        let mut state = State { losses: 0, restarts: 0, gone: 0, still: 0, ..state.clone() };
        let until = state.server.now + SECONDS;
        let calm = Self { seconds: until, ..self.clone() };
        let mut actions = Vec::new();
        for _ in 0..ENOUGH {
            if state.is_done() {
                return true;
            }
            actions.clear();
            calm.actions(&state, &mut actions);
            let Some(action) = actions.drain(..).min_by_key(|action| urgency(*action)) else { return false };
            calm.step(&mut state, action);
        }
        false
    }
}

/// First what is under way, then what clients do by themselves, then time.
fn urgency(action: Action) -> u8 {
    match action {
        Action::ServeLate(_) | Action::Serve(..) | Action::Hear(..) | Action::End(..) => 0,
        Action::Start(..) | Action::Release(..) => 1,
        Action::Try(..) | Action::TakePlace(..) => 2,
        _ => 3,
    }
}
