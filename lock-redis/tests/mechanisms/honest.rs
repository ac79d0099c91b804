//! Errors of waits and releases whose outcome is unknown, and of a server that refuses what a waiter asks.

use std::time::Duration;

use lock_redis::{ClientOptions, Error, ErrorKind, RedisConfig, RedisLocks};
use lock_testkit::faults::Injected;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};

use crate::server::{PROMPTLY, Server, configured, key, long, ms, soon};

/// A client behind a link that loses the answer to its first request about a name, and cannot be made again then.
struct Cut {
    server: Server,
    proxy: Proxy,
    locks: RedisLocks,
}

impl Cut {
    async fn new() -> Option<Self> {
        Self::with_op_timeout(ClientOptions::default().op_timeout).await
    }

    async fn with_op_timeout(op_timeout: Duration) -> Option<Self> {
        let server = Server::start().await?;
        server.knows_the_scripts().await;
        let proxy = Proxy::to(server.address().to_owned(), Protocol::Resp).unwrap();
        let mut options = ClientOptions::default();
        (options.op_timeout, options.patience) = (op_timeout, ms(2000));
        let config = RedisConfig::new(format!("redis://{}", proxy.address())).with_client(options);
        let locks = configured(config).await.unwrap();
        Some(Self { server, proxy, locks })
    }

    /// The answer to the next request that contains this is lost, and the `nth` one from now on is held on its way.
    fn unheard_and_held(&self, nth: u64, containing: &str) -> [Injected<'static>; 2] {
        let reset = LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, containing);
        let hold = LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(nth, containing);
        [reset, hold].map(|fault| self.proxy.inject(fault))
    }

    /// From now on the server cannot be reached anew, and the answer to the next request that contains this is lost.
    fn after_the_request(&self, containing: &str) -> [Injected<'static>; 2] {
        let refuse = self.proxy.inject(LinkFault::new(Toxic::Refuse, Direction::Both));
        let reset = LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, containing);
        [refuse, self.proxy.inject(reset)]
    }
}

fn is_unknown(error: &Error) {
    assert!(!error.is_definite(), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_whose_first_request_was_carried_out_unheard_does_not_end_in_a_definite_error() {
    let Some(cut) = Cut::new().await else { return };
    let _cut = cut.after_the_request("{honest}");
    is_unknown(&soon("it gives up", PROMPTLY, cut.locks.mutex("honest").lock()).await.unwrap_err());
    let held = cut.server.run(&["EXISTS", &key("honest")]).await.as_int();
    assert_eq!(held, Some(1), "it was carried out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_permit_that_was_granted_unheard_does_not_end_in_a_definite_error() {
    let Some(cut) = Cut::new().await else { return };
    drop(cut.locks.semaphore("other", 1).try_acquire().await.unwrap());
    let _cut = cut.after_the_request("{honest}");
    is_unknown(&soon("it gives up", PROMPTLY, cut.locks.semaphore("honest", 3).acquire()).await.unwrap_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_stood_in_line_when_the_server_went_away_is_told_that_it_may_have_been_granted() {
    let Some(cut) = Cut::new().await else { return };
    let other = cut.server.client().await;
    let held = other.mutex("honest").lock().await.unwrap();
    let mutex = cut.locks.mutex("honest");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    cut.server.until_queued("honest", 1).await;
    let _refused = cut.proxy.inject(LinkFault::new(Toxic::Refuse, Direction::Both));
    let _cut = cut.proxy.inject(LinkFault::new(Toxic::Reset, Direction::Both));
    held.release().await.unwrap();
    is_unknown(&soon("it gives up", PROMPTLY, waiting).await.unwrap().unwrap_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_server_refuses_to_write_is_told_why() {
    let Some(server) = Server::start().await else { return };
    let locks = server.impatient_client().await;
    let held = locks.mutex("honest").lock().await.unwrap();
    let mutex = locks.mutex("honest");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    server.until_queued("honest", 1).await;
    server.say("CONFIG SET min-replicas-to-write 1").await;
    let error = soon("it gives up", PROMPTLY, waiting).await.unwrap().unwrap_err();
    let cause = std::error::Error::source(&error).expect("it has a cause").to_string();
    assert!(cause.contains("too few replicas"), "{error}: {cause}");
    server.say("CONFIG SET min-replicas-to-write 0").await;
    held.release().await.unwrap();
}

/// Tests what is told when the grant is gone by an earlier sending and foreign data is in its place by the next one: which
/// sending that is depends on whether the request goes the short way.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_meets_foreign_data_where_an_earlier_sending_may_have_freed_the_lock_does_not_know() {
    let Some(cut) = Cut::with_op_timeout(PROMPTLY).await else { return };
    for (nth, name) in [(2, "second"), (3, "third")] {
        let held = cut.locks.mutex(name).with_lease(long()).lock().await.unwrap();
        let [unheard, way] = cut.unheard_and_held(nth, &key(name));
        let releasing = tokio::spawn(held.release());
        way.applied(PROMPTLY).await.unwrap();
        assert_eq!(cut.server.run(&["EXISTS", &key(name)]).await.as_int(), Some(0), "it was carried out");
        cut.server.run(&["RPUSH", &key(name), "foreign"]).await;
        way.heal().unwrap();
        unheard.heal().unwrap();
        let error = soon("it ends", PROMPTLY, releasing).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate, "sending {nth}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_that_meets_foreign_data_where_an_earlier_sending_may_have_left_the_lock_does_not_know() {
    let Some(cut) = Cut::with_op_timeout(PROMPTLY).await else { return };
    // So that the server knows the script, and the first request is the one that counts.
    cut.locks.mutex("other").lock().await.unwrap().leave(ms(1000)).await.unwrap();
    let held = cut.locks.mutex("left").with_lease(long()).lock().await.unwrap();
    let [unheard, way] = cut.unheard_and_held(2, &key("left"));
    let leaving = tokio::spawn(held.leave(ms(10_000)));
    way.applied(PROMPTLY).await.unwrap();
    cut.server.run(&["DEL", &key("left")]).await;
    cut.server.run(&["RPUSH", &key("left"), "foreign"]).await;
    way.heal().unwrap();
    unheard.heal().unwrap();
    let failed = soon("it ends", PROMPTLY, leaving).await.unwrap().unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Indeterminate, "{failed:?}");
}
