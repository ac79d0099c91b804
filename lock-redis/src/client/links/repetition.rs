//! Requests that failed, sent again.

use std::borrow::Borrow;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, wait};
use lock_core::{Error, Phase};

use super::{Links, SentBefore, mark_all};
use crate::client::link::request::{Failed, Reply};
use crate::error::RequestFate;
use crate::store::call::Request;

/// The pause before a request is sent again that was sent again already: the first one, and the longest. Jitter adds as much at
/// most.
const PAUSE: Duration = Duration::from_millis(30);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

impl Links {
    /// Runs a script again that failed, as long as nothing of its earlier runs can still be carried out.
    pub(super) async fn run_again(
        &self,
        attempts: &[impl Borrow<Attempt>],
        request: Request<'_>,
        phase: Phase,
        until: BootInstant,
        mut failed: Failed,
    ) -> Result<(Reply, SentBefore), Error> {
        let (mut unknown, mut pauses) = (None, wait::pauses(PAUSE, LONGEST_PAUSE));
        loop {
            let Failed { fate, error, .. } = failed;
            // At once for the first time. Whatever makes its outcome unknown may go on.
            if unknown.is_some() && fate != RequestFate::Refused {
                let pause = pauses.next().unwrap_or(LONGEST_PAUSE);
                SystemClock.sleep_until(SystemClock.now().plus(pause).min(until)).await;
            }
            let again = fate != RequestFate::Refused
                && SystemClock.now() < until
                && self.ready(&request.keys[0], until).await.is_ok()
                && self.is_settled(first_sent(attempts).unwrap_or(0), || request.keys[0].to_string());
            if !again {
                return Err(unknown.unwrap_or(error));
            }
            // This run may have been carried out: whatever a later one says, its error is the answer, unless one succeeds.
            unknown.get_or_insert(error);
            // The smallest number is of the earliest connection that may have carried anything of an attempt.
            let mark = |generation| mark_all(attempts, generation);
            failed = match self.run(request, phase, until, mark).await {
                Ok(reply) => return Ok((reply, SentBefore(true))),
                Err(failed) => failed,
            };
        }
    }
}

/// The number of the earliest connection over which anything of these attempts was sent.
fn first_sent(attempts: &[impl Borrow<Attempt>]) -> Option<u64> {
    attempts.iter().filter_map(|attempt| attempt.borrow().first_sent()).min()
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use lock_core::driver::Kind;
    use lock_core::{ErrorKind, Owner};
    use lock_testkit::testing::installed;
    use lock_testkit_servers::redis::RedisServer;

    use super::*;
    use crate::config::RedisConfig;
    use crate::store::scripts::ACQUIRE_SHORT;

    #[tokio::test]
    async fn a_request_whose_outcome_stays_unknown_is_sent_again_after_pauses() {
        let Some(server) = installed(RedisServer::start_own().await) else { return };
        let operator = server.client().unwrap();
        let config = RedisConfig::new(server.url());
        let links = Links::connect(&config, config.check().unwrap()).await.unwrap();
        let attempt = Attempt::new("again".into(), Kind::Mutex, Owner::new(), Duration::from_secs(30)).unwrap();
        let nonce = format!("{}:0123456789abcdef:{{}}:", attempt.id);
        let (keys, args) = (["a", "b", "c"].map(Cow::Borrowed), [nonce.as_bytes(), b"30000"]);
        let ask = async |until| {
            links.run_for(&attempt, Request::new(&ACQUIRE_SHORT, &keys, &args), Phase::Acquire, until).await
        };
        let runs = async || {
            let stats = operator.command(&["INFO", "commandstats"]).await.unwrap().to_string();
            let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=").map(str::to_owned));
            line.map_or(0, |line| line.split(',').next().unwrap().parse::<u32>().unwrap())
        };
        ask(links.until()).await.unwrap();
        operator.command(&["DEL", "a"]).await.unwrap();
        operator.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
        let late = SystemClock.now().plus(Duration::from_secs(30));
        let runs = loop {
            assert!(SystemClock.now() < late, "every refusal is told as one");
            let before = runs().await;
            // A refusal may be that of the probe.
            links.only().unwrap().pretend_probing();
            let error = ask(SystemClock.now().plus(Duration::from_millis(500))).await.unwrap_err();
            // Otherwise the reply to the probe has come meanwhile.
            if error.kind() == ErrorKind::Indeterminate {
                break runs().await - before;
            }
        };
        assert!((2..=8).contains(&runs), "it was sent {runs} times");
        links.close();
    }
}
