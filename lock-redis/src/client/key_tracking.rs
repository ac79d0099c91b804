//! Hears when keys change that are shared with foreign clients, whose releases tell nobody.
//!
//! The server tells every client that has looked at a key when that changes (`CLIENT TRACKING`). Looks have a connection of their own to
//! each master, made when a foreign client is first in the way. If tracking is refused, or a notice is lost, the waiters' heartbeats find
//! the change.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::driver::log;
use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::{Instant, timeout};

use super::dial::{Commands, Opener};
use super::pace::Pace;
use crate::address::Address;
use crate::error::is_of_connection;

/// The number of keys that one pipeline looks at.
const MOST: usize = 128;
/// The number of looks that wait at most for one master; the heartbeats find what more would have heard.
const WAITING: usize = 16_384;
/// The time without a look after which a connection is closed.
const IDLE: Duration = Duration::from_secs(30);
/// The time in which nobody looks after a refusal: the server does not know how to track, or this user may not have it track.
const REFUSED: Duration = Duration::from_secs(5);

/// The handler of a key that has changed; does not block.
pub(crate) type OnChange = Arc<dyn Fn(&str) + Send + Sync>;

/// The trackers of one client, one for each master where a foreign client was in the way of late.
pub(crate) struct KeyTracking {
    opener: Arc<Opener>,
    heard: OnChange,
    each: Mutex<HashMap<Address, mpsc::Sender<Look>>>,
    /// The runtime on which the client was connected: its tasks go on there, whoever has needed one first.
    home: Handle,
}

/// A look at a key, and whether it is expected to be there.
#[derive(Debug)]
struct Look {
    key: String,
    is_held: bool,
}

impl KeyTracking {
    pub(crate) fn new(opener: Arc<Opener>, heard: OnChange) -> Self {
        Self { opener, heard, each: Mutex::default(), home: Handle::current() }
    }

    /// Tells once when this key changes: at once if it is not as expected. Best effort.
    pub(crate) fn listen(&self, server: &Address, key: &str, is_held: bool) {
        let mut look = Look { key: key.to_owned(), is_held };
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ear) = each.get(server) {
            match ear.try_send(look) {
                Ok(()) | Err(TrySendError::Full(_)) => return,
                Err(TrySendError::Closed(unsent)) => look = unsent,
            }
        }
        let (ear, looks) = mpsc::channel(WAITING);
        self.home.spawn(listen(self.opener.clone(), server.clone(), looks, self.heard.clone()));
        // Its receiver is alive, and there is room: nothing ends it before the first look.
        let _ = ear.try_send(look);
        each.retain(|_, ear| !ear.is_closed());
        each.insert(server.clone(), ear);
    }
}

impl fmt::Debug for KeyTracking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyTracking").finish_non_exhaustive()
    }
}

/// The task of one master; it ends when nobody has looked for a while, or the client is gone.
async fn listen(opener: Arc<Opener>, server: Address, mut looks: mpsc::Receiver<Look>, heard: OnChange) {
    let mut present = None;
    let (mut pace, mut deaf_until) = (Pace::default(), Instant::now());
    while let Ok(Some(first)) = timeout(IDLE, looks.recv()).await {
        let mut batch = vec![first];
        while batch.len() < MOST
            && let Ok(next) = looks.try_recv()
        {
            batch.push(next);
        }
        if Instant::now() < deaf_until {
            continue;
        }
        if let Err(error) = look(&opener, &server, &mut present, &batch, &heard).await {
            log(|| tracing::debug!(%server, %error, "changes of shared keys are not heard"));
            if let Some(Tracker { since, .. }) = present.take() {
                pace.ended_after(since.elapsed());
            }
            let pause = if is_of_connection(&error) { pace.pause() } else { REFUSED };
            deaf_until = Instant::now() + pause;
        }
    }
}

/// A connection that tells of changes, and since when there is one.
struct Tracker {
    commands: Commands,
    since: Instant,
}

async fn look(
    opener: &Opener,
    server: &Address,
    present: &mut Option<Tracker>,
    batch: &[Look],
    heard: &OnChange,
) -> RedisResult<()> {
    let ear = match present {
        Some(ear) => ear,
        None => {
            let told = heard.clone();
            let commands = opener.tracking_commands(server, move |push: PushInfo| tell(&push, &told)).await?;
            present.insert(Tracker { commands, since: Instant::now() })
        }
    };
    let mut pipeline = redis::pipe();
    for look in batch {
        pipeline.cmd("EXISTS").arg(&look.key);
    }
    let found = ear.commands.connection.send_packed_commands(&pipeline, 0, batch.len()).await?;
    for (look, found) in batch.iter().zip(found) {
        // An error is of one key, which is on its way to another server: the heartbeats find it there.
        if matches!(found, Value::Int(found) if (found == 1) != look.is_held) {
            heard(&look.key);
        }
    }
    Ok(())
}

/// `[keys]`, or nothing where all keys are gone.
fn tell(push: &PushInfo, heard: &OnChange) -> Result<(), redis::aio::SendError> {
    if push.kind == PushKind::Invalidate {
        for value in push.data.iter().filter_map(Value::as_sequence).flatten() {
            if let Value::BulkString(key) = value
                && let Ok(key) = std::str::from_utf8(key)
            {
                heard(key);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_push_of_changes_from_outside_names_keys_or_nothing() {
        let samples = [
            &b">2\r\n$10\r\ninvalidate\r\n*2\r\n$4\r\njobs\r\n$1\r\na\r\n"[..],
            b">2\r\n+invalidate\r\n_\r\n",
            b">2\r\n+message\r\n*1\r\n$1\r\na\r\n",
        ];
        lock_testkit::fuzz::bytes("changes", &samples, |bytes| {
            let Ok(Value::Push { kind, data }) = redis::parse_redis_value(bytes) else { return };
            let told = Arc::new(Mutex::new(Vec::new()));
            let hears = told.clone();
            let heard: OnChange = Arc::new(move |key: &str| hears.lock().unwrap().push(key.to_owned()));
            let is_of_changes = kind == PushKind::Invalidate;
            assert!(tell(&PushInfo { kind, data }, &heard).is_ok());
            let told = told.lock().unwrap();
            assert!(is_of_changes || told.is_empty());
            assert!(
                told.iter()
                    .all(|key| bytes.windows(key.len().max(1)).any(|part| part == key.as_bytes()) || key.is_empty())
            );
        });
    }
}
