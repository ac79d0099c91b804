//! The queue of nodes, as it is and broken.

use models::queue::{Mutant, Queue};
use models::{explore, explorer, refuted};
use stateright::{Checker, Expectation, Model};

/// Two clients that want the lock once, in a time in which sessions expire.
const CALM: Queue =
    Queue { clients: 2, readers: 0, attempts: 1, timeout: 2, ticks: 3, cuts: 0, crashes: 0, mutant: None };
const BROKEN_CONNECTION: Queue = Queue { cuts: 1, ..CALM };

#[test]
fn holds_while_a_connection_breaks() {
    explore(BROKEN_CONNECTION);
}

#[test]
fn holds_while_a_process_dies() {
    explore(Queue { crashes: 1, ..CALM });
}

#[test]
fn holds_from_one_attempt_to_the_next() {
    explore(Queue { attempts: 2, ticks: 2, ..CALM });
}

#[test]
fn holds_for_three() {
    // Too short for a session to expire under a holder, which two can show as well.
    let model = Queue { clients: 3, ticks: 1, ..CALM };
    let checker = explorer(model.clone()).spawn_bfs().join();
    let must_hold = model.properties().into_iter().filter(|property| property.expectation == Expectation::Always);
    must_hold.for_each(|property| checker.assert_no_discovery(property.name));
}

#[test]
fn readers_hold_together_and_never_beside_a_writer() {
    let model = Queue { clients: 3, readers: 2, ticks: 0, ..CALM };
    let checker = explorer(model.clone()).spawn_bfs().join();
    println!("{model:?}: {} states", checker.unique_state_count());
    let must_hold = model.properties().into_iter().filter(|property| property.expectation == Expectation::Always);
    must_hold.for_each(|property| checker.assert_no_discovery(property.name));
    checker.assert_any_discovery("readers hold together");
}

refuted! {
    a_session_counts_from_its_last_request: DeadlineFromReply by "exclusion" in Queue { timeout: 3, ticks: 4, ..CALM },
    a_holder_looks_at_the_clock: EndlessBelief by "exclusion" in CALM,
    a_node_is_looked_for_before_another_is_made: CreatedTwice by "one place each" in BROKEN_CONNECTION,
    a_node_of_a_former_session_does_not_count: FormerSession by "belief is true" in CALM,
    news_make_no_grant: NewsGrant by "exclusion" in Queue { clients: 3, ticks: 0, ..CALM },
    a_node_that_has_gone_is_not_watched: WatchOnNothing by "waiters get on" in CALM,
    what_is_given_up_is_undone: NoUndo by "nothing is left" in CALM,
    what_was_not_answered_may_be_there: UndoByMemory by "nothing is left" in CALM,
    a_token_is_a_transaction: TokenFromName by "tokens grow" in CALM,
}
