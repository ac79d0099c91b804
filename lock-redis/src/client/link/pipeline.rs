//! The runs of one script for many keys, in a pipeline.

use std::time::Duration;

use lock_core::Phase;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use redis::{RedisResult, Value};

use super::live::{AwaitedReply, late};
use super::request::{Failed, Raw, Text, evaluation_of};
use super::{Link, Live, NO_TIME};
use crate::client::dial::Commands;
use crate::error;
use crate::store::call::Call;
use crate::store::scripts::Script;

impl Link {
    /// Runs one script for many keys in a pipeline; one outcome for each.
    pub(crate) async fn run_each(
        &self,
        script: &Script,
        calls: &[Call],
        phase: Phase,
        until: BootInstant,
    ) -> Vec<Result<Raw, Failed>> {
        let patience = until.since(SystemClock.now());
        let live = match self.live(until).await {
            Ok(live) => live,
            Err(error) => {
                let failed = Failed::unsent(error);
                return calls.iter().map(|_| Err(failed.repeated(phase))).collect();
            }
        };
        // What is sent may be carried out, whether anybody has the time to be told so or not.
        if SystemClock.now() >= until {
            return calls.iter().map(|_| Err(Failed::no_turn(NO_TIME, phase, self.server()))).collect();
        }
        let outcomes = self.run_each_on(live, script, calls, until, patience).await;
        outcomes.into_iter().map(|outcome| outcome.map_err(|e| Failed::of(e, phase, self.server()))).collect()
    }

    /// [`run_each`](Link::run_each) on this connection, by a caller that had `patience` in all.
    pub(in crate::client) async fn run_each_on(
        &self,
        mut live: Live,
        script: &Script,
        calls: &[Call],
        until: BootInstant,
        patience: Duration,
    ) -> Vec<RedisResult<Raw>> {
        let time = (until, patience);
        let mut outcomes = self.send_each(&mut live, script, calls, Text::Never, time).await;
        let forgotten: Vec<_> =
            (0..outcomes.len()).filter(|i| outcomes[*i].as_ref().is_err_and(error::is_no_script)).collect();
        if !forgotten.is_empty() && SystemClock.now() < until {
            let again: Vec<_> = forgotten.iter().map(|i| calls[*i].clone()).collect();
            let answers = self.send_each(&mut live, script, &again, Text::Once, time).await;
            for (i, answer) in forgotten.into_iter().zip(answers) {
                outcomes[i] = answer;
            }
        }
        let generation = live.generation;
        outcomes.into_iter().map(|outcome| outcome.map(|value| Raw { value, generation })).collect()
    }

    /// Sends one script for many keys; all of them get the error if the pipeline fails or its time is over. However many
    /// it carried, that is one failure of the connection.
    async fn send_each(
        &self,
        live: &mut Live,
        script: &Script,
        calls: &[Call],
        text: Text,
        (until, patience): (BootInstant, Duration),
    ) -> Vec<RedisResult<Value>> {
        let (sent_at, _awaited) = (SystemClock.now(), AwaitedReply::one_more(&live.state.awaited));
        let pipeline = pipeline_of(script, calls, text);
        let sending = send_all(&mut live.commands, &pipeline, calls.len());
        let outcome = tokio::time::timeout(until.since(sent_at), sending).await.unwrap_or_else(|_| Err(late()));
        let outcomes: Vec<_> = match outcome {
            Ok(values) => values.into_iter().map(|value| self.checked_reply(live, value.extract_error())).collect(),
            Err(error) => calls.iter().map(|_| Err(error.clone())).collect(),
        };
        self.judge(live, sent_at, until, patience, outcomes.iter().find_map(|outcome| outcome.as_ref().err()));
        outcomes
    }
}

/// The runs of one script in a pipeline.
fn pipeline_of(script: &Script, calls: &[Call], text: Text) -> redis::Pipeline {
    let mut pipeline = redis::pipe();
    for (i, call) in calls.iter().enumerate() {
        pipeline.add_command(evaluation_of(script, call, if i == 0 { text } else { Text::Never }));
    }
    pipeline
}

pub(super) async fn send_all(
    commands: &mut Commands,
    pipeline: &redis::Pipeline,
    count: usize,
) -> RedisResult<Vec<Value>> {
    let values = commands.connection.send_packed_commands(pipeline, 0, count).await?;
    if values.len() == count {
        return Ok(values);
    }
    Err(std::io::Error::other(format!("{} replies to {count} commands", values.len())).into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::address::Address;
    use crate::client::dial::{Dial, Opener};
    use crate::error::RequestFate;
    use crate::store::scripts::RELEASE_SHORT;
    use crate::url::Login;

    #[tokio::test]
    async fn many_runs_that_have_no_time_left_are_not_sent() {
        let started = lock_testkit_servers::redis::RedisServer::start_own().await;
        let Some(server) = lock_testkit::testing::installed(started) else { return };
        let (host, port) = server.address().rsplit_once(':').map(|(host, port)| (host.to_owned(), port)).unwrap();
        let opener = Opener::new(&Login::default(), 0, None, Duration::from_secs(10)).unwrap();
        let address = Address::Tcp { host, port: port.parse().unwrap() };
        let link = Link::connect(Arc::new(Dial::to(Arc::new(opener), address))).await.unwrap();
        let calls = [Call::of(["a"]).with(["b"])];
        let outcomes = link.run_each(&RELEASE_SHORT, &calls, Phase::Renew, SystemClock.now()).await;
        let failed = outcomes.into_iter().next().unwrap().unwrap_err();
        assert_eq!((failed.fate, failed.error.what()), (RequestFate::Refused, NO_TIME), "{}", failed.error);
        link.close();
    }
}
