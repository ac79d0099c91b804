//! Connections: [`link`] for commands to one server and [`links`] for those of a client, [`push`] for what servers tell,
//! [`key_tracking`] for changes of keys that foreign clients share.
//! Each is under a supervisor that redials for ever.
//!
//! Commands and pushes are apart because the client crate can hand a reply to the wrong caller when subscriptions share
//! a connection with commands. It is used for the protocol and for one connection alone: finding servers ([`locate`]) and
//! reaching them ([`dial`], [`tls`]) is done here.

mod compare_delete;
pub(crate) mod dial;
pub(crate) mod identity;
pub(crate) mod key_tracking;
pub(crate) mod link;
pub(crate) mod links;
mod loading;
pub(crate) mod locate;
mod pace;
pub(crate) mod push;
pub(crate) mod replica_acks;
pub(crate) mod tls;
mod uptime;
