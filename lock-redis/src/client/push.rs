//! The subscription connection: listens on this client's own channel, and nothing else.
//!
//! Pushes are at most once. Whoever depends on one asks again by itself (the heartbeat). While there are heartbeats, about one a
//! second makes the server say something on this channel: when nothing was heard although it was answered, the connection
//! is replaced.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{log, supervised};
use lock_core::{Error, FencingToken, GrantId, LossReason};
use redis::aio::PubSub;
use tokio::sync::Notify;

use super::dial::Dial;
use super::pace::Pace;
use crate::address::Address;
use crate::store::reply::Granted;

/// A message of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// A waiter of this client was granted its lock, for a claim time.
    Granted(Granted),
    /// An operator freed a grant of this client.
    Forced { nonce: GrantId, reason: LossReason },
    /// A shared key is left free for a moment: ask for this lock then.
    AskAfter { lock: String, pause: Duration },
    /// The connection was made anew: whatever was told meanwhile is lost.
    Reconnected,
}

/// The subscription connection of one client.
#[derive(Debug)]
pub(crate) struct Push {
    dial: Arc<Dial>,
    channel: String,
    heard: Mutex<BootInstant>,
    listens_to: Mutex<Option<Address>>,
    suspect: Notify,
    closed: AtomicBool,
}

impl Push {
    /// Subscribes, and keeps subscribed until [`close`](Push::close).
    ///
    /// # Errors
    /// If the first connection cannot be made.
    pub(crate) async fn connect(dial: Arc<Dial>, channel: String, tell: Inbox) -> Result<Arc<Self>, Error> {
        let push = Self::unconnected(dial, channel);
        let subscribed = push.subscribe().await?;
        push.keep_up(Some(subscribed), tell);
        Ok(push)
    }

    /// Begins to subscribe: for a server that may be down.
    pub(crate) fn begin(dial: Arc<Dial>, channel: String, tell: Inbox) -> Arc<Self> {
        let push = Self::unconnected(dial, channel);
        push.keep_up(None, tell);
        push
    }

    /// Starts the task that replaces every connection which breaks, from this one on.
    fn keep_up(self: &Arc<Self>, mut first: Option<PubSub>, tell: Inbox) {
        let push = self.clone();
        tokio::spawn(supervised("subscription", move || supervise(push.clone(), first.take(), tell.clone())));
    }

    fn unconnected(dial: Arc<Dial>, channel: String) -> Arc<Self> {
        Arc::new(Self {
            dial,
            channel,
            heard: Mutex::new(SystemClock.now()),
            listens_to: Mutex::default(),
            suspect: Notify::new(),
            closed: AtomicBool::new(false),
        })
    }

    /// Whether there is a subscription, as far as this client knows.
    pub(crate) fn is_up(&self) -> bool {
        self.listens_to().is_some()
    }

    /// The instant at which the server said something last.
    pub(crate) fn heard_at(&self) -> BootInstant {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server that has the subscription.
    pub(super) fn listens_to(&self) -> Option<Address> {
        self.listens_to.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the connection.
    pub(crate) fn distrust(&self) {
        self.suspect.notify_one();
    }

    /// Ends the supervisor and the connection.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.suspect.notify_one();
    }

    async fn subscribe(&self) -> Result<PubSub, Error> {
        let (server, connection) = self.dial.pushes(&self.channel).await?;
        *self.listens_to.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        self.hear();
        Ok(connection)
    }

    fn listens_nowhere(&self) {
        *self.listens_to.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn hear(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = SystemClock.now();
    }
}

/// The receiver of messages; runs on the task that reads the connection, and does not block.
pub(crate) type Inbox = Arc<dyn Fn(Message) + Send + Sync>;

async fn supervise(push: Arc<Push>, first: Option<PubSub>, tell: Inbox) {
    let mut pace = Pace::default();
    let mut present = first;
    if present.is_none() {
        push.listens_nowhere();
    }
    loop {
        if let Some(connection) = present.take() {
            let began = SystemClock.now();
            listen(&push, connection, &tell).await;
            pace.ended_after(SystemClock.now().since(began));
        }
        tokio::time::sleep(pace.pause()).await;
        if push.closed.load(Ordering::Acquire) {
            return;
        }
        match push.subscribe().await {
            Ok(connection) => {
                tell(Message::Reconnected);
                present = Some(connection);
            }
            Err(error) => log(|| tracing::debug!(server = push.dial.server, %error, "cannot subscribe")),
        }
    }
}

/// Until the connection ends, or is to end.
async fn listen(push: &Push, connection: PubSub, tell: &Inbox) {
    hear_all(push, connection, tell).await;
    push.listens_nowhere();
}

async fn hear_all(push: &Push, mut connection: PubSub, tell: &Inbox) {
    let mut pushes = connection.on_message();
    loop {
        let message = tokio::select! {
            biased;
            // What has come shows that the connection is alive.
            message = pushes.next() => message,
            () = push.suspect.notified() => return,
        };
        let Some(message) = message else { return };
        push.hear();
        match parse(message.get_payload_bytes()) {
            Ok(Some(message)) => tell(message),
            Ok(None) => {}
            Err(what) => {
                log(|| tracing::warn!(channel = push.channel, what, "a push that is none of ours was ignored"));
            }
        }
    }
}

/// `G<nonce>:<token>:<claim ms>`, `F<nonce>:<JSON>`, `P<ms>:<lock key>`, `E`.
fn parse(payload: &[u8]) -> Result<Option<Message>, &'static str> {
    let text = std::str::from_utf8(payload).map_err(|_| "not UTF-8")?;
    let (kind, rest) = text.split_at_checked(1).ok_or("empty")?;
    let fields = || rest.split_once(':').ok_or("a field is missing");
    Ok(match kind {
        "E" => None,
        "G" => {
            let (nonce, rest) = fields()?;
            let (token, valid_for) = rest.split_once(':').ok_or("a field is missing")?;
            let (nonce, token, valid_for) = (id(nonce)?, parse_token(token)?, milliseconds(valid_for)?);
            Some(Message::Granted(Granted { nonce, token, valid_for }))
        }
        "F" => {
            let (nonce, why) = fields()?;
            Some(Message::Forced { nonce: id(nonce)?, reason: forced(why) })
        }
        "P" => {
            let (pause, lock) = fields()?;
            Some(Message::AskAfter { lock: lock.to_owned(), pause: milliseconds(pause)? })
        }
        _ => return Err("unknown kind"),
    })
}

fn id(text: &str) -> Result<GrantId, &'static str> {
    GrantId::from_str(text).map_err(|_| "not a nonce")
}

