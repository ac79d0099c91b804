//! The task that sends the requests that wait, and tells each part of a batch its answer. It polls what it has sent: callers that do not
//! poll an answer that has come hold up nobody else.
//!
//! A transaction is carried out whole or not at all. One that was refused is sent again part by part, so that each part has its own
//! answer; one whose answer is lost is unknown to each part, which looks for its node as if it had gone by itself.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::{self, join_all};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::task::yield_now;
use zookeeper_client::{Client, Error, MultiReadResult};

use super::flush::Flush;
use super::pending::Tracked;
use super::scheduler::{self, Backlog, Dispatch, LongListings};
use super::transactions::{self, Refused, is_refusal, unexpected};
use super::waiting::{self, AnswerSender, Append, Delete, HandOver, List, RequestFuture, Waiting};
use super::{Failure, Names};

/// Sends what waits at the end of each turn of the runtime, so that only so many are under way at once. Ends at once when the
/// scheduler is closed, and when all was answered if that is gone.
pub(super) async fn run(Backlog { dispatch, mut closing }: Backlog) {
    let _end = EndOfAll(dispatch.clone());
    let (sending, mut under_way) = (Sending { dispatch: dispatch.clone() }, FuturesUnordered::new());
    let mut is_gone = false;
    let closed = async { closing.wait_for(|closed| *closed).await.is_ok() };
    tokio::pin!(closed);
    loop {
        if dispatch.can_send() {
            // Who is woken by the same answers asks now, and goes together with what waits.
            yield_now().await;
            while let Some(Some(turns)) = under_way.next().now_or_never() {
                dispatch.waited.fetch_sub(turns, Ordering::AcqRel);
            }
            under_way.extend(sending.send_waiting());
        }
        if is_gone && under_way.is_empty() {
            return;
        }
        tokio::select! {
            biased;
            is_closed = &mut closed, if !is_gone => {
                if is_closed {
                    return;
                }
                is_gone = true;
            }
            Some(turns) = under_way.next() => {
                dispatch.waited.fetch_sub(turns, Ordering::AcqRel);
            }
            () = dispatch.entered.notified() => {}
        }
    }
}

/// The end of the task, also with its runtime: without it nothing that waits would ever be told.
struct EndOfAll(Arc<Dispatch>);

impl Drop for EndOfAll {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The answer to one request for many listings.
type Frame = Result<Vec<Listed>, Refused>;

/// Requests under way, and how many they are.
type Sent = Pin<Box<dyn Future<Output = usize> + Send>>;

/// The sender of the requests that wait.
#[derive(Clone)]
struct Sending {
    dispatch: Arc<Dispatch>,
}

impl Sending {
    /// Sends of what waits as much as may be under way, in batches. What nobody waits for any more leaves unsent.
    fn send_waiting(&self) -> Vec<Sent> {
        let mut way = self.dispatch.way();
        let Some(client) = way.client.clone() else { return Vec::new() };
        let (mut free, mut flush) = (self.dispatch.free(), Flush::default());
        while let Some(next) = way.waiting.front() {
            let (is_wanted, turns) = (next.is_wanted(), flush.turns(next));
            if is_wanted && turns > free {
                break;
            }
            let next = way.waiting.pop_front();
            if let Some(next) = next.filter(|next| is_wanted && next.leave()) {
                free -= turns;
                flush.take(next);
            }
        }
        let mut taken: Vec<_> = flush.into_requests().into_iter().map(Some).collect();
        let parts: Vec<_> = taken.iter().flatten().map(Waiting::part).collect();
        let batches = waiting::batches(&parts);
        let send = |batch: Vec<usize>| {
            let requests: Vec<_> = batch.into_iter().filter_map(|index| taken[index].take()).collect();
            let turns = requests.iter().map(Waiting::turns).sum();
            self.dispatch.waited.fetch_add(turns, Ordering::AcqRel);
            let sent = self.send_batch(&client, requests);
            Box::pin(async move {
                sent.await;
                turns
            }) as Sent
        };
        batches.into_iter().map(send).collect()
    }

