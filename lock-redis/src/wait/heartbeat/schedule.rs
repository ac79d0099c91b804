//! The heartbeats that are due, by server: one that does not answer holds up its own heartbeats only.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use super::reply_timeout::ReplyTimeout;

/// The pipelines that are on their way to one server, at most.
const MOST_PIPELINES: usize = 16;
/// The servers that are remembered although nothing is due there. More are forgotten, and with them how long they took to
/// answer.
const MOST_IDLE: usize = 64;

/// The heartbeats that are due at one server, from which on it is looked whether they are wanted: whenever they have doubled since.
const SWEPT_FROM: usize = 1024;

/// The heartbeats that are due at all servers. Bounded by the number of locks that are waited for, each of which has one
/// heartbeat at most, as many as there were since the last look, and [`SWEPT_FROM`].
///
/// `S` names a server, `K` what heartbeats of one pipeline have in common, `P` is a heartbeat.
#[derive(Debug)]
pub(super) struct HeartbeatSchedule<S, K, P> {
    servers: HashMap<S, ServerHeartbeats<K, P>>,
    op_timeout: Duration,
}

/// The heartbeats for one server.
#[derive(Debug)]
struct ServerHeartbeats<K, P> {
    /// By kind, the one whose turn it is first; no kind is without any.
    due: VecDeque<(K, VecDeque<P>)>,
    on_their_way: usize,
    /// The number of heartbeats from which on those are dropped that are not wanted any more.
    swept_from: usize,
    timeout: ReplyTimeout,
}

/// Heartbeats for one pipeline, and the time for their answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeartbeatBatch<S, K, P> {
    pub(super) server: S,
    pub(super) kind: K,
    pub(super) heartbeats: Vec<P>,
    pub(super) timeout: Duration,
}

/// The end of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PipelineOutcome {
    /// Everything was answered, after so long.
    Answered(Duration),
    /// A part of it was answered.
    InPart,
    /// Nothing was answered.
    Failed,
}

impl<S: Clone + Eq + Hash, K: Copy + Eq + Hash, P> HeartbeatSchedule<S, K, P> {
    pub(super) fn new(op_timeout: Duration) -> Self {
        Self { servers: HashMap::new(), op_timeout }
    }

    /// Puts a heartbeat behind those that are due at the same server.
    pub(super) fn add(&mut self, server: S, kind: K, heartbeat: P) {
        let timeout = || ReplyTimeout::new(self.op_timeout);
        let new =
            || ServerHeartbeats { due: VecDeque::new(), on_their_way: 0, swept_from: SWEPT_FROM, timeout: timeout() };
        let due = &mut self.servers.entry(server).or_insert_with(new).due;
        // There are a few kinds at most.
        match due.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, heartbeats)) => heartbeats.push_back(heartbeat),
            None => due.push_back((kind, VecDeque::from([heartbeat]))),
        }
    }

    /// The pipelines that can be sent now, each of `size(kind)` heartbeats at most, one of each kind in turn: many
    /// heartbeats of one kind do not hold up the others. Those that are not wanted any more are left out.
    pub(super) fn take(
        &mut self,
        size: impl Fn(K) -> usize,
        is_wanted: impl Fn(&P) -> bool,
    ) -> Vec<HeartbeatBatch<S, K, P>> {
        let mut batches = Vec::new();
        for (name, server) in &mut self.servers {
            while server.on_their_way < MOST_PIPELINES
                && let Some((kind, mut due)) = server.due.pop_front()
            {
                let heartbeats: Vec<_> =
                    std::iter::from_fn(|| due.pop_front()).filter(&is_wanted).take(size(kind)).collect();
                if !heartbeats.is_empty() {
                    server.on_their_way += 1;
                    batches.push(HeartbeatBatch {
                        server: name.clone(),
                        kind,
                        heartbeats,
                        timeout: server.timeout.get(),
                    });
                }
                if !due.is_empty() {
                    server.due.push_back((kind, due));
                }
            }
        }
        batches
    }

    /// Takes note of the end of a pipeline, and drops the heartbeats for this server that are not wanted any more.
    pub(super) fn ended(&mut self, server: &S, outcome: PipelineOutcome, is_wanted: impl Fn(&P) -> bool) {
        if let Some(server) = self.servers.get_mut(server) {
            server.sweep(is_wanted);
            server.on_their_way = server.on_their_way.saturating_sub(1);
            match outcome {
                PipelineOutcome::Answered(took) => server.timeout.answered(took),
                PipelineOutcome::InPart => {}
                PipelineOutcome::Failed => server.timeout.failed(),
            }
        }
        if self.servers.len() > MOST_IDLE {
            self.servers.retain(|_, server| server.on_their_way > 0 || !server.due.is_empty());
        }
    }
}

