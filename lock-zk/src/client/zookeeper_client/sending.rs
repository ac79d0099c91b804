//! The sending of what waits, and the answer of a batch to each of its parts.
//!
//! A transaction is carried out whole or not at all. One that was refused is sent again part by part, so that each part has its own
//! answer; one whose answer is lost is unknown to each part, which looks for its node as if it had gone by itself.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use futures_util::future::{self, join_all};
use zookeeper_client::Client;

use super::Failure;
use super::asks::{self, AnswerSender, Append, Ask, Delete, List, Refused};
use super::batch;
use super::dispatch::Dispatch;
use super::pending::Tracked;
use super::waiting::{RequestFuture, Waiting};

/// The answer to one request for many listings.
type Frame = Result<Vec<asks::Listed>, Refused>;

/// Requests under way, and how many they are.
type Sent = Pin<Box<dyn Future<Output = usize> + Send>>;

/// The way in which one request is sent by itself.
type Singly<A> = fn(&Dispatch, &Arc<Client>, A) -> RequestFuture;

/// The sender of the requests that wait.
#[derive(Clone)]
pub(super) struct Sending {
    shared: Arc<Dispatch>,
}

impl Sending {
    /// Sends over this way.
    pub(super) fn over(shared: &Arc<Dispatch>) -> Self {
        Self { shared: shared.clone() }
    }

    /// Sends of what waits as much as may be under way, in batches. What nobody waits for any more leaves unsent.
    pub(super) fn send_waiting(&self) -> Vec<Sent> {
        let mut way = self.shared.way();
        let Some(client) = way.client.clone() else { return Vec::new() };
        let (mut free, mut taken) = (self.shared.free(), Vec::new());
        while let Some(next) = way.waiting.front() {
            let (is_wanted, turns) = (next.is_wanted(), next.turns());
            if is_wanted && turns > free {
                break;
            }
            let next = way.waiting.pop_front();
            if is_wanted {
                free -= turns;
                taken.push(next);
            }
        }
        let parts: Vec<_> = taken.iter().flatten().map(Waiting::part).collect();
        let batches = batch::batches(&parts);
        let send = |batch: Vec<usize>| {
            let requests: Vec<_> = batch.into_iter().filter_map(|index| taken[index].take()).collect();
            let turns = requests.iter().map(Waiting::turns).sum();
            self.shared.waited.fetch_add(turns, Ordering::AcqRel);
            let sent = self.send_batch(&client, requests);
            Box::pin(async move {
                sent.await;
                turns
            }) as Sent
        };
        batches.into_iter().map(send).collect()
    }

    /// Sends requests of one kind.
    fn send_batch(&self, client: &Arc<Client>, requests: Vec<Waiting>) -> RequestFuture {
        let (mut appends, mut deletes, mut lists, mut others) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for request in requests {
            match request {
                Waiting::Append(append) => appends.push(append),
                Waiting::Delete(delete) => deletes.push(delete),
                Waiting::List(list) => lists.push(list),
                Waiting::Other(other) => others.push(begun(other)),
            }
        }
        if !appends.is_empty() {
            return self.send_appends(client, appends);
        }
        if !deletes.is_empty() {
            return self.send_deletes(client, deletes);
        }
        if !lists.is_empty() {
            return self.send_lists(client, lists);
        }
        Box::pin(join_all(others).map(drop))
    }

    /// Makes places by one transaction, and lists the queues that are to be listed by one request right behind it.
    fn send_appends(&self, client: &Arc<Client>, mut appends: Vec<Append>) -> RequestFuture {
        if appends.len() == 1 || self.shared.stamp.is_refused() {
            let sent: Vec<_> = appends.drain(..).map(|append| append_singly(&self.shared, client, append)).collect();
            return Box::pin(join_all(sent).map(drop));
        }
        let places = appends.iter().map(|append| append.place.clone()).collect();
        let directories = appends.iter().filter_map(Append::listing).collect();
        let created = self.shared.track(asks::create_all(client.clone(), self.shared.stamp.path.clone(), places));
        let listed = self.list_all(client, directories);
        let sending = self.clone();
        Box::pin(async move {
            match created.await {
                Ok(Err(refused)) => {
                    if let Refused::Stamp = refused {
                        sending.shared.stamp.refuse();
                    }
                    // What was listed does not show what is made now.
                    drop(listed);
                    sending.send_singly(appends, append_singly).await;
                }
                made => {
                    let (created, lists): (Vec<_>, Vec<_>) = appends.into_iter().map(Append::into_parts).unzip();
                    tell(created, made.map(|made| made.unwrap_or_default()));
                    sending.tell_lists(lists.into_iter().flatten().collect(), listed).await;
                }
            }
        })
    }

