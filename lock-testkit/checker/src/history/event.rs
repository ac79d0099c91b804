//! The events of a history, one a line. `docs/histories.md` tells the format for readers in other languages.
//!
//! Events and kinds of lock may be added. The steps of a call and the phases of a fault are complete, and the structs are made by
//! literals, so that a new field of one is a breaking change.

use serde::{Deserialize, Serialize};

use super::recipe::{Lead, RecordSeen, SlotAnswer, SlotAsk, Work};
use super::rules::Rules;
pub use super::text::Text;

/// Something that happened, as the process saw it that wrote it down.
///
/// A call is stamped before it is made, and its answer after it has come. Whatever a busy machine does between the stamp
/// and the call, a hold then looks shorter than it was, and nobody is accused of an overlap that was none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The time, in nanoseconds of the machine's boot-time clock: one for all its processes, whatever the date is set to.
    pub t: u64,
    /// The process that saw it.
    pub proc: Text,
    /// The event itself.
    #[serde(flatten)]
    pub what: What,
}

/// The kinds of events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
#[non_exhaustive]
pub enum What {
    /// The beginning of a run.
    Run(Box<Run>),
    /// A request for a lock.
    Acquire(Call<Ask, Granted>),
    /// A renewal, where it can be seen.
    Renew(Call<Renewal, Renewed>),
    /// A downgrade, or permits that are released in part.
    Change(Call<Change, Done>),
    /// The lock is released.
    Release(Call<Sample, Done>),
    /// A holder was asked whether it still holds.
    Check(Check),
    /// A holder was told that it has lost the lock.
    Lost(Lost),
    /// A resource behind a lock was used; written down by the resource, in the order in which it admits.
    Access(Access),
    /// Something was done to a process or a server.
    Fault(Fault),
    /// A process has been killed.
    Death(Death),
    /// Grants were taken away at the server, behind their holders' backs.
    Theft(Theft),
    /// The server's own word on a lock.
    Truth(Truth),
    /// The waiters that one release woke up.
    Woken(Woken),
    /// Entries that are left at the server when everybody has gone.
    Residue(Residue),
    /// A request to run one slot of a job. `fail`: it did not run, and may be asked for again; `info`: it may have run.
    Slot(Call<SlotAsk, SlotAnswer>),
    /// A job at work; written down by its resource.
    Work(Work),
    /// A process was asked whether it leads.
    Lead(Lead),
    /// A record was read.
    Record(RecordSeen),
    /// The end of a run: nobody was cut off in the middle.
    End,
}

impl What {
    /// The acquisition that it is about, if it is about one.
    #[must_use]
    pub fn id(&self) -> Option<&Text> {
        match self {
            Self::Acquire(Call { id, .. })
            | Self::Renew(Call { id, .. })
            | Self::Change(Call { id, .. })
            | Self::Release(Call { id, .. })
            | Self::Check(Check { id, .. })
            | Self::Lost(Lost { id, .. })
            | Self::Slot(Call { id, .. })
            | Self::Work(Work { id, .. })
            | Self::Access(Access { id, .. }) => Some(id),
            Self::Run(_)
            | Self::Fault(_)
            | Self::Death(_)
            | Self::Theft(_)
            | Self::Truth(_)
            | Self::Woken(_)
            | Self::Residue(_)
            | Self::Lead(_)
            | Self::Record(_)
            | Self::End => None,
        }
    }
}

/// A call and its answers, tied together by an id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call<I, O> {
    /// The acquisition that this is about: unique within the history.
    pub id: Text,
    /// The call's step.
    #[serde(flatten)]
    pub step: Step<I, O>,
}

/// The steps of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "lowercase")]
pub enum Step<I, O> {
    /// The call is about to be made.
    Invoke(I),
    /// The call has succeeded.
    Ok(O),
    /// The call has certainly not been carried out.
    Fail(Failed),
    /// Whether it was, or will be, carried out is not known.
    Info(Failed),
}

/// The circumstances of a run, and the rules by which its history is to be judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The backend's name.
    pub backend: Text,
    /// The seed that replays the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The backend's promises, and how much the run has to contain.
    #[serde(default)]
    pub rules: Rules,
}

/// The request of an acquisition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// The identity that the lock goes by: never a thread's.
    pub owner: Text,
    /// The lock's name. Locks of different kinds with one name are different locks.
    pub res: Text,
    /// The kind of lock.
    pub kind: Kind,
    /// The number of permits, of a semaphore.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub permits: u32,
    /// The number of permits in all, of a semaphore.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub limit: u32,
    /// The time for which a server keeps a grant that nobody renews, in nanoseconds (of a session: its timeout).
    pub ttl: u64,
    /// The time for which the caller waits, in nanoseconds; 0 is a try, nothing is without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<u64>,
    /// The common name of several acquisitions that are made all or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Text>,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

