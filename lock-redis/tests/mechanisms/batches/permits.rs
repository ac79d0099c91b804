//! Permits that are asked for at the same moment: what one script does for many of them, and what becomes of it when it is lost, refused,
//! or not wanted by all any more. The file above has the same of mutexes.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use lock_redis::{Error, ErrorKind, Owner, Permit, Semaphore};
use lock_testkit::proxy::{Direction, LinkFault, Toxic};

use super::{CROWD, Crowded, name, some_are_dropped};
use crate::server::{PROMPTLY, eventually, long, runs, soon};

const LIMIT: u32 = 3;

impl Crowded {
    fn semaphores(&self) -> Vec<Semaphore> {
        (0..CROWD).map(|i| self.locks.semaphore(name(i), LIMIT).with_lease(long())).collect()
    }

    async fn try_permits(&self) -> Vec<Result<Option<Permit>, Error>> {
        let semaphores = self.semaphores();
        join_all(semaphores.iter().map(Semaphore::try_acquire)).await
    }

    /// A permit of each semaphore.
    async fn permits(&self) -> Vec<Permit> {
        self.try_permits().await.into_iter().map(|outcome| outcome.unwrap().expect("there is room")).collect()
    }

    /// As [`permits`](Crowded::permits), of callers that would wait.
    async fn acquired(&self) -> Vec<Permit> {
        let semaphores = self.semaphores();
        join_all(semaphores.iter().map(Semaphore::acquire)).await.into_iter().map(Result::unwrap).collect()
    }

    /// The server knows the scripts of such batches.
    async fn knows_permits(&self) {
        eventually("the server knows them", PROMPTLY, async || {
            let before = runs(&self.server).await;
            release_all(self.permits().await).await;
            (runs(&self.server).await - before < CROWD as u64 / 2).then_some(())
        })
        .await;
    }

    /// Every permit of each semaphore can be had, soon, by somebody else.
    async fn all_are_there(&self) {
        let other = self.server.client().await;
        for number in 0..CROWD {
            let semaphore = other.semaphore(name(number), LIMIT).with_lease(long());
            let all = eventually("all permits are there", PROMPTLY, async || {
                semaphore.try_acquire_many(LIMIT).await.unwrap()
            });
            all.await.release().await.unwrap();
        }
        self.server.has_nothing_left().await;
    }
}

async fn release_all(held: Vec<Permit>) {
    join_all(held.into_iter().map(|permit| async { permit.release().await.unwrap() })).await;
}

#[tokio::test]
async fn permits_that_are_asked_for_at_the_same_moment_go_together_and_have_a_token_each() {
    let Some(crowded) = Crowded::start().await else { return };
    crowded.knows_permits().await;
    let mut before: Vec<_> = vec![None; CROWD];
    for _ in 0..3 {
        let asked = runs(&crowded.server).await;
        let held = crowded.permits().await;
        let scripts = runs(&crowded.server).await - asked;
        assert!(scripts < CROWD as u64 / 2, "{scripts} scripts");
        let tokens: Vec<_> = held.iter().map(Permit::token).collect();
        assert!(tokens.iter().zip(&before).all(|(token, before)| token.is_some() && token > before), "{tokens:?}");
        before = tokens;
        let asked = runs(&crowded.server).await;
        release_all(held).await;
        let scripts = runs(&crowded.server).await - asked;
        assert!(scripts < CROWD as u64 / 2, "{scripts} scripts");
        crowded.server.has_nothing_left().await;
    }
}

/// 128 of them, as many as mutexes, hold a slow server for more than 5 ms.
#[tokio::test]
async fn no_more_than_sixty_four_permits_go_together() {
    const MANY: usize = 200;
    let Some(crowded) = Crowded::start().await else { return };
    crowded.knows_permits().await;
    let semaphore = crowded.locks.semaphore("many", MANY as u32).with_lease(long());
    let asked = runs(&crowded.server).await;
    let outcomes = join_all((0..MANY).map(|_| semaphore.try_acquire())).await;
    let scripts = runs(&crowded.server).await - asked;
    assert!(scripts as usize > MANY / 64, "{scripts} scripts");
    release_all(outcomes.into_iter().map(|outcome| outcome.unwrap().expect("there is room")).collect()).await;
}

