//! The comparing and deleting of a key over a link, where its server does that by itself.

use std::pin::pin;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use redis::{RedisResult, Value};

use super::live::AwaitedReply;
use super::pipeline::send_all;
use super::{Link, Live};
use crate::client::compare_delete;
use crate::store::call::MutexText;

impl Link {
    /// Whether the present server has one.
    pub(in crate::client) fn compares(&self) -> bool {
        self.with_present(|live| live.compare_delete.is_some())
    }

    /// Deletes a mutex's key if it holds this text, and replies as `release_short.lua` does; `None` if the server does not do that by
    /// itself: then nothing was changed.
    pub(super) async fn compare_and_delete(
        &self,
        live: &mut Live,
        (key, held): (&str, &MutexText<'_>),
        asking: bool,
        until: BootInstant,
    ) -> Option<RedisResult<Value>> {
        let state = live.state.clone();
        let delete = state.compare_delete.as_ref().filter(|delete| !delete.is_refused())?;
        let (sent_at, _awaited) = (SystemClock.now(), AwaitedReply::one_more(&state.awaited));
        let commands = delete.commands(key, held, asking);
        let sending = send_all(&mut live.commands, &commands, 2 + usize::from(asking));
        let outcome = self.in_time(sent_at, until, pin!(sending)).await;
        let outcome = outcome.and_then(|answers| {
            let mut answers = answers.into_iter().rev().map(|answer| self.checked_reply(live, answer.extract_error()));
            let (whose, deleted) = (answers.next().unwrap_or_else(|| Ok(Value::Nil)), answers.next());
            compare_delete::reply(held.nonce, whose, deleted.unwrap_or_else(|| Ok(Value::Nil)))
        });
        self.judge(live, sent_at, until, self.op_timeout(), outcome.as_ref().err());
        match outcome {
            Err(error) if delete.is_refused_by(&error) => None,
            outcome => Some(outcome),
        }
    }
}