/// The kinds of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// Exclusive.
    Mutex,
    /// Exclusive between owners.
    Reentrant,
    /// Shared, of a read-write lock.
    Read,
    /// Exclusive, of a read-write lock.
    Write,
    /// A number of the permits of a semaphore.
    Sem,
}

impl Kind {
    /// The namespace of the kind: one for all kinds that meet at one lock.
    #[must_use]
    pub fn space(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Reentrant => "reentrant",
            Self::Read | Self::Write => "rwlock",
            Self::Sem => "semaphore",
        }
    }

    /// Whether a grant of this kind excludes every other one.
    #[must_use]
    pub fn is_exclusive(self) -> bool {
        matches!(self, Self::Mutex | Self::Reentrant | Self::Write)
    }
}

/// A grant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Granted {
    /// The fencing token, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// The grant's name at the server, by which [`Truth`] knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Text>,
    /// The time at which the request was sent that the grant rests on, if that can be seen; then renewals are written
    /// down too, because
    /// a belief beyond the lease is judged (L1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// The depth at which its owner is inside now, of a reentrant lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Whether the holder believed in it when the answer had come.
    #[serde(flatten)]
    pub sample: Sample,
}

/// The holder's own word, asked just after the event's time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Whether it holds; nothing if it cannot be asked, and then it is taken to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// The time until which it holds at least if nothing is renewed any more, on the clock of the events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
}

/// A call that did not succeed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// The reason in a word: `held` by somebody else, `not_held` any more, or the kind of error.
    pub err: Text,
    /// The reason at length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Text>,
}

/// A renewal that is about to be sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Renewal {}

/// A renewal that was confirmed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Renewed {
    /// The time at which the request was sent, if that can be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// The time from then for which the server keeps the grant, if not for the TTL; in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
}

/// The change of a grant into another one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The new kind.
    pub kind: Kind,
    /// The permits that are kept.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub permits: u32,
}

/// A success that says nothing more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Done {}

/// A holder's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The acquisition.
    pub id: Text,
    /// The answer.
    #[serde(flatten)]
    pub sample: Sample,
}

/// A loss that the holder was told of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    /// The acquisition.
    pub id: Text,
    /// Why: `expired`, `session_expired`, `taken`, `forced`.
    pub reason: Text,
}

/// One use of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// The acquisition under which it was made.
    pub id: Text,
    /// The resource.
    pub target: Text,
    /// Whether the resource refuses tokens that are too old.
    pub fenced: bool,
    /// The token that was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Whether a shared grant was shown, and not an exclusive one.
    #[serde(default)]
    pub shared: bool,
    /// The value that was written; nothing for a read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<u64>,
    /// Whether it was admitted.
    pub accepted: bool,
}

/// The beginning or the end of a fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Ties beginning and end together.
    pub id: Text,
    /// The phase: start or heal.
    pub phase: FaultPhase,
    /// The fault's name, such as `sigstop`.
    pub name: Text,
    /// To whom: the name of a process in this history; any other name is of a server, or of the machine.
    pub target: Text,
    /// Whether it is on the links of its target alone: a process goes on meanwhile, and looks at its clock.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_links: bool,
    /// The evidence that it was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Text>,
}

/// The two ends of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultPhase {
    /// The fault is about to begin.
    Start,
    /// The fault is over.
    Heal,
}

/// The name of what nobody chose: a process, or the whole machine, did not run for a while.
pub const STALL: &str = "stall";

/// The death of a process, which was seen at the event's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Death {
    /// The process that died.
    pub victim: Text,
}

/// Grants that somebody else has taken away at the server, as no server does by itself: with the session that they hang
/// on, say. Their holders cannot know it yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Theft {
    /// The session that had them, as the server calls its client.
    pub session: Text,
    /// The grants' names at the server. Those of waiters are among them, who may be granted the lock in another session.
    pub grants: Vec<Text>,
    /// Before this instant nothing had been taken; by the event's time, everything was.
    pub after: u64,
}

/// The server's own word on one lock, at some instant between two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// The lock's name.
    pub res: Text,
    /// The lock's kind; `write` stands for all of a read-write lock.
    pub kind: Kind,
    /// Before this instant the question had not been sent; the answer had come by the event's time.
    pub after: u64,
    /// The grants that it has.
    pub holders: Vec<Text>,
}

/// The effect of one release on waiters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Woken {
    /// The lock's name.
    pub res: Text,
    /// The number of waiters that were woken up, or asked again.
    pub count: u64,
}

/// The entries that are left at the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Residue {
    /// One readable text for each entry.
    pub entries: Vec<Text>,
}
