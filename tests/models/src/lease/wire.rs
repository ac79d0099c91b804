//! The messages under way between a client and the server.

/// The number of pushes to one client that are under way at once; of more, the oldest is lost.
const MOST_PUSHES: usize = 2;

/// One attempt of one client; a request that carries it is known by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Nonce {
    pub(super) client: u8,
    pub(super) attempt: u8,
}

/// The requests of a client; all but the first carry the nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Request {
    /// `CLIENT KILL` of this client's former connections, see `client/link/predecessors/mod.rs`.
    Kill,
    Acquire(Nonce),
    Heartbeat(Nonce),
    Renew(Nonce),
    Release(Nonce),
    Cancel(Nonce),
    /// A cancellation as well: of a grant that came when nobody wanted it any more.
    GiveBack(Nonce),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    Killed,
    Granted {
        token: u8,
        lasts: u8,
    },
    /// In the queue, behind everything up to this token.
    Queued {
        last: u8,
        known: bool,
    },
    Heartbeat {
        known: bool,
        queued: bool,
        last: u8,
        /// The token, and for how long from now.
        grant: Option<(u8, u8)>,
    },
    Renewed(bool),
    /// The answer to a release or a cancellation.
    Ended,
    GivenBack,
}

/// The news of a hand-over, on the subscription connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Push {
    pub(super) nonce: Nonce,
    pub(super) token: u8,
}

/// One client's connections. Each keeps its order; between them there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) requests: Vec<Request>,
    pub(super) replies: Vec<Reply>,
    /// The requests on their way in a connection that broke: the server may still carry them out.
    pub(super) former: Vec<Request>,
    pub(super) pushes: Vec<Push>,
}

impl Link {
    /// The connection breaks: answers are lost, requests perhaps not.
    pub(super) fn cut(&mut self) {
        self.former.append(&mut self.requests);
        self.replies.clear();
    }

    /// Whether anything is lost with the connection.
    pub(super) fn is_busy(&self) -> bool {
        !self.requests.is_empty() || !self.replies.is_empty()
    }

    pub(super) fn push(&mut self, push: Push) {
        if self.pushes.len() == MOST_PUSHES {
            self.pushes.remove(0);
        }
        self.pushes.push(push);
    }
}