fn parse_token(text: &str) -> Result<FencingToken, &'static str> {
    text.parse().ok().and_then(FencingToken::new).ok_or("not a token")
}

fn milliseconds(text: &str) -> Result<Duration, &'static str> {
    text.parse().map(Duration::from_millis).map_err(|_| "not a time")
}

/// The operator's words: a JSON array of who and why.
pub(crate) fn forced(why: &str) -> LossReason {
    match serde_json::from_str::<(String, String)>(why) {
        Ok((by, reason)) => LossReason::ForceReleased { by, reason },
        Err(_) => LossReason::Taken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "00112233445566778899aabbccddeeff";

    #[test]
    fn every_kind_of_push_is_understood() {
        let nonce = id(NONCE).unwrap();
        let granted = parse(format!("G{NONCE}:17:2000").as_bytes()).unwrap();
        let token = FencingToken::new(17).unwrap();
        assert_eq!(granted, Some(Message::Granted(Granted { nonce, token, valid_for: Duration::from_secs(2) })));
        let forced = parse(format!("F{NONCE}:[\"ops\",\"it: hangs\"]").as_bytes()).unwrap();
        let reason = LossReason::ForceReleased { by: "ops".into(), reason: "it: hangs".into() };
        assert_eq!(forced, Some(Message::Forced { nonce, reason }));
        let ask = parse(b"P50:a:b").unwrap();
        assert_eq!(ask, Some(Message::AskAfter { lock: "a:b".into(), pause: Duration::from_millis(50) }));
        assert_eq!(parse(b"E").unwrap(), None);
    }

    #[test]
    fn garbage_on_the_channel_is_refused_and_not_believed() {
        for garbage in [&b""[..], b"G", b"Gxy:1:1", b"\xff", b"Z1", "üx".as_bytes(), b"P5"] {
            assert!(parse(garbage).is_err(), "{garbage:?}");
        }
        assert!(parse(format!("G{NONCE}:0:5").as_bytes()).is_err());
    }

    #[test]
    fn a_push_from_outside_is_one_of_ours_or_refused() {
        let samples = [
            format!("G{NONCE}:17:2000"),
            format!("F{NONCE}:[\"ops\",\"it: hangs\"]"),
            "P50:lock:mutex:{a}".to_owned(),
            "E".to_owned(),
        ];
        let samples: Vec<_> = samples.iter().map(String::as_bytes).collect();
        lock_testkit::fuzz::bytes("pushes", &samples, |payload| {
            let Ok(Some(message)) = parse(payload) else { return };
            let again = match &message {
                Message::Granted(Granted { nonce, token, valid_for }) => {
                    format!("G{nonce}:{token}:{}", valid_for.as_millis())
                }
                Message::Forced { nonce, reason: LossReason::ForceReleased { by, reason } } => {
                    format!("F{nonce}:{}", serde_json::json!([by, reason]))
                }
                Message::Forced { nonce, .. } => format!("F{nonce}:"),
                Message::AskAfter { lock, pause } => format!("P{}:{lock}", pause.as_millis()),
                Message::Reconnected => unreachable!("no server says that"),
            };
            assert_eq!(parse(again.as_bytes()), Ok(Some(message)), "{again}");
        });
    }
}
