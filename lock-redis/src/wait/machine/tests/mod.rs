//! Tests of the machine, event by event.

mod agenda;
mod crowd;
mod grants;
mod pauses;
mod short_heartbeats;

use lock_core::{FencingToken, Phase};

use super::*;

#[derive(Debug, Clone, PartialEq, Eq)]
struct OneLock;

impl Lock for OneLock {
    fn name(&self) -> &str {
        "lock"
    }

    fn is_shared(&self) -> bool {
        false
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedLock(&'static str);

impl Lock for NamedLock {
    fn name(&self) -> &str {
        self.0
    }

    fn is_shared(&self) -> bool {
        false
    }
}

fn at(ms: u64) -> BootInstant {
    BootInstant::from_origin(Duration::from_millis(ms))
}

fn id(waiter: u8) -> GrantId {
    GrantId::from_bytes([waiter; 16])
}

fn granted(waiter: u8, token: u64) -> Granted {
    Granted { nonce: id(waiter), token: FencingToken::new(token).unwrap(), valid_for: Duration::from_secs(2) }
}

fn reply(sent_at: BootInstant) -> HeartbeatReply {
    let (pause, queued) = (Pause::Regular, vec![true]);
    HeartbeatReply { sent_at, known: true, pause, last_token: None, queued, holder: None, grants: Vec::new() }
}

/// A machine with these waiters, queued by requests that were sent and answered at one instant.
fn queued(waiters: &[u8], now: BootInstant) -> Waiters<OneLock, u8> {
    let mut machine = Waiters::default();
    for waiter in waiters {
        machine.enter(id(*waiter), *waiter);
        let (sent_at, ticket, pause) = (now, (*waiter).into(), Pause::Regular);
        let reply = Enqueued { sent_at, ticket, known: true, pause, last_token: 0 };
        let actions = machine.queued(now, id(*waiter), &OneLock, reply);
        assert_eq!(actions.ask, *waiter == waiters[0], "the heartbeat task is told of a new queue");
    }
    machine
}

fn heartbeat(machine: &mut Waiters<OneLock, u8>, now: BootInstant) -> DueHeartbeat<OneLock> {
    machine.ask_all(now);
    machine.due(now, 1).0.pop().unwrap()
}
