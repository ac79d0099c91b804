//! One connection of a client: its number on the link, and the replies that it waits for.

use std::sync::Arc;

use super::active::Active;
use super::link::Link;
use super::replies::Replies;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) link: Arc<Link>,
    pub(super) number: u64,
    pub(super) replies: Replies,
}

impl Connection {
    /// Returns a new connection.
    ///
    /// # Errors
    /// The fault that refuses it.
    pub(super) fn new(link: Arc<Link>) -> Result<Self, Arc<Active>> {
        let number = link.count_connection()?;
        Ok(Self { link, number, replies: Replies::default() })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.link.count_end();
    }
}
