//! The hand-over in the reply of lock-redis, as it is and broken.

use models::reply::{Mutant, ReplyHandOver};
use models::{explore, refuted};

/// A client with a holder and a waiter, and another one with a waiter, for which nothing goes wrong.
const CALM: ReplyHandOver =
    ReplyHandOver { waiters: &[2, 1], seconds: 3, cuts: 0, crashes: 0, drops: 0, gone: 0, losses: 0, mutant: None };
/// The connection breaks.
const CUT: ReplyHandOver = ReplyHandOver { cuts: 1, ..CALM };
/// A release is dropped.
const DROP: ReplyHandOver = ReplyHandOver { drops: 1, ..CALM };
/// A waiter gives up.
const GONE: ReplyHandOver = ReplyHandOver { gone: 1, ..CALM };
/// A push is lost.
const LOSS: ReplyHandOver = ReplyHandOver { losses: 1, ..CALM };
/// The process dies.
const CRASH: ReplyHandOver = ReplyHandOver { crashes: 1, ..CALM };

#[test]
fn holds_while_nothing_goes_wrong() {
    explore(CALM);
}

#[test]
fn holds_while_a_connection_breaks() {
    explore(CUT);
}

#[test]
fn holds_while_a_release_is_dropped() {
    explore(DROP);
}

#[test]
fn holds_while_a_waiter_gives_up() {
    explore(GONE);
}

#[test]
fn holds_while_a_process_dies() {
    explore(CRASH);
}

#[test]
fn holds_while_a_push_is_lost() {
    explore(LOSS);
}

#[test]
fn holds_while_two_things_go_wrong() {
    explore(ReplyHandOver { drops: 1, seconds: 2, ..CUT });
    explore(ReplyHandOver { gone: 1, seconds: 2, ..CUT });
    explore(ReplyHandOver { gone: 1, seconds: 2, ..DROP });
}

#[test]
fn holds_for_more_waiters() {
    explore(ReplyHandOver { waiters: &[2, 2], seconds: 2, ..CALM });
    explore(ReplyHandOver { waiters: &[2, 2], gone: 1, seconds: 1, ..CUT });
    explore(ReplyHandOver { waiters: &[3, 1], seconds: 2, ..CALM });
}

#[test]
fn holds_for_three_clients() {
    explore(ReplyHandOver { waiters: &[2, 1, 1], seconds: 1, ..CUT });
}

refuted! {
    a_grant_counts_from_its_release: GrantFromReply by "exclusion" in CALM,
    a_lost_reply_has_its_waiters_ask: LossTellsNobody by "a lost grant is asked for at once" in CUT,
    a_dropped_release_has_its_waiters_ask: DropTellsNobody by "a lost grant is asked for at once" in DROP,
    a_grant_that_nobody_wants_is_given_back: UnwantedKept by "what nobody wants is given back at once" in GONE,
    a_release_hands_over_once: HandsOverTwice by "exclusion" in CUT,
    a_release_tells_once: TellsTwice by "belief is true" in CUT,
    a_grant_has_one_end: TwoEnds by "exclusion" in CALM,
    another_client_is_told_by_push: NamesOthers by "a lost grant is asked for at once" in CALM,
    what_is_given_up_is_undone: NoUndo by "nothing is left" in GONE,
    a_hand_over_raises_the_token: TokenKept by "tokens grow" in CALM,
    a_waiter_asks_again: NoAskAgain by "waiters get on" in CUT,
    waiters_ask: NoHeartbeats by "waiters get on" in CUT,
}
