//! The one task that asks for all locks on which a client waits: its sign of life, and what brings back lost pushes.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, GrantId, Phase};

use crate::backend::Shared;
use crate::connection::request::Reply;
use crate::keys::Keys;
use crate::queue::{Answer, Due, Pause};

impl Shared {
    /// Gives back what a waiter that gave up was granted all the same. Best effort: the claim time ends it otherwise.
    async fn give_up(&self, nonce: GrantId, keys: &Keys) {
        let nonce = nonce.to_string();
        // Asked for in nobody's name, so that a next holder of this client is told by push too.
        let args = [nonce.as_bytes(), b"", self.channels.as_bytes(), keys.shared_arg()];
        if let Err(error) = self.run_once(&keys.scripts().cancel, keys, &args, Phase::Cancel).await {
            tracing::debug!(%error, "an unwanted grant could not be given back");
        }
    }

    async fn poke(&self, due: &Due) -> Result<Answer, Error> {
        let number = due.number.to_string();
        let nonces: Vec<_> = due.nonces.iter().map(GrantId::to_string).collect();
        let mut args =
            vec![self.client.as_bytes(), self.channels.as_bytes(), due.keys.shared_arg(), number.as_bytes(), b"1"];
        args.extend(nonces.iter().map(String::as_bytes));
        let poke = &due.keys.scripts().poke;
        let Reply { sent_at, value } = self.run_once(poke, &due.keys, &args, Phase::Wait).await?;
        let mut fields = self.fields(value, &number, Phase::Wait)?;
        let known = fields.number()? == 1;
        let pause = Pause::of(fields.number()?);
        let queued = fields.text()?.bytes().map(|digit| digit == b'1').collect();
        let last_token = u64::try_from(fields.number()?).unwrap_or_default();
        Ok(Answer { sent_at, known, pause, queued, last_token, grants: fields.grants()? })
    }
}

/// The one task that asks for all locks on which this client waits.
pub(crate) async fn for_ever(shared: Arc<Shared>) {
    let mut pokes = FuturesUnordered::new();
    let mut returns = FuturesUnordered::new();
    let mut changes = shared.link.changes();
    let mut echo_due: Option<BootInstant> = None;
    while !shared.link.is_closed() {
        let (due, next) = shared.waiters.due();
        if !due.is_empty() && echo_due.is_some_and(|asked| shared.push.heard_at() < asked) {
            tracing::info!(server = shared.link.server(), "no pushes arrive; subscribing anew");
            shared.push.distrust();
            echo_due = None;
        }
        for (nonce, keys) in shared.waiters.unwanted() {
            let shared = &shared;
            returns.push(async move { shared.give_up(nonce, &keys).await });
        }
        for due in due {
            let shared = &shared;
            pokes.push(async move {
                let answer = shared.poke(&due).await;
                (due, answer)
            });
        }
        tokio::select! {
            Some((due, answer)) = pokes.next() => {
                match answer {
                    Ok(answer) => {
                        echo_due = Some(answer.sent_at);
                        shared.waiters.answered(&due, &answer);
                        shared.look_out(&due.keys, answer.pause);
                    }
                    Err(error) => {
                        tracing::debug!(%error, "a waiter could not ask");
                        shared.waiters.unanswered(&due, &error);
                    }
                }
            }
            Some(()) = returns.next() => {}
            Ok(()) = changes.changed() => shared.waiters.ask_all(),
            () = shared.waiters.wake.notified() => {}
            () = SystemClock.sleep_until(next) => {}
        }
    }
}
