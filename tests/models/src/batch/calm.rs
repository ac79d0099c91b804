//! The course of a state if nothing more goes wrong.

use stateright::Model;

use super::{Action, BatchedAttempts, State};

/// Steps after which a state that has not come to rest never will.
const ENOUGH: usize = 200;

impl BatchedAttempts {
    /// Whether every attempt comes to its end if from now on nothing is lost, and nobody gives up or dallies.
    pub(super) fn comes_to_rest(&self, state: &State) -> bool {
        let mut state = State { gone: 0, late: 0, cuts: 0, doubts: 0, deaths: 0, refusals: 0, ..state.clone() };
        let mut actions = Vec::new();
        for _ in 0..ENOUGH {
            if state.is_done() {
                return true;
            }
            actions.clear();
            self.actions(&state, &mut actions);
            let Some(action) = actions.drain(..).min_by_key(|action| urgency(*action)) else { return false };
            self.step(&mut state, action);
        }
        false
    }
}

/// First what is under way, then time, then those who are to be sent, and those who come. What ends is the last: it may have to be asked for
/// until time has passed.
fn urgency(action: Action) -> u8 {
    match action {
        Action::Serve | Action::ServeFormer | Action::Hear | Action::HearFormer => 0,
        Action::Expire => 1,
        Action::Come(_) => 3,
        Action::End(_) => 4,
        Action::LoseReplies => 5,
        Action::ComeAsEnough(_) => 6,
        _ => 2,
    }
}
