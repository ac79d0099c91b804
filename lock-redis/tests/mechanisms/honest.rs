//! Errors of a wait whose outcome is unknown, and of a server that refuses what a waiter asks.

use lock_redis::{ClientOptions, Error, RedisConfig, RedisLocks};
use lock_testkit::faults::Injected;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};

use crate::server::{PROMPTLY, SHORT, Server, key, ms, soon};

/// A client behind a link that loses the answer to its first request about a name, and cannot be made again then.
struct Cut {
    server: Server,
    proxy: Proxy,
    locks: RedisLocks,
}

impl Cut {
    async fn new() -> Option<Self> {
        let server = Server::start().await?;
        server.knows_the_scripts().await;
        let proxy = Proxy::to(server.address().to_owned(), Protocol::Resp).unwrap();
        let mut options = ClientOptions::default();
        (options.op_timeout, options.patience) = (SHORT, ms(2000));
        let config = RedisConfig::new(format!("redis://{}", proxy.address())).with_client(options);
        let locks = RedisLocks::connect_with(config).await.unwrap();
        Some(Self { server, proxy, locks })
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
    server.say("CONFIG SET maxmemory 1").await;
    let error = soon("it gives up", PROMPTLY, waiting).await.unwrap().unwrap_err();
    let cause = std::error::Error::source(&error).expect("it has a cause").to_string();
    assert!(cause.contains("out of memory"), "{error}: {cause}");
    server.say("CONFIG SET maxmemory 0").await;
    held.release().await.unwrap();
}
