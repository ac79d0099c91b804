//! The permits of a semaphore, as they are and broken.

use models::permits::{Mutant, Permits};
use models::{explore, refuted};

/// Two clients that want the only permit once.
const ONE: Permits = Permits { weights: &[1, 1], local: 0, limit: 1, attempts: 1, cuts: 0, crashes: 0, mutant: None };

/// Two of one process, and one of another, that want the only permit once.
const LOCAL: Permits = Permits { weights: &[1, 1, 1], local: 2, ..ONE };

#[test]
fn holds_while_a_connection_breaks() {
    explore(Permits { cuts: 2, ..ONE });
}

#[test]
fn holds_while_a_process_dies() {
    explore(Permits { crashes: 1, cuts: 1, ..ONE });
}

#[test]
fn holds_from_one_attempt_to_the_next() {
    explore(Permits { attempts: 2, ..ONE });
}

#[test]
fn holds_between_attempts_of_one_process() {
    explore(Permits { local: 2, attempts: 2, ..ONE });
    explore(Permits { local: 2, cuts: 1, ..ONE });
}

#[test]
fn holds_for_two_of_one_process_and_one_of_another() {
    explore(LOCAL);
}

#[test]
fn holds_for_two_of_one_process_and_one_of_another_while_a_connection_breaks() {
    explore(Permits { cuts: 1, ..LOCAL });
}

#[test]
fn holds_while_permits_are_handed_over_from_one_to_the_next_of_three() {
    explore(Permits { local: 3, ..LOCAL });
}

#[test]
fn holds_for_three_of_different_weights() {
    explore(Permits { weights: &[2, 1, 1], limit: 2, ..ONE });
    explore(Permits { weights: &[2, 1, 1], local: 2, limit: 2, ..ONE });
}

refuted! {
    nobody_takes_a_permit_beside_the_queue: ClaimsBesideQueue by "within the limit" in ONE,
    tokens_follow_the_queue: ClaimsBesideQueue by "tokens grow" in Permits { weights: &[1, 1, 1], limit: 2, ..ONE },
    permits_are_counted_behind: NoCount by "within the limit" in ONE,
    a_count_from_before_does_not_count: CountsBefore by "within the limit" in ONE,
    permits_that_are_found_are_counted: FoundIsTaken by "within the limit" in Permits { cuts: 1, ..ONE },
    permits_are_looked_for_before_others_are_made: NotLookedFor by "one grant each" in
        Permits { cuts: 1, limit: 2, ..ONE },
    permits_that_are_too_many_are_released: KeepsTooMany by "waiters get on" in ONE,
    what_is_given_up_is_undone: NoUndo by "nothing is left" in ONE,
    permits_are_handed_over_to_one_that_has_counted: HandsOverUncounted by "within the limit" in LOCAL,
    no_more_permits_are_made_than_are_released: HandsOverTooFew by "within the limit" in
        Permits { weights: &[1, 2, 1], local: 2, limit: 2, ..ONE },
    permits_are_handed_over_in_the_queue: HandsOverBesideQueue by "nothing is left" in LOCAL,
    a_successor_takes_its_permits_once: TakesBoth by "waiters get on" in Permits { local: 2, limit: 2, ..ONE },
    a_lost_hand_over_is_looked_for: LostIsRefused by "waiters get on" in Permits { local: 2, cuts: 1, ..ONE },
    whoever_came_since_is_not_told_that_it_is_first: TellsLatecomers by "tokens grow" in LOCAL,
}
