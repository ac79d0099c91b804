//! Two connections to the server, each under a supervisor that redials for ever: [`link`] for commands, [`push`] for
//! what the server tells. They are apart because the client crate can hand a reply to the wrong caller when
//! subscriptions share a connection with commands.

pub(crate) mod dial;
pub(crate) mod link;
pub(crate) mod push;
mod uptime;

use std::time::Duration;

/// The first pause between two attempts to dial, and the longest before jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
