//! Sentinels: where the master is, and when that changes.
//!
//! All sentinels are asked at once. They may disagree while a failover is under way, and one that is cut off stays with
//! what it knew; the answer of the highest configuration epoch counts, and among equals the most frequent one. The highest
//! one is remembered for a while, as those that know it may not answer the next time. Whether the server found there is a
//! master is asked of itself ([`Locate::wants_master`]).
//!
//! Each sentinel announces a switch (`+switch-master`). Since that can be lost, they are also asked every few seconds.
//! On a switch both connections are dropped and dialled anew: whoever waits asks again, and what is held is verified. An attempt to
//! connect to the old master is given up too ([`Locate::moved_from`]): where its host has vanished, nobody would refuse it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{log, supervised};
use lock_core::{Error, ErrorKind, Phase};
use redis::{FromRedisValue, RedisResult, Value};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::address::Address;
use crate::client::dial::{Commands, Locate, Opener};
use crate::client::link::Link;
use crate::client::pace::Pace;
use crate::client::push::Push;
use crate::error;

/// The time after which the sentinels are asked although none of them announced anything.
const PERIOD: Duration = Duration::from_secs(3);
/// The time for which the others are waited for once most of them have answered.
const GRACE: Duration = Duration::from_millis(100);
/// The time for which a configuration is believed that no sentinel confirms: sentinels that were set up anew count their epochs from
/// the beginning.
const BELIEVED: Duration = Duration::from_secs(30);

const SWITCH: &str = "+switch-master";

/// The sentinels of one master.
#[derive(Debug)]
pub(crate) struct Sentinels {
    opener: Opener,
    master: String,
    each: Vec<Sentinel>,
    memory: watch::Sender<Memory>,
    switched: Notify,
}

/// The newest configuration, and when it was heard last, so that a sentinel that was cut off does not talk the client back to an older
/// one while the others do not answer.
#[derive(Debug, Default)]
struct Memory {
    newest: Option<(Vote, BootInstant)>,
}

#[derive(Debug)]
struct Sentinel {
    address: Address,
    /// The connection over which it was asked last.
    present: Mutex<Option<Commands>>,
}

/// The answer of one sentinel.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Vote {
    epoch: u64,
    master: Address,
}

impl Sentinels {
    pub(in crate::client) fn new(opener: Opener, addresses: Vec<Address>, master: String) -> Self {
        let each = addresses.into_iter().map(|address| Sentinel { address, present: Mutex::default() }).collect();
        Self { opener, master, each, memory: watch::Sender::default(), switched: Notify::new() }
    }

    /// The master's name in errors.
    pub(in crate::client) fn shown(&self) -> String {
        let sentinels: Vec<_> = self.each.iter().map(|sentinel| sentinel.address.to_string()).collect();
        format!("{} of {}", self.master, sentinels.join(","))
    }

    fn unknown(&self, what: &'static str) -> Error {
        Error::new(ErrorKind::Unavailable, Phase::Connect, what)
            .with_backend(crate::guarantees::NAME)
            .with_server(self.shown())
    }

    /// Asks this sentinel; `None` if it knows no master of this name.
    async fn ask(&self, sentinel: &Sentinel) -> RedisResult<Option<Vote>> {
        // Not in the condition: that would keep it locked for as long.
        let kept = sentinel.present().take();
        if let Some(commands) = kept {
            match self.ask_over(commands, sentinel).await {
                // It may have ended unnoticed while it was idle, and the sentinel be well.
                Err(error) if error::is_of_connection(&error) => {}
                answer => return answer,
            }
        }
        let commands = self.opener.commands(&sentinel.address).await?;
        self.ask_over(commands, sentinel).await
    }

    /// Asks over this connection, and keeps it if it answers.
    async fn ask_over(&self, mut commands: Commands, sentinel: &Sentinel) -> RedisResult<Option<Vote>> {
        let mut both = redis::pipe();
        both.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master);
        both.cmd("SENTINEL").arg("MASTER").arg(&self.master);
        let mut answers = commands.connection.send_packed_commands(&both, 0, 2).await?.into_iter();
        *sentinel.present() = Some(commands);
        let (address, details) = (answers.next().unwrap_or(Value::Nil), answers.next().unwrap_or(Value::Nil));
        Vote::read(address, details, &sentinel.address)
    }
}

