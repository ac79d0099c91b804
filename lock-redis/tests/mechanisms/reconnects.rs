//! Reconnecting: once after an outage, whoever waits; no slower the hundredth time; and never in a tight loop.

use std::sync::Arc;
use std::task::{Context, Wake};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_redis::{ClientOptions, ErrorKind, LeaseOptions, RedisConfig, RedisLocks};
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use tokio::sync::Notify;

use crate::server::{PROMPTLY, Server, about_time, calls, configured, eventually, long, ms, obtain, soon};

/// A server of a test's own behind a link.
struct Far {
    server: Server,
    link: Proxy,
}

impl Far {
    async fn start() -> Option<Self> {
        let server = Server::start().await?;
        let link = Proxy::to(server.address(), Protocol::Resp).unwrap();
        Some(Self { server, link })
    }

    fn url(&self) -> String {
        format!("redis://{}", self.link.address())
    }

    /// Lets every round trip take this long, as long as the guard lives.
    fn round_trip(&self, takes: Duration) -> impl Drop + use<> {
        let delay = Toxic::Delay { by: takes / 2, jitter: Duration::ZERO };
        self.link.inject(LinkFault::new(delay, Direction::Both))
    }
}

/// With an operation timeout of which a slow machine leaves enough, so that no silence of its own ends a connection.
#[tokio::test(flavor = "multi_thread")]
async fn after_an_outage_hundreds_that_wait_cost_one_reconnect() {
    let Some(far) = Far::start().await else { return };
    let _slow = far.round_trip(ms(60));
    let options = ClientOptions::default().with_op_timeout(ms(4000));
    let locks = configured(RedisConfig::new(far.url()).with_client(options)).await.unwrap();
    let before = far.link.connections();
    let refused = far.link.inject(LinkFault::new(Toxic::Refuse, Direction::Both));
    let reset = far.link.inject(LinkFault::new(Toxic::Reset, Direction::Both));
    eventually("both connections have ended", PROMPTLY, async || far.link.open_connections() == 0).await;
    reset.heal().unwrap();
    // Their time is over one after the other, so that some have none left when the server is back.
    let waiting: Vec<_> = (0..300)
        .map(|i| {
            let locks = locks.clone();
            tokio::spawn(async move {
                tokio::time::sleep(ms(12) * i).await;
                // On a slow machine a release may be told as unknown; nothing is left of it all the same.
                let _ = obtain(&locks, format!("wait/{i}"), PROMPTLY * 6).await.release().await;
            })
        })
        .collect();
    tokio::time::sleep(ms(5000)).await;
    refused.heal().unwrap();
    soon("all are granted", PROMPTLY * 6, join_all(waiting)).await.into_iter().for_each(|done| done.unwrap());
    // The grants needed no pushes, whose connection pauses by itself between two attempts.
    eventually("both are made anew", PROMPTLY, async || far.link.connections() - before >= 2).await;
    assert_eq!(far.link.connections() - before, 2, "one for commands, one for pushes");
    far.server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_too_short_for_its_link_costs_the_others_nothing() {
    let Some(far) = Far::start().await else { return };
    let _slow = far.round_trip(ms(60));
    let locks = RedisLocks::connect(far.url()).await.unwrap();
    let lease = LeaseOptions::new(ms(9000)).with_renew_every(ms(300));
    let held = join_all((0..10).map(async |i| locks.mutex(format!("long/{i}")).with_lease(lease).lock().await)).await;
    let before = far.link.connections();
    // A third of it is less than a round trip, so that none of their renewals has time for an answer.
    for _ in 0..10 {
        let short = (0..5).map(async |i| {
            match locks.mutex(format!("short/{i}")).with_ttl(ms(150)).lock().await {
                Ok(held) => drop(held.lost().await),
                // On a busy machine the lease is over before its grant comes.
                Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:?}"),
            }
        });
        join_all(short).await;
    }
    assert_eq!(far.link.connections(), before, "the connection was given up");
    for held in held {
        held.unwrap().release().await.unwrap();
    }
    far.server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_kill_reconnecting_costs_the_same_each_time() {
    let Some(server) = Server::start().await else { return };
    if server.say("INFO server").await.as_text().unwrap().contains("redis_version:6.") {
        eprintln!("ignored: before Redis 7.0 a single subcommand cannot be denied");
        return;
    }
    assert!(server.say("ACL SETUSER locks on >pw ~* &* +@all -client|kill").await.is_ok());
    let locks = configured(RedisConfig::new(server.url_as("locks", "pw"))).await.unwrap();
    let mut tried = Vec::new();
    let rejected = |told: &str| -> u64 {
        let count = told.split(',').find_map(|field| field.strip_prefix("rejected_calls=")).unwrap();
        count.trim().parse().unwrap()
    };
    for _ in 0..30 {
        assert!(server.say("CLIENT KILL TYPE normal USER locks").await.as_int() > Some(0));
        obtain(&locks, "kills", PROMPTLY).await.release().await.unwrap();
        let denied = server.say("INFO commandstats").await.as_text().unwrap();
        let denied = denied.lines().find_map(|line| line.strip_prefix("cmdstat_client|kill:"));
        tried.push(rejected(denied.unwrap()));
    }
    let last = tried[29] - tried[28];
    assert!(last <= 2, "{last} kills were tried at the thirtieth reconnect");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_up_at_once_is_dialled_less_and_less_often() {
    let Some(far) = Far::start().await else { return };
    let locks = RedisLocks::connect(far.url()).await.unwrap();
    obtain(&locks, "hangs up", PROMPTLY).await.release().await.unwrap();
    let before = far.link.connections();
    let began = Instant::now();
    while began.elapsed() < ms(2000) {
        far.server.say("CLIENT KILL TYPE normal SKIPME yes").await;
        far.server.say("CLIENT KILL TYPE pubsub").await;
    }
    let made = far.link.connections() - before;
    assert!(made <= 40, "{made} connections in 2 s");
    obtain(&locks, "hangs up", PROMPTLY).await.release().await.unwrap();
}

#[test]
fn a_server_that_hangs_up_after_every_greeting_is_dialled_less_and_less_often() {
    about_time(async || {
        let Some(far) = Far::start().await else { return };
        let locks = RedisLocks::connect(far.url()).await.unwrap();
        obtain(&locks, "hangs up", PROMPTLY).await.release().await.unwrap();
        let dialled = async || {
            let all = far.server.say("CLIENT LIST TYPE normal").await.as_text().unwrap();
            let id = |line: &str| line.strip_prefix("id=")?.split(' ').next().map(str::to_owned);
            all.lines().filter_map(id).collect::<Vec<_>>()
        };
        let (before, mut seen) = (far.link.connections(), Vec::new());
        let began = Instant::now();
        while began.elapsed() < ms(2000) {
            // One that was there a moment ago has been greeted, and is in use.
            let present = dialled().await;
            for id in present.iter().filter(|id| seen.contains(*id)) {
                far.server.say(&format!("CLIENT KILL ID {id} SKIPME yes")).await;
            }
            seen = present;
            tokio::time::sleep(ms(5)).await;
        }
        let made = far.link.connections() - before;
        assert!((3..=40).contains(&made), "{made} connections in 2 s");
        obtain(&locks, "hangs up", PROMPTLY).await.release().await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_that_meet_a_server_without_its_scripts_tell_them_once() {
    let Some(server) = Server::start().await else { return };
    server.knows_the_scripts().await;
    let locks = server.client().await;
    server.say("SCRIPT FLUSH").await;
    server.say("CONFIG RESETSTAT").await;
    let each = join_all((0..300).map(async |i| locks.mutex(format!("scripts/{i}")).with_lease(long()).lock().await));
    let held: Vec<_> = each.await.into_iter().map(Result::unwrap).collect();
    let texts = |stats: String| {
        let told = stats.lines().find_map(|line| line.strip_prefix("cmdstat_eval:calls=")).map(str::to_owned);
        told.map_or(0, |told| told.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    let told = texts(server.say("INFO commandstats").await.as_text().unwrap());
    assert!((1..=3).contains(&told), "the text was sent {told} times");
    for held in held {
        held.release().await.unwrap();
    }
}

/// Wakes whoever keeps a future by itself.
#[derive(Default)]
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// The caller that tells a script may be polled when it likes, or never again.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_kept_while_it_tells_a_script_fails_nobody_else() {
    const OTHERS: u64 = 300;
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    let mutex = locks.mutex("told");
    mutex.inspect().await.unwrap();
    let (mut kept, mut before, woken) = (None, 0, Arc::<Woken>::default());
    // Its answer may come between two looks at what the server has been told: then there is another one.
    eventually("one has told the script and does not know it", PROMPTLY, async || {
        if kept.is_none() {
            server.say("SCRIPT FLUSH").await;
            before = calls(&server, "eval:").await;
        }
        let telling = kept.get_or_insert_with(|| Box::pin(mutex.inspect()));
        while calls(&server, "eval:").await == before {
            if telling.as_mut().poll(&mut Context::from_waker(&woken.clone().into())).is_ready() {
                kept = None;
                return None;
            }
            soon("it can go on", PROMPTLY, woken.0.notified()).await;
        }
        Some(())
    })
    .await;
    server.say("SCRIPT FLUSH").await;
    for told in join_all((0..OTHERS).map(async |_| mutex.inspect().await)).await {
        told.unwrap();
    }
    let texts = calls(&server, "eval:").await - before;
    assert!(texts < OTHERS / 3, "the text was sent {texts} times");
    kept.unwrap().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_on_the_other_side_of_the_world_can_be_connected_to() {
    let Some(far) = Far::start().await else { return };
    let _slow = far.round_trip(ms(520));
    let mut options = ClientOptions::default();
    options.op_timeout = ms(10_000);
    let config = RedisConfig::new(far.url()).with_client(options);
    let locks = RedisLocks::connect_with(config).await.unwrap();
    obtain(&locks, "far", PROMPTLY).await.release().await.unwrap();
}
