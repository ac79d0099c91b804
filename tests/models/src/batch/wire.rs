//! The messages under way between the client and the server.

use std::slice;

use super::Mutant;

/// The requests of the client. The number of an attempt is its nonce.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Request {
    /// `CLIENT KILL` of the former connections, see `client/link/predecessors/mod.rs`.
    Kill,
    /// Acquisitions that go together.
    Batch(Vec<usize>),
    /// An acquisition by itself.
    Acquire(usize),
    /// A cancellation, or a release: both leave nothing of the attempt.
    End(usize),
}

/// The answer to one acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Granted,
    Held,
    /// Nothing was carried out.
    Refused,
}

/// A request that was sent, with the answers so far.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) request: Request,
    pub(super) answers: Vec<Answer>,
    /// Whether anybody waits for its reply.
    pub(super) is_awaited: bool,
}

/// The client's connections, one after the other. Each keeps its order; between them there is none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Link {
    /// The number of the newest connection.
    pub(super) number: u8,
    pub(super) is_up: bool,
    pub(super) requests: Vec<Sent>,
    /// Requests with all of their answers.
    pub(super) replies: Vec<Sent>,
    /// The requests on their way in connections that broke or were given up: the server may still carry them out.
    pub(super) former: Vec<Sent>,
    /// The replies on their way in one that was given up.
    pub(super) former_replies: Vec<Sent>,
    /// The number of the connection that was given up and still answers.
    answers: Option<u8>,
    /// The number of the newest connection that the server has ended.
    ended: u8,
    /// Whether so much time has passed since the last connection ended that nothing is left of it.
    pub(super) is_over: bool,
}

impl Request {
    /// The attempts that it asks for.
    pub(super) fn attempts(&self) -> &[usize] {
        match self {
            Self::Batch(members) => members,
            Self::Acquire(at) => slice::from_ref(at),
            Self::Kill | Self::End(_) => &[],
        }
    }
}

impl Sent {
    fn new(request: Request, is_awaited: bool) -> Self {
        Self { request, answers: Vec::new(), is_awaited }
    }

    /// The attempts that it asks for and that are not carried out yet.
    pub(super) fn left(&self) -> &[usize] {
        &self.request.attempts()[self.answers.len()..]
    }

    fn is_batch(&self) -> bool {
        matches!(self.request, Request::Batch(_))
    }

    /// Whether it is this attempt's batch, and somebody waits for the reply.
    fn is_awaited_by(&self, member: usize) -> bool {
        self.is_awaited && self.is_batch() && self.request.attempts().contains(&member)
    }
}

impl Link {
    /// The first connection.
    pub(super) fn new() -> Self {
        Self {
            number: 1,
            is_up: true,
            requests: Vec::new(),
            replies: Vec::new(),
            former: Vec::new(),
            former_replies: Vec::new(),
            answers: None,
            ended: 0,
            is_over: true,
        }
    }

    /// Whether this is the number of the present connection.
    pub(super) fn is_present(&self, number: u8) -> bool {
        self.is_up && number == self.number
    }

    /// Sends a request over the present connection.
    pub(super) fn send(&mut self, request: Request) {
        let is_awaited = request != Request::Kill;
        self.requests.push(Sent::new(request, is_awaited));
    }

    /// Puts a batch into the queue of this connection. Returns false if no reply comes over that.
    pub(super) fn put(&mut self, batch: Vec<usize>, over: u8) -> bool {
        if self.is_present(over) {
            self.send(Request::Batch(batch));
            return true;
        }
        let is_awaited = self.answers == Some(over);
        if over > self.ended {
            self.former.push(Sent::new(Request::Batch(batch), is_awaited));
        }
        is_awaited
    }

    /// The present connection is given up: replies that are on their way still come.
    pub(super) fn give_up(&mut self) {
        (self.is_up, self.answers, self.is_over) = (false, Some(self.number), false);
        self.former.append(&mut self.requests);
        self.former_replies.append(&mut self.replies);
    }

    /// Whether somebody waits for a reply over a connection that was given up.
    pub(super) fn awaits_former(&self) -> bool {
        self.former.iter().chain(&self.former_replies).any(|sent| sent.is_awaited)
    }

    /// No replies come any more over connections that were given up. Returns what is not answered now.
    pub(super) fn lose_replies(&mut self) -> Vec<Request> {
        self.answers = None;
        let lost = awaited(self.former_replies.drain(..).chain(self.former.iter().cloned()));
        self.former.iter_mut().for_each(|sent| sent.is_awaited = false);
        lost
    }

    /// The next connection is there. Its first command ends those before at the server, if the client may do that.
    pub(super) fn connect(&mut self, kills: bool) {
        (self.number, self.is_up) = (self.number + 1, true);
        if kills {
            self.send(Request::Kill);
        }
    }

    /// The server ends the former connections: what was not carried out never will be. Returns what is not answered now.
    pub(super) fn kill_former(&mut self) -> Vec<Request> {
        (self.answers, self.ended) = (None, self.number - 1);
        awaited(self.former.drain(..))
    }

    /// Time passes, until nothing of the former connections counts any more. Returns what is not answered now.
    pub(super) fn outlive_former(&mut self) -> Vec<Request> {
        let lost = self.lose_replies();
        self.former.clear();
        self.is_over = true;
        lost
    }

    /// Nobody waits for the reply to the batch of this attempt any more. Returns the batch.
    pub(super) fn forsake(&mut self, member: usize, mutant: Option<Mutant>) -> Option<Request> {
        let all = [&mut self.requests, &mut self.replies, &mut self.former, &mut self.former_replies];
        let batch = all.into_iter().flatten().find(|sent| sent.is_awaited_by(member))?;
        batch.is_awaited = mutant == Some(Mutant::GivenUpIsTold);
        Some(batch.request.clone())
    }

    /// The batches whose replies somebody waits for.
    pub(super) fn batches(&self) -> impl Iterator<Item = &Sent> {
        let all = [&self.requests, &self.replies, &self.former, &self.former_replies];
        all.into_iter().flatten().filter(|sent| sent.is_awaited && sent.is_batch())
    }

    /// Whether nothing that was sent over connection `first` or a later one can still be carried out, except over the present one, whose
    /// order tells. What kills the former connections comes first on that.
    pub(super) fn is_settled(&self, first: Option<u8>, kills: bool) -> bool {
        self.is_up && (kills || self.is_over || first == Some(self.number))
    }

    /// Whether an acquisition of this attempt can still be carried out.
    pub(super) fn carries(&self, at: usize) -> bool {
        self.requests.iter().chain(&self.former).any(|sent| sent.left().contains(&at))
    }

    /// Whether nothing is under way.
    pub(super) fn is_quiet(&self) -> bool {
        [&self.requests, &self.replies, &self.former, &self.former_replies].into_iter().all(Vec::is_empty)
    }
}

/// The requests that somebody waits for.
fn awaited(sent: impl Iterator<Item = Sent>) -> Vec<Request> {
    sent.filter(|sent| sent.is_awaited).map(|sent| sent.request).collect()
}
