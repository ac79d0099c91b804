//! The hand-over of lock-memcached, as it is and broken.

use models::handover::{HandOver, Mutant};
use models::{explore, refuted};

/// Two clients with two waiters each, for which nothing goes wrong.
const CALM: HandOver =
    HandOver { waiters: [2, 2], attempts: 1, seconds: 3, losses: 0, restarts: 0, gone: 0, still: 0, mutant: None };
/// One answer is lost.
const LOSS: HandOver = HandOver { losses: 1, waiters: [2, 1], ..CALM };
/// The server is restarted.
const RESTART: HandOver = HandOver { restarts: 1, waiters: [1, 1], seconds: 6, ..CALM };
/// A waiter gives up.
const GONE: HandOver = HandOver { gone: 1, waiters: [2, 1], ..CALM };
/// A waiter is kept without being polled.
const STILL: HandOver = HandOver { still: 1, waiters: [3, 0], ..CALM };
/// More waiters than there are to watch the first one.
const STILL_OF_MANY: HandOver = HandOver { waiters: [4, 0], seconds: 1, ..STILL };
/// Waiters that come again and again.
const ROW: HandOver = HandOver { attempts: 6, waiters: [2, 0], seconds: 0, ..CALM };

#[test]
fn holds_while_nothing_goes_wrong() {
    explore(CALM);
}

#[test]
fn holds_while_an_answer_is_lost() {
    explore(LOSS);
}

#[test]
fn holds_while_the_server_forgets_everything() {
    explore(RESTART);
}

#[test]
fn holds_while_a_waiter_gives_up() {
    explore(GONE);
}

#[test]
fn holds_while_a_waiter_is_not_polled() {
    explore(STILL);
    explore(STILL_OF_MANY);
}

#[test]
fn holds_while_waiters_come_again_and_again() {
    explore(ROW);
}

refuted! {
    a_grant_counts_from_its_request: ClaimFromAnswer by "a grant does not outlive its claim" in GONE,
    a_hand_over_counts_from_its_request: HandOverFromAnswer by "a grant does not outlive its claim" in GONE,
    a_hand_over_compares: BlindHandOver by "exclusion" in CALM,
    numbers_count_in_their_own_life: NumberOfAnotherLife by "a grant does not outlive its claim" in RESTART,
    a_claim_reads_the_epoch: EpochNotRead by "exclusion" in RESTART,
    a_closed_epoch_stays_closed: OpenedAtOnce by "exclusion" in RESTART,
    a_claim_that_does_not_count_is_released: ClaimLeft by "nothing is left" in RESTART,
    the_next_one_is_woken: TurnNotPassedOn by "the first one knows it" in CALM,
    a_row_of_hand_overs_ends: HandedPastOthers by "others have their turn" in ROW,
    whoever_waits_is_woken_while_others_have_their_turn: NotWokenForOthers by "a release wakes the first one" in ROW,
    nobody_looks_while_others_have_their_turn: WokenPastOthers by "others have their turn" in ROW,
    what_was_handed_over_too_late_is_undone: NoUndo by "nothing is left" in GONE,
    a_hand_over_that_was_not_answered_is_no_loss: SilenceIsRefusal by "what was held is no loss" in LOSS,
    waiters_look: NoLooks by "waiters get on" in CALM,
    a_first_one_that_is_late_is_passed_over: PlaceNeverTaken by "waiters get on" in STILL,
    whoever_comes_nearer_watches: NobodyWatchesAnew by "waiters get on" in STILL_OF_MANY,
}
