//! Requests that go together, as they are and broken.

use models::batch::{BatchedAttempts, Mutant};
use models::{explore, refuted};

/// Three attempts, the first two of which want the same lock, for which nothing goes wrong: a batch is a script.
const CALM: BatchedAttempts = BatchedAttempts {
    locks: &[0, 0, 1],
    is_pipeline: false,
    hurries: false,
    kills: true,
    gone: 0,
    late: 0,
    cuts: 0,
    doubts: 0,
    deaths: 0,
    refusals: 0,
    mutant: None,
};
/// An attempt gives up.
const GONE: BatchedAttempts = BatchedAttempts { gone: 1, ..CALM };
/// An attempt has no time left.
const LATE: BatchedAttempts = BatchedAttempts { late: 1, ..CALM };
/// The connection breaks.
const CUT: BatchedAttempts = BatchedAttempts { cuts: 1, ..CALM };
/// The connection is given up while it lives.
const DOUBT: BatchedAttempts = BatchedAttempts { doubts: 1, ..CALM };
/// A task of the client's dies.
const DEATH: BatchedAttempts = BatchedAttempts { deaths: 1, ..CALM };
/// The server refuses a request.
const REFUSAL: BatchedAttempts = BatchedAttempts { refusals: 1, ..CALM };
/// A batch is a pipeline, and the client may not end its former connection at the server.
const PIPELINE: BatchedAttempts = BatchedAttempts { is_pipeline: true, kills: false, ..CALM };

/// The other orders in which two attempts at one lock and one at another come.
const OTHER_ORDERS: [&[u8]; 2] = [&[0, 1, 0], &[0, 1, 1]];

#[test]
fn holds_while_nothing_goes_wrong() {
    explore(CALM);
    explore(PIPELINE);
}

#[test]
fn holds_while_an_attempt_gives_up() {
    explore(GONE);
    explore(BatchedAttempts { gone: 1, ..PIPELINE });
}

#[test]
fn holds_while_an_attempt_has_no_time_left() {
    explore(LATE);
    explore(BatchedAttempts { late: 1, ..PIPELINE });
}

#[test]
fn holds_while_a_connection_breaks() {
    explore(CUT);
    explore(BatchedAttempts { cuts: 1, ..PIPELINE });
}

#[test]
fn holds_while_a_connection_is_given_up() {
    explore(DOUBT);
    explore(BatchedAttempts { doubts: 1, ..PIPELINE });
}

#[test]
fn holds_while_a_task_dies() {
    explore(DEATH);
    explore(BatchedAttempts { deaths: 1, ..PIPELINE });
}

#[test]
fn holds_while_the_server_refuses() {
    explore(REFUSAL);
    explore(BatchedAttempts { refusals: 1, ..PIPELINE });
}

#[test]
fn holds_for_any_order_of_attempts() {
    for locks in OTHER_ORDERS {
        explore(BatchedAttempts { locks, ..CUT });
        explore(BatchedAttempts { locks, gone: 1, late: 1, ..REFUSAL });
    }
}

#[test]
fn holds_while_two_things_go_wrong() {
    explore(BatchedAttempts { cuts: 1, ..GONE });
    explore(BatchedAttempts { cuts: 1, ..LATE });
    explore(BatchedAttempts { cuts: 1, ..DEATH });
    explore(BatchedAttempts { cuts: 1, ..REFUSAL });
    explore(BatchedAttempts { doubts: 1, ..GONE });
    explore(BatchedAttempts { gone: 2, deaths: 1, ..REFUSAL });
}

#[test]
fn holds_while_two_tasks_send() {
    for calm in [CALM, GONE, LATE, CUT, DOUBT, DEATH, REFUSAL, PIPELINE] {
        explore(BatchedAttempts { hurries: true, ..calm });
    }
    explore(BatchedAttempts { hurries: true, cuts: 1, ..DEATH });
    explore(BatchedAttempts { hurries: true, cuts: 1, ..GONE });
}

#[test]
fn holds_for_two_batches() {
    let locks = &[0, 1, 0, 2];
    explore(BatchedAttempts { locks, ..CUT });
    explore(BatchedAttempts { locks, ..GONE });
    explore(BatchedAttempts { locks, ..DEATH });
    explore(BatchedAttempts { locks, ..REFUSAL });
}

refuted! {
    the_task_that_sends_asks_whether_it_ends: EndsUnasked by "somebody sends what waits" in CALM,
    the_task_that_sends_ends_when_it_is_told_so: SendsOn by "one task sees to all" in CALM,
    a_task_that_dies_gives_up_its_batch: DeadSenderKeepsBatch by "somebody sends what waits" in DEATH,
    what_is_left_after_the_taking_may_have_been_sent: LeftIsUnsent by "what was not sent is not granted" in GONE,
    a_cancellation_waits_for_its_batch: CancelHurries by "a cancellation comes last" in GONE,
    a_hole_is_no_request: HoleCounted by "what was not sent is not granted" in GONE,
    a_batch_that_is_lost_is_not_sent_again: SentAgain by "a cancellation comes last" in BatchedAttempts { cuts: 1, ..GONE },
    a_batch_that_is_refused_is_not_sent_again: RefusedSentAgain by "a cancellation comes last" in BatchedAttempts { refusals: 1, ..GONE },
    a_batch_stays_with_its_connection: CrossesReconnect by "nothing is left" in BatchedAttempts { cuts: 1, gone: 1, ..PIPELINE },
    answers_are_in_the_order_of_the_batch: WrongOrder by "each outcome is its own" in GONE,
    an_outcome_is_told_once: GivenUpIsTold by "one outcome each" in DEATH,
    a_lost_answer_is_no_refusal: LostIsRefused by "a definite no is final" in BatchedAttempts { cuts: 1, ..REFUSAL },
    what_is_refused_is_not_granted: RefusedIsGranted by "exclusion" in REFUSAL,
    whoever_is_refused_with_others_goes_on: RefusedIsForgotten by "attempts get on" in REFUSAL,
    whoever_is_taken_alone_goes_on: SingleIsForgotten by "attempts get on" in CALM,
    whoever_fails_fails_alone: FailsWithNeighbour by "nobody fails for others" in REFUSAL,
    whoever_goes_on_is_known_by_its_nonce: ForgottenNonce by "a definite no is final" in CUT,
    nothing_is_asked_again_that_may_still_come: RepeatsUnsettled by "a definite no is final" in BatchedAttempts { cuts: 1, ..PIPELINE },
    what_is_unknown_stays_unknown: UnknownForgotten by "a definite no is final" in BatchedAttempts { cuts: 1, ..REFUSAL },
    what_is_given_up_is_cancelled: NoUndo by "nothing is left" in GONE,
    a_cancellation_is_repeated_until_it_is_settled: SettledAtOnce by "nothing is left" in BatchedAttempts { cuts: 1, gone: 1, ..PIPELINE },
}
