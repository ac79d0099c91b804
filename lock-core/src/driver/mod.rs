//! For authors of backends: the traits that a backend implements.
//!
//! A backend answers only five questions: may this attempt have the lock now, tell me when it may, is this grant still
//! its holder's (renew), release it (release), and undo what an abandoned attempt left (cancel). Deadlines, renewal,
//! loss, guards, names, errors and drop are written once, in this crate.
//!
//! Start with [`Backend`] and [`MutexBackend`]; each further kind is one more trait. A kind whose trait is not
//! implemented does not compile for the user of a [`Client`](crate::Client), and is `None` from the erased
//! [`Locks`](crate::Locks). Two more traits are optional, [`RecordBackend`] and [`AdoptBackend`], and so are most methods of
//! [`Backend`]; what depends on the configuration is declared in [`Guarantees`], and refused at run time with
//! [`Unsupported`](crate::ErrorKind::Unsupported). `docs/writing-a-backend.md` walks from an empty crate to a green suite, and lists
//! what is optional.
//!
//! # What the core guarantees to a backend
//! - Each [`Attempt`] has a random [`GrantId`](crate::GrantId); that id is the nonce to store at the server, to
//!   compare on renewal and release, and by which a repeated request is recognised.
//! - When the future of `try_lock` or `lock` is dropped, or its outcome is unknown, and after every error of a wait,
//!   [`Backend::cancel`] is called until it says [`Cancelled::Settled`], or until nothing of the attempt can be left
//!   ([`Backend::outlasts_lease`]).
//! - The same holds for each attempt of a [`Backend::try_several`] whose future was dropped or whose outcome is unknown. After
//!   [`SeveralOutcome::OneByOne`] the locks are asked for one after the other, by new attempts.
//! - When `lock` returns `Ok(None)` at its deadline, `cancel` is called before the caller is told.
//! - Every request is bounded: one that has not ended half a second after its [`Attempt::op_timeout`] is dropped, and its
//!   outcome unknown; a wait with a deadline half a second and one such timeout after that. A backend keeps the operation
//!   timeout by itself; the bound is for the one that hangs.
//! - A clean-up that is given up is told to the backend ([`Backend::forget`]), which may ask for more time before
//!   ([`Backend::may_remain`]).
//! - Texts of users (labels, reasons) have at most 1 KiB.
//! - When a grant has ended and [`Backend::is_settled`] says that a late copy of one of its requests may still be on its
//!   way, or a part of it at the server, `cancel` is called in the same manner.
//!
//! A backend keeps tasks of its own alive: [`supervised`] starts one again that has panicked, and [`log`] keeps the panics of a
//! subscriber from it. What many tasks ask for at the same moment may go to its server together ([`Batch`]).

mod adopt;
mod attempt;
mod backend;
mod batch;
pub(crate) mod bound;
mod busy;
mod doubts;
mod guarantees;
mod id_map;
mod inspection;
mod notices;
mod record;
mod several;
mod tasks;
pub mod wait;

pub use adopt::AdoptBackend;
/// The macro that the traits of this module are written with, for their implementations.
pub use async_trait::async_trait;
pub use attempt::{Attempt, Cancelled, Grant, Kind, Left, Released, Renewal, Renewed};
pub use backend::{Backend, MutexBackend, Operator, ReentrantBackend, RwLockBackend, SemaphoreBackend};
pub use batch::{Batch, BatchPlace, Joined};
pub use busy::BusyLocks;
pub use doubts::{DoubtSource, Doubts};
pub use guarantees::{Guarantee, Guarantees, Support};
pub use id_map::IdMap;
pub use inspection::{Holder, Inspection, Waiter};
pub use notices::{Notice, NoticeSource, Notices};
pub use record::{Record, RecordBackend, RecordWrite};
pub use several::SeveralOutcome;
pub use tasks::{log, supervised};