impl<K, P> ServerHeartbeats<K, P> {
    /// Drops what is not wanted any more, once that is worth a look at everything that is due.
    fn sweep(&mut self, is_wanted: impl Fn(&P) -> bool) {
        let due = |due: &VecDeque<(K, VecDeque<P>)>| due.iter().map(|(_, due)| due.len()).sum::<usize>();
        if due(&self.due) < self.swept_from {
            return;
        }
        self.due.iter_mut().for_each(|(_, due)| due.retain(&is_wanted));
        self.due.retain(|(_, due)| !due.is_empty());
        self.swept_from = SWEPT_FROM.max(2 * due(&self.due));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn schedule() -> HeartbeatSchedule<&'static str, (), u32> {
        HeartbeatSchedule::new(2 * SECOND)
    }

    fn take(schedule: &mut HeartbeatSchedule<&'static str, (), u32>, server: &str) -> Vec<Vec<u32>> {
        let batches = schedule.take(|()| 2, |_| true).into_iter();
        batches.filter(|batch| batch.server == server).map(|batch| batch.heartbeats).collect()
    }

    #[test]
    fn a_server_that_does_not_answer_holds_up_its_own_heartbeats_only() {
        let mut schedule = schedule();
        (0..100).for_each(|heartbeat| schedule.add("dead", (), heartbeat));
        assert_eq!(take(&mut schedule, "dead").len(), MOST_PIPELINES);
        schedule.add("healthy", (), 1);
        assert_eq!(take(&mut schedule, "healthy"), [[1]]);
        schedule.ended(&"healthy", PipelineOutcome::Answered(Duration::ZERO), |_| true);
        schedule.ended(&"dead", PipelineOutcome::Failed, |_| true);
        schedule.add("healthy", (), 2);
        let limits = |batch: HeartbeatBatch<_, _, _>| (batch.server, batch.heartbeats, batch.timeout);
        let mut next: Vec<_> = schedule.take(|()| 2, |heartbeat| *heartbeat != 32).into_iter().map(limits).collect();
        next.sort();
        // The next of the dead one's that are still wanted, in their order, and the time for an answer is each server's own.
        assert_eq!(next, [("dead", vec![33, 34], 2 * SECOND), ("healthy", vec![2], 3 * SECOND / 2)]);
    }

    #[test]
    fn each_of_many_is_asked_for_a_few_times_whether_it_is_wanted() {
        const MANY: u32 = 100_000;
        let (mut schedule, asked) = (schedule(), std::cell::Cell::new(0_u32));
        let is_wanted = |heartbeat: &u32| {
            asked.set(asked.get() + 1);
            heartbeat.is_multiple_of(2)
        };
        (0..MANY).for_each(|heartbeat| schedule.add("one", (), heartbeat));
        let mut sent = 0;
        loop {
            let batches = schedule.take(|()| 2, is_wanted);
            if batches.is_empty() {
                break;
            }
            for batch in batches {
                sent += batch.heartbeats.len();
                schedule.ended(&"one", PipelineOutcome::InPart, is_wanted);
            }
        }
        assert_eq!(sent, MANY as usize / 2);
        assert!(asked.get() <= 4 * MANY, "asked {} times", asked.get());
    }

    #[test]
    fn who_comes_and_goes_while_a_server_is_dead_leaves_little() {
        let mut schedule = schedule();
        for heartbeat in 0..100 * SWEPT_FROM as u32 {
            schedule.add("dead", (), heartbeat);
            // A few of them are still waited for.
            schedule.ended(&"dead", PipelineOutcome::Failed, |heartbeat| *heartbeat < 10);
        }
        let due: usize = schedule.servers["dead"].due.iter().map(|(_, due)| due.len()).sum();
        assert!(due <= SWEPT_FROM, "{due} are due");
    }

    #[test]
    fn kinds_take_turns() {
        let mut schedule = HeartbeatSchedule::new(SECOND);
        (0..10 * MOST_PIPELINES).for_each(|heartbeat| schedule.add("one", 'a', heartbeat));
        (0..10).for_each(|heartbeat| schedule.add("one", 'b', heartbeat));
        let kinds = |schedule: &mut HeartbeatSchedule<_, _, _>| {
            schedule.take(|_| 1, |_| true).iter().map(|batch| batch.kind).collect::<String>()
        };
        assert_eq!(kinds(&mut schedule), "ab".repeat(MOST_PIPELINES / 2));
        // As each comes back one more is sent: whose turn it is is remembered.
        let mut later = String::new();
        for _ in 0..6 {
            schedule.ended(&"one", PipelineOutcome::Answered(Duration::ZERO), |_| true);
            later += &kinds(&mut schedule);
        }
        assert_eq!(later, "ababaa");
    }

    #[test]
    fn what_is_due_is_sent_once() {
        let mut schedule = schedule();
        (0..3).for_each(|heartbeat| schedule.add("one", (), heartbeat));
        assert_eq!(take(&mut schedule, "one"), [vec![0, 1], vec![2]]);
        assert!(take(&mut schedule, "one").is_empty());
    }

    #[test]
    fn idle_servers_are_forgotten() {
        let mut schedule = HeartbeatSchedule::new(SECOND);
        for server in 0..10 * MOST_IDLE {
            schedule.add(server, (), ());
            assert_eq!(schedule.take(|()| 1, |_| true).len(), 1);
            schedule.ended(&server, PipelineOutcome::InPart, |()| true);
        }
        assert!(schedule.servers.len() <= MOST_IDLE);
    }
}
