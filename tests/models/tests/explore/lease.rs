//! The lease lock, as it is and broken.

use models::lease::{LeaseLock, Mutant};
use models::{explore, refuted};

/// Two clients that want the lock once.
const CALM: LeaseLock = LeaseLock { clients: 2, attempts: 1, cuts: 0, crashes: 0, overlaps: false, mutant: None };
const BROKEN_CONNECTION: LeaseLock = LeaseLock { cuts: 1, ..CALM };

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

refuted! {
    a_lease_counts_from_its_request: DeadlineFromReply by "exclusion" in BROKEN_CONNECTION,
    a_pushed_grant_counts_from_the_last_question: PushFromArrival by "exclusion" in BROKEN_CONNECTION,
    a_pushed_grant_counts_for_the_claim_time: PushWithoutBound by "exclusion" in BROKEN_CONNECTION,
    a_question_counts_from_its_sending: QuestionFromReply by "exclusion" in BROKEN_CONNECTION,
    a_push_from_an_earlier_stay_is_not_believed: PushWithoutFloor by "exclusion" in BROKEN_CONNECTION,
    a_passed_deadline_is_final: RevivedByRenewal by "a passed deadline is final" in BROKEN_CONNECTION,
    a_release_compares: BlindRelease by "belief is true" in BROKEN_CONNECTION,
    a_renewal_compares: BlindRenewal by "renewed by its holder only" in BROKEN_CONNECTION,
    an_acquisition_knows_its_nonce: ForgottenNonce by "one place each" in BROKEN_CONNECTION,
    a_hand_over_raises_the_token: TokenKept by "tokens grow" in BROKEN_CONNECTION,
    waiters_ask: NoHeartbeats by "waiters get on" in BROKEN_CONNECTION,
    a_lost_place_is_taken_again: PlaceNotRetaken by "waiters get on" in BROKEN_CONNECTION,
    what_is_given_up_is_undone: NoUndo by "nothing is left" in BROKEN_CONNECTION,
    undoing_takes_the_place_too: UndoLeavesPlace by "nothing is left" in BROKEN_CONNECTION,
    a_new_connection_kills_its_predecessor: NoKill by "nothing is left" in BROKEN_CONNECTION,
}
