//! Clients that outlast a server's start, or an election, on a machine without time for it.

use std::time::Duration;

use lock_zk::{ClientOptions, ZkConfig, ZkLocks};

use crate::support::{PROMPTLY, connected, ms};

/// The time for which a session lives on without its server, and a wait without an answer.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A client with such a session, and such requests and waits.
pub(crate) async fn patient(url: &str) -> ZkLocks {
    connected(ZkConfig::new(url).with_session_timeout(LONG).with_tick_time(ms(200)).with_client(patience())).await
}

/// Requests and waits of this kind.
pub(crate) fn patience() -> ClientOptions {
    let mut options = ClientOptions::default();
    (options.op_timeout, options.patience) = (PROMPTLY, LONG);
    options
}