#[tokio::test]
async fn permits_of_one_semaphore_that_go_together_have_tokens_that_differ() {
    let Some(crowded) = Crowded::start().await else { return };
    crowded.knows_permits().await;
    let semaphore = crowded.locks.semaphore("one", CROWD as u32).with_lease(long());
    let mut before = None;
    for _ in 0..3 {
        let asked = runs(&crowded.server).await;
        let outcomes = join_all((0..CROWD).map(|_| semaphore.try_acquire())).await;
        let held: Vec<_> = outcomes.into_iter().map(|outcome| outcome.unwrap().expect("there is room")).collect();
        let scripts = runs(&crowded.server).await - asked;
        assert!(scripts < CROWD as u64 / 2, "{scripts} scripts");
        let tokens: BTreeSet<_> = held.iter().map(|permit| permit.token().unwrap()).collect();
        assert_eq!(tokens.len(), CROWD);
        assert!(tokens.first() > before.as_ref(), "{tokens:?} after {before:?}");
        before = tokens.last().copied();
        release_all(held).await;
    }
    crowded.server.has_nothing_left().await;
}

#[tokio::test]
async fn readers_go_together_and_a_writer_keeps_out_one_of_them() {
    let Some(crowded) = Crowded::start().await else { return };
    crowded.knows_permits().await;
    let locks: Vec<_> = (0..CROWD).map(|i| crowded.locks.rwlock(name(i)).with_lease(long())).collect();
    let other = crowded.server.client().await;
    let writer = other.rwlock(name(7)).with_lease(long()).write().await.unwrap();
    for _ in 0..3 {
        let asked = runs(&crowded.server).await;
        let outcomes = join_all(locks.iter().map(lock_redis::RwLock::try_read)).await;
        let scripts = runs(&crowded.server).await - asked;
        assert!(scripts < CROWD as u64 / 2, "{scripts} scripts");
        for (number, outcome) in outcomes.into_iter().enumerate() {
            match outcome.unwrap() {
                Some(_) if number == 7 => panic!("it is held by a writer"),
                Some(reader) => reader.release().await.unwrap(),
                None => assert_eq!(number, 7),
            }
        }
    }
    writer.release().await.unwrap();
    crowded.server.has_nothing_left().await;
}

#[tokio::test]
async fn owners_go_together_and_one_that_is_inside_already_enters_again() {
    let Some(crowded) = Crowded::start().await else { return };
    crowded.knows_permits().await;
    let locks: Vec<_> = (0..CROWD).map(|i| crowded.locks.reentrant(name(i)).with_lease(long())).collect();
    let (owner, other) = (Owner::new(), crowded.server.client().await);
    let inside = other.reentrant(name(7)).with_lease(long()).lock(&owner).await.unwrap();
    for _ in 0..3 {
        let asked = runs(&crowded.server).await;
        let outcomes = join_all(locks.iter().map(|lock| lock.try_lock(&owner))).await;
        let scripts = runs(&crowded.server).await - asked;
        assert!(scripts < CROWD as u64 / 2, "{scripts} scripts");
        let held: Vec<_> = outcomes.into_iter().map(|outcome| outcome.unwrap().expect("the owner may enter")).collect();
        let tokens: BTreeSet<_> = held.iter().map(|guard| guard.fencing_token().unwrap()).collect();
        assert_eq!(tokens.len(), CROWD);
        assert_eq!(held[7].fencing_token(), inside.fencing_token(), "the owner keeps its token");
        let asked = runs(&crowded.server).await;
        join_all(held.into_iter().map(|guard| async { guard.release().await.unwrap() })).await;
        let scripts = runs(&crowded.server).await - asked;
        assert!(scripts < CROWD as u64 / 2, "{scripts} scripts");
    }
    inside.release().await.unwrap();
    crowded.server.has_nothing_left().await;
}