#[async_trait]
impl Locate for Sentinels {
    /// Finds the master.
    ///
    /// # Errors
    /// If no sentinel says; the last error.
    async fn find(&self) -> Result<Address, Error> {
        let mut asking: FuturesUnordered<_> = self.each.iter().map(|sentinel| self.ask(sentinel)).collect();
        let (mut votes, mut answers, mut failure) = (Vec::new(), 0, None);
        let mut end = Instant::now() + self.opener.connect_timeout();
        while let Ok(Some(answer)) = tokio::time::timeout_at(end, asking.next()).await {
            match answer {
                Ok(vote) => {
                    votes.extend(vote);
                    answers += 1;
                    if answers > self.each.len() / 2 {
                        end = end.min(Instant::now() + GRACE);
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
        let mut master = None;
        self.memory.send_modify(|memory| master = memory.master(&votes, SystemClock.now()));
        master.ok_or_else(|| match failure {
            Some(failure) if answers == 0 => error::of_connect(failure, &self.shown()),
            None if answers == 0 => self.unknown("no sentinel answered in time"),
            _ => self.unknown("no sentinel knows a master of this name"),
        })
    }

    fn wants_master(&self) -> bool {
        true
    }

    async fn moved_from(&self, found: &Address) {
        let mut memory = self.memory.subscribe();
        // Never closed: this has the sender.
        let _ = memory.wait_for(|memory| memory.newest.as_ref().is_some_and(|(vote, _)| vote.master != *found)).await;
    }
}

impl Memory {
    /// Returns the master by these votes and by what is remembered, and remembers the newest configuration; `None` without any vote.
    fn master(&mut self, votes: &[Vote], now: BootInstant) -> Option<Address> {
        let elected = elected(votes)?;
        if let Some((newest, heard_at)) = &self.newest
            && elected.epoch < newest.epoch
            && now.since(*heard_at) < BELIEVED
        {
            return Some(newest.master.clone());
        }
        self.newest = Some((elected.clone(), now));
        Some(elected.master.clone())
    }
}

impl Vote {
    /// Reads the answers to `SENTINEL GET-MASTER-ADDR-BY-NAME` and `SENTINEL MASTER`.
    fn read(address: Value, details: Value, asked: &Address) -> RedisResult<Option<Self>> {
        let address: Option<(String, u16)> = FromRedisValue::from_redis_value(address.extract_error()?)?;
        let master = address.and_then(|(host, port)| Address::of(&host, port, asked));
        Ok(master.map(|master| Self { epoch: epoch(details), master }))
    }
}

impl Sentinel {
    fn present(&self) -> std::sync::MutexGuard<'_, Option<Commands>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Among names and values in turn; 0 where a sentinel's user may not ask for details.
fn epoch(details: Value) -> u64 {
    let details: Vec<String> =
        details.extract_error().ok().and_then(|it| redis::from_redis_value(it).ok()).unwrap_or_default();
    let found = details.chunks_exact(2).find(|pair| pair[0] == "config-epoch");
    found.and_then(|pair| pair[1].parse().ok()).unwrap_or_default()
}

/// The one of the highest epoch, and among equals the one that most name.
fn elected(votes: &[Vote]) -> Option<&Vote> {
    let count = |vote: &&Vote| votes.iter().filter(|other| other == vote).count();
    votes.iter().max_by_key(|vote| (vote.epoch, count(vote)))
}

/// Moves both connections to the new master at each switch, made ones and attempts, until the link is closed.
pub(in crate::client) async fn follow(sentinels: Arc<Sentinels>, link: Arc<Link>, push: Arc<Push>) {
    let mut watchers = JoinSet::new();
    for i in 0..sentinels.each.len() {
        let sentinels = sentinels.clone();
        watchers.spawn(supervised("sentinel", move || watch(sentinels.clone(), i)));
    }
    let mut doubts = link.doubts();
    loop {
        let is_hopeful = tokio::select! {
            () = sentinels.switched.notified() => true,
            // A connection that breaks as soon as it is made would be replaced without a pause.
            Some(()) = doubts.next() => false,
            () = tokio::time::sleep(PERIOD) => true,
        };
        if link.is_closed() {
            return;
        }
        let live = link.present();
        // Ends attempts to connect to another server, too.
        let Ok(master) = sentinels.find().await else { continue };
        match live {
            Some(live) if live.server != master => {
                log(|| tracing::warn!(from = %live.server, to = %master, "another server is master now"));
                link.distrust(live.generation);
            }
            None if is_hopeful => link.hurry(),
            _ => {}
        }
        if push.listens_to().is_some_and(|server| server != master) {
            push.distrust();
        }
    }
}

/// Listens to one sentinel, for ever.
async fn watch(sentinels: Arc<Sentinels>, i: usize) {
    let (address, mut pace) = (&sentinels.each[i].address, Pace::default());
    loop {
        tokio::time::sleep(pace.pause()).await;
        let Ok(mut subscription) = sentinels.opener.pushes(address, SWITCH).await else { continue };
        let began = SystemClock.now();
        // What was announced before is found by looking.
        sentinels.switched.notify_one();
        let mut announced = subscription.on_message();
        while let Some(message) = announced.next().await {
            if concerns(message.get_payload_bytes(), &sentinels.master) {
                sentinels.switched.notify_one();
            }
        }
        pace.ended_after(SystemClock.now().since(began));
    }
}

/// `name old-host old-port new-host new-port`.
fn concerns(payload: &[u8], master: &str) -> bool {
    payload.split(|byte| *byte == b' ').next() == Some(master.as_bytes())
}

#[cfg(test)]
mod tests {
    use lock_testkit::testing::installed;
    use lock_testkit_servers::redis::SentinelDeployment;

    use super::*;
    use crate::url::Login;

    fn vote(epoch: u64, master: &str) -> Vote {
        Vote { epoch, master: Address::parse(master, 0).unwrap() }
    }

    #[test]
    fn the_newest_configuration_counts_and_among_equals_the_majority() {
        assert_eq!(elected(&[]), None);
        let cut_off = [vote(1, "old:1"), vote(1, "old:1"), vote(2, "new:1")];
        assert_eq!(elected(&cut_off), Some(&vote(2, "new:1")));
        let under_way = [vote(2, "old:1"), vote(2, "new:1"), vote(2, "new:1")];
        assert_eq!(elected(&under_way), Some(&vote(2, "new:1")));
    }

    #[test]
    fn an_older_configuration_is_ignored_until_nobody_has_confirmed_the_newest_one_for_a_while() {
        let at = |seconds| BootInstant::from_origin(Duration::from_secs(seconds));
        let (old, new) = (vote(1, "old:1"), vote(2, "new:1"));
        let mut memory = Memory::default();
        assert_eq!(memory.master(&[old.clone(), new.clone()], at(0)), Some(new.master.clone()));
        assert_eq!(memory.master(&[], at(1)), None);
        assert_eq!(memory.master(std::slice::from_ref(&new), at(20)), Some(new.master.clone()));
        for second in 21..20 + BELIEVED.as_secs() {
            assert_eq!(
                memory.master(std::slice::from_ref(&old), at(second)),
                Some(new.master.clone()),
                "at {second} s"
            );
        }
        // Sentinels that were set up anew say nothing else for ever.
        assert_eq!(memory.master(std::slice::from_ref(&old), at(20 + BELIEVED.as_secs())), Some(old.master.clone()));
        // A newer one, and another word on the same, are believed at once.
        assert_eq!(memory.master(std::slice::from_ref(&new), at(51)), Some(new.master));
        let (third, other) = (vote(3, "third:1"), vote(3, "other:1"));
        for next in [third, other] {
            assert_eq!(memory.master(std::slice::from_ref(&next), at(52)), Some(next.master));
        }
    }

    /// A client's sentinels at this address of each deployment: `host:port`.
    fn named<'a>(addresses: impl IntoIterator<Item = &'a str>, master: &str) -> Sentinels {
        let opener = Opener::new(&Login::default(), 0, None, Duration::from_secs(5)).unwrap();
        let addresses = addresses.into_iter().map(|address| Address::parse(address, 0).unwrap()).collect();
        Sentinels::new(opener, addresses, master.to_owned())
    }

    /// A connection that was idle may have been reset on the way, or by a restart.
    #[tokio::test]
    async fn a_connection_that_died_between_two_looks_costs_no_vote() {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let sentinel = &deployment.sentinels()[0];
        let (sentinels, admin) = (named([sentinel.address()], deployment.master_name()), sentinel.client().unwrap());
        let master = Address::parse(deployment.nodes()[0].address(), 0).unwrap();
        for look in 1..=5 {
            let found = sentinels.find().await;
            assert_eq!(found.as_ref().ok(), Some(&master), "look {look}: {found:?}");
            let killed = admin.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await.unwrap();
            assert!(killed.as_int().is_some_and(|killed| killed > 0), "{killed:?}");
        }
    }

    /// Two deployments know a master by the same name: what one says is older.
    #[tokio::test]
    async fn a_sentinel_that_is_cut_off_does_not_lead_back_to_the_old_master_while_the_others_do_not_answer() {
        let started = tokio::join!(SentinelDeployment::start_own(), SentinelDeployment::start_own());
        let (Some(cut_off), Some(others)) = (installed(started.0), installed(started.1)) else { return };
        assert_eq!(cut_off.master_name(), others.master_name());
        let elected = others.fail_over().await.unwrap();
        let new = Address::parse(elected.address(), 0).unwrap();
        let other = &others.sentinels()[0];
        let sentinels = named([cut_off.sentinels()[0].address(), other.address()], others.master_name());
        assert_eq!(sentinels.find().await.unwrap(), new);
        other.kill().unwrap();
        assert_eq!(sentinels.find().await.unwrap(), new, "led back");
    }

    #[test]
    fn the_epoch_is_read_from_the_details_if_there_are_any() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let details = ["name", "m", "config-epoch", "17"].map(text).to_vec();
        assert_eq!((epoch(Value::Array(details)), epoch(Value::Nil)), (17, 0));
    }

    #[test]
    fn a_switch_of_another_master_is_none_of_ours() {
        assert!(concerns(b"mymaster 127.0.0.1 1 127.0.0.1 2", "mymaster"));
        assert!(!concerns(b"mymaster2 127.0.0.1 1 127.0.0.1 2", "mymaster"));
    }

    #[test]
    fn a_vote_from_outside_names_a_master_or_nobody() {
        let samples = [
            &b"*2\r\n$9\r\n10.0.0.17\r\n$4\r\n6379\r\n*4\r\n+name\r\n+m\r\n+config-epoch\r\n+17\r\n"[..],
            b"*2\r\n+::1\r\n:6379\r\n*4\r\n$12\r\nconfig-epoch\r\n:18446744073709551615\r\n+name\r\n+m\r\n",
            b"*-1\r\n-ERR No such master with that name\r\n",
            b"%1\r\n+a\r\n:1\r\n%1\r\n+config-epoch\r\n:1\r\n",
        ];
        let asked = Address::parse("sentinel", 1).unwrap();
        lock_testkit::fuzz::bytes("votes of sentinels", &samples, |bytes| {
            let mut parser = redis::Parser::new();
            let mut rest = bytes;
            let (Ok(address), Ok(details)) = (parser.parse_value(&mut rest), parser.parse_value(&mut rest)) else {
                return;
            };
            let Ok(Some(vote)) = Vote::read(address, details, &asked) else { return };
            let Address::Tcp { host, .. } = &vote.master else { panic!("{vote:?}") };
            assert!(!host.is_empty());
            assert_eq!(elected(std::slice::from_ref(&vote)), Some(&vote));
        });
    }
}