    fn send_deletes(&self, client: &Arc<Client>, mut deletes: Vec<Delete>) -> RequestFuture {
        if deletes.len() == 1
            && let Some(only) = deletes.pop()
        {
            return delete_singly(&self.shared, client, only);
        }
        let paths = deletes.iter().map(|delete| delete.path.clone()).collect();
        let deleted = self.shared.track(asks::delete_all(client.clone(), paths));
        let sending = self.clone();
        Box::pin(async move {
            match deleted.await {
                Ok(Err(_)) => sending.send_singly(deletes, delete_singly).await,
                done => tell(deletes.into_iter().map(|delete| delete.answer), done.map(Result::unwrap_or_default)),
            }
        })
    }

    fn send_lists(&self, client: &Arc<Client>, mut lists: Vec<List>) -> RequestFuture {
        if lists.len() == 1
            && let Some(only) = lists.pop()
        {
            return list_singly(&self.shared, client, only);
        }
        let listed = self.list_all(client, lists.iter().map(|list| list.path.clone()).collect());
        let sending = self.clone();
        Box::pin(async move { sending.tell_lists(lists, listed).await })
    }

    /// Lists these directories, by as few requests as their answers are to be long; says how many each one is about.
    fn list_all(&self, client: &Arc<Client>, directories: Vec<Arc<str>>) -> Vec<(usize, Tracked<Frame>)> {
        let listings = &self.shared.listings;
        let divided = listings.divide(directories).into_iter();
        let list = |together: Vec<_>| {
            (together.len(), self.shared.track(asks::list_all(client.clone(), listings.clone(), together)))
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
                    let _ = list.answer.send(names.map_err(Failure::from));
                }
            }
            Ok(Err(_)) => self.send_singly(lists, list_singly).await,
            Err(failure) => tell(lists.into_iter().map(|list| list.answer), Err::<Vec<_>, _>(failure)),
        }
    }

    /// Sends each of these by itself, unless nobody waits for it any more.
    ///
    /// With the lock: whoever drops his call meanwhile has done so before this, or looks behind what is sent here.
    async fn send_singly<A: Ask>(&self, requests: Vec<A>, singly: Singly<A>) {
        let sent: Vec<_> = {
            let way = self.shared.way();
            // Without a client the session is over, and whoever waits is told so.
            let Some(client) = &way.client else { return };
            requests.into_iter().filter(A::is_wanted).map(|request| singly(&self.shared, client, request)).collect()
        };
        join_all(sent).await;
    }
}

fn append_singly(shared: &Dispatch, client: &Arc<Client>, append: Append) -> RequestFuture {
    let (place, (created, list)) = (append.place.clone(), append.into_parts());
    let made = shared.track(asks::create(client.clone(), place));
    let listed = list.map(|list| list_singly(shared, client, list));
    Box::pin(async move {
        // Here and below: nobody may wait for it any more.
        let _ = created.send(made.await);
        if let Some(listed) = listed {
            listed.await;
        }
    })
}

fn delete_singly(shared: &Dispatch, client: &Arc<Client>, delete: Delete) -> RequestFuture {
    let deleted = shared.track(asks::delete(client.clone(), delete.path));
    Box::pin(async move { drop(delete.answer.send(deleted.await)) })
}

fn list_singly(shared: &Dispatch, client: &Arc<Client>, list: List) -> RequestFuture {
    let listed = shared.track(asks::list(client.clone(), shared.listings.clone(), list.path));
    Box::pin(async move { drop(list.answer.send(listed.await)) })
}

/// Tells each part its outcome, or all of them the one failure.
fn tell<T>(answers: impl IntoIterator<Item = AnswerSender<T>>, outcome: Result<Vec<T>, Failure>) {
    let answers = answers.into_iter();
    match outcome {
        Ok(outcomes) => answers.zip(outcomes).for_each(|(answer, outcome)| drop(answer.send(Ok(outcome)))),
        Err(Failure { fate, source }) => {
            let cause: Arc<dyn std::error::Error + Send + Sync> = source.into();
            answers.for_each(|answer| drop(answer.send(Err(Failure { fate, source: Box::new(cause.clone()) }))));
        }
    }
}

/// Polls a request once, at which the crate is asked.
fn begun(mut request: RequestFuture) -> RequestFuture {
    match request.as_mut().now_or_never() {
        Some(()) => Box::pin(future::ready(())),
        None => request,
    }
}