#[tokio::test]
async fn a_batch_of_permits_whose_reply_is_lost_is_asked_for_again_and_keeps_nothing() {
    let Some(crowded) = Crowded::start().await else { return };
    crowded.knows_permits().await;
    let ways = [Direction::ToServer, Direction::ToClient];
    for (direction, waits) in ways.into_iter().flat_map(|direction| [(direction, false), (direction, true)]) {
        let cut = crowded.proxy.inject(LinkFault::new(Toxic::Reset, direction).on_request(1, name(CROWD - 1)));
        let granted = async { if waits { crowded.acquired().await } else { crowded.permits().await } };
        let held = soon("all are granted", PROMPTLY, granted).await;
        cut.heal().unwrap();
        let cut = crowded.proxy.inject(LinkFault::new(Toxic::Reset, direction).on_request(1, name(CROWD - 1)));
        let released = join_all(held.into_iter().map(Permit::release));
        for outcome in soon("all are released", PROMPTLY, released).await {
            if let Err(error) = outcome {
                assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error:?}");
            }
        }
        cut.heal().unwrap();
        crowded.all_are_there().await;
    }
}

#[tokio::test]
async fn a_batch_of_permits_that_is_never_answered_leaves_each_outcome_unknown() {
    let Some(crowded) = Crowded::start().await else { return };
    crowded.knows_permits().await;
    let held_up = crowded.proxy.inject(LinkFault::new(Toxic::Blackhole, Direction::ToClient));
    for outcome in soon("all end", PROMPTLY, crowded.try_permits()).await {
        let error = outcome.unwrap_err();
        assert!(error.kind() == ErrorKind::Indeterminate && !error.is_definite(), "{error:?}");
    }
    held_up.heal().unwrap();
    crowded.all_are_there().await;
}

#[tokio::test]
async fn a_batch_of_permits_that_is_refused_is_asked_for_one_by_one() {
    let Some(crowded) = Crowded::start().await else { return };
    crowded.knows_permits().await;
    for refusal in ["OOM command not allowed when used memory > 'maxmemory'.", "BUSY a script"] {
        let toxic = Toxic::Answer { text: refusal.to_owned() };
        let refused = crowded.proxy.inject(LinkFault::new(toxic, Direction::ToServer).on_request(1, name(CROWD - 1)));
        let held = soon("all are granted", PROMPTLY, crowded.permits()).await;
        refused.heal().unwrap();
        release_all(held).await;
        assert!(crowded.server.say("SCRIPT FLUSH").await.is_ok());
        release_all(soon("all are granted", PROMPTLY, crowded.permits()).await).await;
        crowded.server.has_nothing_left().await;
    }
    crowded.all_are_there().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_is_dropped_leaves_its_batch_or_is_undone_and_its_neighbours_notice_nothing() {
    let Some(crowded) = Crowded::start().await else { return };
    crowded.knows_permits().await;
    for polls in [1, 2, 3] {
        let semaphores = crowded.semaphores();
        let held = some_are_dropped(semaphores.iter().map(Semaphore::acquire).collect(), polls).await;
        let held: Vec<_> = held.into_iter().map(Result::unwrap).collect();
        assert!(held.len() >= CROWD / 3 * 2 - 1, "{} of {CROWD}", held.len());
        assert!(held.iter().all(|permit| permit.is_held()));
        let released = some_are_dropped(held.into_iter().map(Permit::release).collect(), polls).await;
        assert!(released.into_iter().all(|outcome| outcome.is_ok()));
        crowded.all_are_there().await;
    }
}
