//! The connections of one client: [`members`] has the servers and asks all of them at once; [`fan_out`] has their answers, and hands what the
//! caller does not wait for to [`background`], the one task of a client. [`member`] is one server: its connection, and the releases that are pending for it when it
//! can be reached again; [`send_queue`] has the requests that wait to be sent there together.

mod background;
pub(super) mod fan_out;
pub(super) mod member;
pub(super) mod members;
pub(super) mod send_queue;