    /// Sends requests of one kind: as one if they are several and can be.
    fn send_batch(&self, client: &Arc<Client>, mut requests: Vec<Waiting>) -> RequestFuture {
        if requests.len() == 1
            && let Some(only) = requests.pop()
        {
            return singly(&self.dispatch, client, only);
        }
        let is_refused = self.dispatch.stamp.is_refused();
        let (mut hand_overs, mut appends) = (Vec::new(), Vec::new());
        let (mut deletes, mut lists, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for request in requests {
            match request {
                Waiting::HandOver(hand_over) if !is_refused => hand_overs.push(hand_over),
                Waiting::Append(append) if !is_refused => appends.push(append),
                Waiting::Delete(delete) => deletes.push(delete),
                Waiting::List(list) => lists.push(list),
                other => others.push(singly(&self.dispatch, client, other)),
            }
        }
        if !hand_overs.is_empty() || !appends.is_empty() {
            return self.move_on(client, hand_overs, appends);
        }
        if !deletes.is_empty() {
            return self.send_deletes(client, deletes);
        }
        if !lists.is_empty() {
            return self.send_lists(client, lists);
        }
        Box::pin(join_all(others).map(drop))
    }

    /// Moves queues on by one transaction, and lists those that are to be listed by one request right behind it.
    fn move_on(&self, client: &Arc<Client>, hand_overs: Vec<HandOver>, appends: Vec<Append>) -> RequestFuture {
        let exchanges = hand_overs.iter().map(|hand_over| hand_over.exchange.clone()).collect();
        let places = appends.iter().map(|append| append.place.clone()).collect();
        let directories = appends.iter().filter_map(Append::listing).collect();
        let stamp = self.dispatch.stamp.path.clone();
        let moved_on = self.dispatch.track(transactions::move_on(client.clone(), stamp, exchanges, places));
        let listed = self.list_all(client, directories);
        let sending = self.clone();
        Box::pin(async move {
            let (made, placed) = match moved_on.await {
                Ok(Err(refused)) => {
                    if let Refused::Stamp = refused {
                        sending.dispatch.stamp.refuse();
                    }
                    // What was listed does not show what is made now.
                    drop(listed);
                    let hand_overs = hand_overs.into_iter().map(Waiting::HandOver);
                    let appends = appends.into_iter().map(|append| Waiting::Append(append.resent()));
                    return sending.send_singly(hand_overs.chain(appends)).await;
                }
                Ok(Ok((made, placed))) => (Ok(made), Ok(placed)),
                Err(failure) => {
                    let failure = copies(failure);
                    (Err(failure.clone()), Err(failure))
                }
            };
            // First those for whom somebody waits.
            outcomes(hand_overs, made).for_each(|(hand_over, made)| hand_over.tell(made));
            let (mut created, mut lists, mut shared) = (Vec::new(), Vec::new(), Vec::new());
            for append in appends {
                let (answer, list, from_flush) = append.into_parts();
                created.push(answer);
                lists.extend(list);
                shared.push(from_flush);
            }
            tell(created, placed);
            sending.tell_lists(lists, listed).await;
            join_all(shared).await;
        })
    }

    /// Deletes nodes by one transaction.
    fn send_deletes(&self, client: &Arc<Client>, deletes: Vec<Delete>) -> RequestFuture {
        let paths = deletes.iter().map(|delete| delete.path.clone()).collect();
        let deleted = self.dispatch.track(transactions::delete_all(client.clone(), paths));
        let sending = self.clone();
        Box::pin(async move {
            match deleted.await {
                Ok(Err(_)) => sending.send_singly(deletes.into_iter().map(Waiting::Delete)).await,
                done => {
                    let done = done.map(Result::unwrap_or_default).map_err(copies);
                    tell(deletes.into_iter().map(|delete| delete.answer), done);
                }
            }
        })
    }

    fn send_lists(&self, client: &Arc<Client>, lists: Vec<List>) -> RequestFuture {
        let listed = self.list_all(client, lists.iter().map(|list| list.path.clone()).collect());
        let sending = self.clone();
        Box::pin(async move { sending.tell_lists(lists, listed).await })
    }

    /// Lists these directories, by as few requests as their answers are to be long; says how many each one is about.
    fn list_all(&self, client: &Arc<Client>, directories: Vec<Arc<str>>) -> Vec<(usize, Tracked<Frame>)> {
        let listings = &self.dispatch.listings;
        let divided = listings.divide(directories).into_iter();
        let list = |together: Vec<_>| {
            (together.len(), self.dispatch.track(list_all(client.clone(), listings.clone(), together)))
        };
        divided.map(list).collect()
    }

    async fn tell_lists(&self, lists: Vec<List>, listed: Vec<(usize, Tracked<Frame>)>) {
        let mut lists = lists.into_iter();
        join_all(
            listed.into_iter().map(|(number, frame)| self.tell_frame(lists.by_ref().take(number).collect(), frame)),
        )
        .await;
    }

    async fn tell_frame(&self, lists: Vec<List>, listed: Tracked<Frame>) {
        match listed.await {
            Ok(Ok(listed)) => {
                for (list, names) in lists.into_iter().zip(listed) {
                    list.tell(names.map_err(|error| copies(error.into())));
                }
            }
            Ok(Err(_)) => self.send_singly(lists.into_iter().map(Waiting::List)).await,
            Err(failure) => {
                let failure = copies(failure);
                lists.into_iter().for_each(|list| list.tell(Err(&failure)));
            }
        }
    }

    /// Sends each of these by itself, unless nobody waits for it any more.
    ///
    /// With the lock: whoever drops his call meanwhile has done so before this, or looks behind what is sent here.
    async fn send_singly(&self, requests: impl Iterator<Item = Waiting>) {
        let sent: Vec<_> = {
            let way = self.dispatch.way();
            // Without a client the session is over, and whoever waits is told so.
            let Some(client) = &way.client else { return };
            requests.filter(Waiting::is_wanted).map(|request| singly(&self.dispatch, client, request)).collect()
        };
        join_all(sent).await;
    }
}

/// Sends one request by itself.
fn singly(dispatch: &Dispatch, client: &Arc<Client>, request: Waiting) -> RequestFuture {
    match request {
        Waiting::Append(append) => {
            let (place, (created, list, shared)) = (append.place.clone(), append.into_parts());
            let made = dispatch.track(scheduler::create(client.clone(), place));
            let listed = list.map(|list| singly(dispatch, client, Waiting::List(list)));
            Box::pin(async move {
                // Here and below: nobody may wait for it any more.
                let _ = created.send(made.await);
                if let Some(listed) = listed {
                    listed.await;
                }
                shared.await;
            })
        }
        Waiting::HandOver(hand_over) => {
            let made = dispatch.track(transactions::exchange(client.clone(), hand_over.exchange.clone()));
            Box::pin(async move { hand_over.tell(made.await.map_err(copies)) })
        }
        Waiting::Delete(Delete { path, answer }) => {
            let deleted = dispatch.track(scheduler::delete(client.clone(), path));
            Box::pin(async move { drop(answer.send(deleted.await)) })
        }
        Waiting::List(list) => {
            let listed = dispatch.track(scheduler::list(client.clone(), dispatch.listings.clone(), list.path.clone()));
            Box::pin(async move { list.tell(listed.await.map_err(copies)) })
        }
        // Polled once, at which the crate is asked.
        Waiting::Other(mut other) => match other.as_mut().now_or_never() {
            Some(()) => Box::pin(future::ready(())),
            None => other,
        },
    }
}

/// The names in one of several directories.
type Listed = Result<Names, Error>;

/// Lists directories, each with an outcome of its own, and notes how long they are.
async fn list_all(
    client: Arc<Client>,
    listings: Arc<LongListings>,
    paths: Vec<Arc<str>>,
) -> Result<Result<Vec<Listed>, Refused>, Error> {
    let mut reader = client.new_multi_reader();
    if paths.iter().any(|path| reader.add_get_children(path).is_err()) {
        return Ok(Err(Refused::Batch));
    }
    let results = match reader.commit().await {
        Err(error) if is_refusal(&error) => return Ok(Err(Refused::Batch)),
        read => read?,
    };
    if results.len() != paths.len() {
        return Err(unexpected());
    }
    let listed = |(path, result)| match result {
        MultiReadResult::Children { children } => {
            listings.note(path, &children);
            Ok(Arc::new(children))
        }
        MultiReadResult::Error { err } => Err(err),
        _ => Err(unexpected()),
    };
    Ok(Ok(paths.iter().zip(results).map(listed).collect()))
}

/// Tells each part its outcome, or all of them the one failure.
fn tell<T>(
    answers: impl IntoIterator<Item = AnswerSender<T>>,
    all: Result<impl IntoIterator<Item = T>, impl Fn() -> Failure + Clone>,
) {
    outcomes(answers, all).for_each(|(answer, outcome)| drop(answer.send(outcome.map_err(|failure| failure()))));
}

/// Returns each part with its outcome, or with the one failure of all.
fn outcomes<P, T, F: Clone>(
    parts: impl IntoIterator<Item = P>,
    all: Result<impl IntoIterator<Item = T>, F>,
) -> impl Iterator<Item = (P, Result<T, F>)> {
    let (outcomes, failure) = match all {
        Ok(outcomes) => (Some(outcomes), None),
        Err(failure) => (None, Some(failure)),
    };
    let outcomes = outcomes.into_iter().flatten().map(Ok);
    parts.into_iter().zip(outcomes.chain(std::iter::repeat_with(move || failure.clone()).map_while(|f| f.map(Err))))
}

/// Returns what makes copies of a failure, for those that share it.
fn copies(Failure { fate, source }: Failure) -> impl Fn() -> Failure + Clone {
    let cause: Arc<dyn std::error::Error + Send + Sync> = source.into();
    move || Failure { fate, source: Box::new(cause.clone()) }
}
