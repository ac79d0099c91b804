//! The lease lock, as it is and broken.

use models::explorer;
use models::lease::{Action, LeaseLock, Mutant};
use stateright::{Checker, HasDiscoveries};

/// Two clients that want the lock once.
const CALM: LeaseLock = LeaseLock { clients: 2, attempts: 1, cuts: 0, crashes: 0, overlaps: false, mutant: None };
const BROKEN_CONNECTION: LeaseLock = LeaseLock { cuts: 1, ..CALM };

fn explore(model: LeaseLock) {
    let checker = explorer(model.clone()).spawn_bfs().join();
    println!("{model:?}: {} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn holds_while_a_connection_breaks() {
    explore(BROKEN_CONNECTION);
}

#[test]
fn holds_while_requests_of_one_client_overlap() {
    explore(LeaseLock { overlaps: true, ..CALM });
}

#[test]
fn holds_while_a_process_dies() {
    explore(LeaseLock { crashes: 1, ..CALM });
}

#[test]
fn holds_from_one_attempt_to_the_next() {
    explore(LeaseLock { attempts: 2, ..CALM });
}

/// Explores a broken model until a property fails, and says which one it expected.
fn refuted(mutant: Mutant, property: &'static str) {
    let model = LeaseLock { mutant: Some(mutant), ..BROKEN_CONNECTION };
    let first = HasDiscoveries::AnyOf([property].into());
    let checker = explorer(model).finish_when(first).spawn_bfs().join();
    let witness: Option<Vec<Action>> = checker.discovery(property).map(|path| path.into_actions());
    println!("{mutant:?} is refuted by {property:?}: {witness:?}");
    assert!(witness.is_some(), "{mutant:?} is not refuted by {property:?}");
}

macro_rules! refuted {
    ($($name:ident: $mutant:ident by $property:literal,)+) => {
        $(#[test]
        fn $name() {
            refuted(Mutant::$mutant, $property);
        })+
    };
}

refuted! {
    a_lease_counts_from_its_request: DeadlineFromReply by "exclusion",
    a_pushed_grant_counts_from_the_last_question: PushFromArrival by "exclusion",
    a_pushed_grant_counts_for_the_claim_time: PushWithoutBound by "exclusion",
    a_question_counts_from_its_sending: QuestionFromReply by "exclusion",
    a_push_from_an_earlier_stay_is_not_believed: PushWithoutFloor by "exclusion",
    a_passed_deadline_is_final: RevivedByRenewal by "a passed deadline is final",
    a_release_compares: BlindRelease by "belief is true",
    a_renewal_compares: BlindRenewal by "renewed by its holder only",
    an_acquisition_knows_its_nonce: ForgottenNonce by "one place each",
    a_hand_over_raises_the_token: TokenKept by "tokens grow",
    waiters_ask: NoPoke by "waiters get on",
    a_lost_place_is_taken_again: PlaceNotRetaken by "waiters get on",
    what_is_given_up_is_undone: NoUndo by "nothing is left",
    undoing_takes_the_place_too: UndoLeavesPlace by "nothing is left",
    a_new_connection_kills_its_predecessor: NoKill by "nothing is left",
}
