//! The messages under way between a client and the server.

/// One waiter of one client: each wants the lock once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Nonce {
    pub(super) client: u8,
    pub(super) waiter: u8,
}

/// The requests of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Request {
    /// `CLIENT KILL` of this client's former connections, see `client/predecessors/mod.rs`.
    Kill,
    Acquire(Nonce),
    /// A heartbeat of this client.
    Heartbeat(u8),
    Release(Nonce),
    Cancel(Nonce),
    /// A cancellation in nobody's name: of a grant that came when nobody wanted it any more.
    GiveBack(Nonce),
}

/// A request that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) request: Request,
    /// The second in which it was sent.
    pub(super) at: u8,
    /// Whether anybody waits for its reply.
    pub(super) is_awaited: bool,
}

/// A grant that a reply or a push names: the waiter, the token, and for how many seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Told {
    pub(super) nonce: Nonce,
    pub(super) token: u8,
    pub(super) lasts: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    /// Of a request that nobody waits for.
    None,
    Granted(Told),
    /// In the queue, behind everything up to this token.
    Queued {
        last: u8,
        known: bool,
    },
    Heartbeat {
        known: bool,
        /// The waiters of the client that are in the queue.
        queued: Vec<Nonce>,
        last: u8,
        held: Option<Told>,
    },
    /// The reply to a release or a cancellation, with the next holder if that is of the same client.
    Ended(Option<Told>),
}

/// One client's connections. Each keeps its order; between them there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) requests: Vec<Sent>,
    pub(super) replies: Vec<(Sent, Reply)>,
    /// The requests on their way in a connection that broke: the server may still carry them out.
    pub(super) former: Vec<Sent>,
    pub(super) pushes: Vec<Told>,
}

impl Link {
    pub(super) fn send(&mut self, request: Request, at: u8) {
        let is_awaited = !matches!(request, Request::Kill | Request::GiveBack(_));
        self.requests.push(Sent { request, at, is_awaited });
    }

    /// Nobody waits for the reply to this request any more.
    pub(super) fn forsake(&mut self, request: Request) {
        let sent = self.requests.iter_mut().filter(|sent| sent.request == request);
        sent.for_each(|sent| sent.is_awaited = false);
        self.replies.retain(|(sent, _)| sent.request != request);
    }

    /// Whether this request is on its way over the present connection.
    pub(super) fn carries(&self, request: Request) -> bool {
        self.requests.iter().any(|sent| sent.request == request)
    }

    /// The connection breaks: replies are lost, requests perhaps not.
    pub(super) fn cut(&mut self) {
        self.former.append(&mut self.requests);
        self.replies.clear();
    }

    /// Whether anything is lost with the connection.
    pub(super) fn is_busy(&self) -> bool {
        !self.requests.is_empty() || !self.replies.is_empty()
    }

    /// Whether anything is under way.
    pub(super) fn is_quiet(&self) -> bool {
        !self.is_busy() && self.former.is_empty() && self.pushes.is_empty()
    }
}
