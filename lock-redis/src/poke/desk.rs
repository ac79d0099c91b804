//! The pokes that are due, by server: one that does not answer holds up its own pokes only.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use super::limit::Limit;

/// The pipelines that are on their way to one server, at most.
const MOST_PIPELINES: usize = 16;
/// The servers that are remembered although nothing is due there. More are forgotten, and with them how long they took to
/// answer.
const MOST_IDLE: usize = 64;

/// The pokes that are due at all servers. Bounded by the number of locks that are waited for, each of which has one poke at most,
/// and of those that were waited for while the server has had its time for an answer.
///
/// `S` names a server, `K` what pokes of one pipeline have in common, `P` is a poke.
#[derive(Debug)]
pub(super) struct Desk<S, K, P> {
    servers: HashMap<S, Server<K, P>>,
    op_timeout: Duration,
}

/// The pokes for one server.
#[derive(Debug)]
struct Server<K, P> {
    /// By kind, the one whose turn it is first; no kind is without any.
    due: VecDeque<(K, VecDeque<P>)>,
    on_their_way: usize,
    limit: Limit,
}

/// Pokes for one pipeline, and the time for their answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch<S, K, P> {
    pub(super) server: S,
    pub(super) kind: K,
    pub(super) pokes: Vec<P>,
    pub(super) limit: Duration,
}

/// The end of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Everything was answered, after so long.
    Answered(Duration),
    /// Some of it was.
    InPart,
    /// Nothing was.
    Failed,
}

impl<S: Clone + Eq + Hash, K: Copy + Eq + Hash, P> Desk<S, K, P> {
    pub(super) fn new(op_timeout: Duration) -> Self {
        Self { servers: HashMap::new(), op_timeout }
    }

    /// Puts a poke behind those that are due at the same server.
    pub(super) fn add(&mut self, server: S, kind: K, poke: P) {
        let limit = || Limit::new(self.op_timeout);
        let new = || Server { due: VecDeque::new(), on_their_way: 0, limit: limit() };
        let due = &mut self.servers.entry(server).or_insert_with(new).due;
        // There are a few kinds at most.
        match due.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, pokes)) => pokes.push_back(poke),
            None => due.push_back((kind, VecDeque::from([poke]))),
        }
    }

    /// The pipelines that can be sent now, each of `size(kind)` pokes at most, one of each kind in turn: many pokes of one kind
    /// do not hold up the others.
    pub(super) fn take(&mut self, size: impl Fn(K) -> usize) -> Vec<Batch<S, K, P>> {
        let mut batches = Vec::new();
        for (name, server) in &mut self.servers {
            while server.on_their_way < MOST_PIPELINES
                && let Some((kind, mut due)) = server.due.pop_front()
            {
                let pokes = due.drain(..size(kind).min(due.len())).collect();
                server.on_their_way += 1;
                batches.push(Batch { server: name.clone(), kind, pokes, limit: server.limit.get() });
                if !due.is_empty() {
                    server.due.push_back((kind, due));
                }
            }
        }
        batches
    }

    /// Takes note of the end of a pipeline, and drops the pokes for this server that are not wanted any more.
    pub(super) fn ended(&mut self, server: &S, outcome: Outcome, is_wanted: impl Fn(&P) -> bool) {
        if let Some(server) = self.servers.get_mut(server) {
            server.due.iter_mut().for_each(|(_, due)| due.retain(&is_wanted));
            server.due.retain(|(_, due)| !due.is_empty());
            server.on_their_way = server.on_their_way.saturating_sub(1);
            match outcome {
                Outcome::Answered(took) => server.limit.answered(took),
                Outcome::InPart => {}
                Outcome::Failed => server.limit.failed(),
            }
        }
        if self.servers.len() > MOST_IDLE {
            self.servers.retain(|_, server| server.on_their_way > 0 || !server.due.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn desk() -> Desk<&'static str, (), u32> {
        Desk::new(2 * SECOND)
    }

    fn take(desk: &mut Desk<&'static str, (), u32>, server: &str) -> Vec<Vec<u32>> {
        let batches = desk.take(|()| 2).into_iter();
        batches.filter(|batch| batch.server == server).map(|batch| batch.pokes).collect()
    }

    #[test]
    fn a_server_that_does_not_answer_holds_up_its_own_pokes_only() {
        let mut desk = desk();
        (0..100).for_each(|poke| desk.add("dead", (), poke));
        assert_eq!(take(&mut desk, "dead").len(), MOST_PIPELINES);
        desk.add("healthy", (), 1);
        assert_eq!(take(&mut desk, "healthy"), [[1]]);
        desk.ended(&"healthy", Outcome::Answered(Duration::ZERO), |_| true);
        desk.ended(&"dead", Outcome::Failed, |poke| *poke != 32);
        desk.add("healthy", (), 2);
        let limits = |batch: Batch<_, _, _>| (batch.server, batch.pokes, batch.limit);
        let mut next: Vec<_> = desk.take(|()| 2).into_iter().map(limits).collect();
        next.sort();
        // The next of the dead one's that are still wanted, in their order, and the time for an answer is each server's own.
        assert_eq!(next, [("dead", vec![33, 34], 2 * SECOND), ("healthy", vec![2], 3 * SECOND / 2)]);
    }

    #[test]
    fn kinds_take_turns() {
        let mut desk = Desk::new(SECOND);
        (0..10 * MOST_PIPELINES).for_each(|poke| desk.add("one", 'a', poke));
        (0..10).for_each(|poke| desk.add("one", 'b', poke));
        let kinds = |desk: &mut Desk<_, _, _>| desk.take(|_| 1).iter().map(|batch| batch.kind).collect::<String>();
        assert_eq!(kinds(&mut desk), "ab".repeat(MOST_PIPELINES / 2));
        // As each comes back one more is sent: whose turn it is is remembered.
        let mut later = String::new();
        for _ in 0..6 {
            desk.ended(&"one", Outcome::Answered(Duration::ZERO), |_| true);
            later += &kinds(&mut desk);
        }
        assert_eq!(later, "ababaa");
    }

    #[test]
    fn what_is_due_is_sent_once() {
        let mut desk = desk();
        (0..3).for_each(|poke| desk.add("one", (), poke));
        assert_eq!(take(&mut desk, "one"), [vec![0, 1], vec![2]]);
        assert!(take(&mut desk, "one").is_empty());
    }

    #[test]
    fn idle_servers_are_forgotten() {
        let mut desk = Desk::new(SECOND);
        for server in 0..10 * MOST_IDLE {
            desk.add(server, (), ());
            assert_eq!(desk.take(|()| 1).len(), 1);
            desk.ended(&server, Outcome::InPart, |()| true);
        }
        assert!(desk.servers.len() <= MOST_IDLE);
    }
}
