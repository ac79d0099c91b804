//! The course of a state if nothing more goes wrong.

use stateright::Model;

use super::{Action, ReplyHandOver, State};

/// Steps after which a state that has not come to rest never will.
const ENOUGH: usize = 300;

/// Seconds within which every waiter has had the lock: leases that nobody ends, and waiters of clients that are dead.
const SECONDS: u8 = 30;

impl ReplyHandOver {
    /// Whether everybody who lives gets the lock, or gives up, if from now on nothing is lost and nobody dallies.
    pub(super) fn comes_to_rest(&self, state: &State) -> bool {
        let mut state = State { cuts: 0, crashes: 0, drops: 0, gone: 0, losses: 0, ..state.clone() };
        let calm = Self { seconds: state.server.now + SECONDS, ..self.clone() };
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

/// First what is under way, then what a client does by itself, then time.
fn urgency(action: Action) -> u8 {
    match action {
        Action::Serve(_) | Action::ServeFormer(_) | Action::Hear(_) | Action::HearPush(..) | Action::Listen(..) => 0,
        Action::Undo(..) | Action::Release(..) => 1,
        Action::Ask(_) => 2,
        _ => 3,
    }
}
