//! The servers, as one: each request is one step, as whatever writes goes through the leader, and what only reads stands
//! behind a write or a `sync` of the same session.

use lock_zk::machine::{Member, Role};

use super::Mutant;

/// A session: which client's, and which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Session {
    pub(super) client: u8,
    pub(super) number: u8,
}

/// One attempt of one client, as it stands in a node's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct AttemptId {
    pub(super) client: u8,
    pub(super) attempt: u8,
    pub(super) role: Role,
}

/// A node in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) id: AttemptId,
    pub(super) session: Session,
    /// The transaction that made it.
    pub(super) zxid: u8,
}

/// A node, as it is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Listed {
    pub(super) zxid: u8,
    role: Role,
}

impl Member<u8> for Listed {
    fn role(&self) -> Role {
        self.role
    }

    fn is_node(&self, zxid: &u8) -> bool {
        self.zxid == *zxid
    }
}

/// The life of a session, as the leader knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Life {
    session: Session,
    /// The time for which it still lives.
    left: u8,
    /// The age of a heartbeat of which the leader need not have heard yet. It has when the next one is answered.
    unheard: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Request {
    Create(AttemptId),
    List,
    /// The node of an attempt, behind a `sync`.
    Find(AttemptId),
    Watch(u8),
    /// Every node of an attempt, of whatever session.
    Remove(AttemptId),
    Heartbeat,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    Created {
        zxid: u8,
    },
    /// In the order of the queue.
    Listed(Vec<Listed>),
    Found(Option<Node>),
    NoNode,
    /// The event, not an answer.
    Gone,
    Removed,
    Heartbeat,
    Expired,
}

/// The servers' state.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Ensemble {
    /// In the order of their names.
    pub(super) queue: Vec<Node>,
    timeout: u8,
    sessions: Vec<Life>,
    watches: Vec<(Session, u8)>,
    last_zxid: u8,
    last_token: u8,
    pub(super) token_went_back: bool,
}

impl Ensemble {
    pub(super) fn new(timeout: u8) -> Self {
        Self { timeout, ..Self::default() }
    }

    pub(super) fn open(&mut self, session: Session) {
        self.sessions.push(Life { session, left: self.timeout, unheard: None });
    }

    pub(super) fn close(&mut self, session: Session) {
        self.sessions.retain(|life| life.session != session);
    }

    pub(super) fn lives_for(&self, session: Session) -> Option<u8> {
        self.sessions.iter().find(|life| life.session == session).map(|life| life.left)
    }

    /// Time passes; returns who is to be told that a node has gone.
    pub(super) fn tick(&mut self) -> Vec<Session> {
        for life in &mut self.sessions {
            life.left -= 1;
            life.unheard = life.unheard.map(|age| (age + 1).min(self.timeout));
        }
        let (over, sessions) = self.sessions.drain(..).partition(|life| life.left == 0);
        self.sessions = sessions;
        let over: Vec<Life> = over;
        let ended = |session| over.iter().any(|life| life.session == session);
        self.watches.retain(|(session, _)| !ended(*session));
        self.delete(|node| ended(node.session))
    }

    /// Carries out a request; with the answer, who is to be told that a node has gone.
    pub(super) fn carry_out(
        &mut self,
        session: Session,
        request: Request,
        mutant: Option<Mutant>,
    ) -> (Option<Reply>, Vec<Session>) {
        if self.lives_for(session).is_none() {
            return (Some(Reply::Expired), Vec::new());
        }
        let reply = match request {
            Request::Create(id) => self.create(id, session, mutant),
            Request::List => Reply::Listed(self.listed()),
            Request::Find(id) => self.find(id, session, mutant),
            Request::Watch(zxid) if self.queue.iter().any(|node| node.zxid == zxid) => {
                self.watches.push((session, zxid));
                return (None, Vec::new());
            }
            Request::Watch(_) => Reply::NoNode,
            Request::Remove(id) => {
                // Whoever removes its node waits for no other.
                self.watches.retain(|(other, _)| *other != session);
                let told = self.delete(|node| node.id == id);
                return (Some(Reply::Removed), told);
            }
            Request::Heartbeat => {
                if let Some(life) = self.sessions.iter_mut().find(|life| life.session == session) {
                    let heard = life.unheard.replace(0);
                    life.left = heard.map_or(life.left, |age| life.left.max(self.timeout - age));
                }
                Reply::Heartbeat
            }
        };
        (Some(reply), Vec::new())
    }

    fn listed(&self) -> Vec<Listed> {
        self.queue.iter().map(|node| Listed { zxid: node.zxid, role: node.id.role }).collect()
    }

    fn create(&mut self, id: AttemptId, session: Session, mutant: Option<Mutant>) -> Reply {
        self.last_zxid += 1;
        // An empty directory may be cleared away by the servers, and the numbers of its nodes begin anew.
        let anew = mutant == Some(Mutant::TokenFromName) && self.queue.is_empty();
        let token = if anew { 1 } else { self.last_zxid };
        self.token_went_back |= token <= self.last_token;
        self.last_token = token;
        self.queue.push(Node { id, session, zxid: self.last_zxid });
        Reply::Created { zxid: self.last_zxid }
    }

    fn find(&self, id: AttemptId, session: Session, mutant: Option<Mutant>) -> Reply {
        let any = mutant == Some(Mutant::FormerSession);
        let mut found = self.queue.iter().filter(|node| node.id == id && (any || node.session == session));
        Reply::Found(found.next().copied())
    }

    fn delete(&mut self, mut gone: impl FnMut(&Node) -> bool) -> Vec<Session> {
        let (deleted, queue) = self.queue.drain(..).partition(|node| gone(node));
        self.queue = queue;
        let deleted: Vec<Node> = deleted;
        let fires = |zxid| deleted.iter().any(|node| node.zxid == zxid);
        let (fired, watches) = self.watches.drain(..).partition(|(_, zxid)| fires(*zxid));
        self.watches = watches;
        let fired: Vec<(Session, u8)> = fired;
        fired.into_iter().map(|(session, _)| session).collect()
    }
}
