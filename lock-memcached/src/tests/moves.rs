//! A server whose name leads to another place after a while, as after a failover or when a container was scheduled anew. The
//! resolver is a test's: nobody else can be told such things.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Client, ErrorKind, Guarantee, LeaseOptions};
use lock_testkit::testing::{about_time, eventually, installed};
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::client::link::Link;
use crate::network::{Network, Stream, SystemNetwork};
use crate::{MemcachedBackend, MemcachedConfig, RestartPolicy, connect};

const LEASE: Duration = Duration::from_secs(1);
/// Longer than a quarantine and the end of what was taken in vain.
const PATIENCE: Duration = Duration::from_secs(30);

/// The places of the one name.
#[derive(Debug, Clone, Default)]
struct Names(Arc<Mutex<Vec<SocketAddr>>>);

impl Names {
    fn lead_to(&self, server: &MemcachedServer) {
        *self.0.lock().unwrap() = vec![server.address().parse().unwrap()];
    }

    async fn connect(&self) -> Client<MemcachedBackend> {
        self.connect_as(|config| config).await
    }

    async fn connect_as(&self, set_up: impl FnOnce(MemcachedConfig) -> MemcachedConfig) -> Client<MemcachedBackend> {
        // No system knows this name.
        let mut config = set_up(MemcachedConfig::new("memcached://locks.invalid").with_longest_lease(LEASE));
        config.client.lease = LeaseOptions::new(LEASE);
        let network = Arc::new(self.clone());
        let link = Link::new(config.check().unwrap(), config.connections, config.client.op_timeout, network);
        Client::new(connect::over(link, &config).await.unwrap(), config.client).unwrap()
    }
}

#[async_trait]
impl Network for Names {
    async fn resolve(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(self.0.lock().unwrap().clone())
    }

    async fn connect(&self, place: SocketAddr) -> io::Result<Box<dyn Stream>> {
        SystemNetwork.connect(place).await
    }
}

async fn server(options: MemcachedOptions) -> Option<MemcachedServer> {
    installed(MemcachedServer::start_with(&options).await)
}

#[test]
fn everything_of_a_client_moves_with_its_server() {
    about_time(async || {
        let Some(first) = server(MemcachedOptions::new()).await else { return };
        let Some(second) = server(MemcachedOptions::new()).await else { return };
        let names = Names::default();
        names.lead_to(&first);
        let locks = names.connect().await;
        let held = locks.mutex("held").try_lock_for(PATIENCE).await.unwrap().unwrap();
        let (readers, permits) = (locks.rwlock("read"), locks.semaphore("permits", 2));
        let _lost = (readers.read().await.unwrap(), permits.acquire().await.unwrap());
        names.lead_to(&second);
        assert!(held.is_held(), "it is not asked while the server is where it was");
        first.kill().unwrap();
        // Until its end, and not beyond it.
        held.lost().await;
        // The epoch is tended, locks of every kind are taken, described, renewed, shown and freed by force at the new place.
        let next = locks.mutex("held").try_lock_for(PATIENCE).await.unwrap().expect("nobody goes there");
        let raw = second.client();
        assert!(raw.get("lock:epoch").await.unwrap().is_some());
        let kept = [raw.get("lock:mutex:held").await.unwrap(), raw.get("lock:semaphore:permits:limit").await.unwrap()];
        assert!(kept[0].is_some() && kept[1].is_none());
        let (reader, permit) = (readers.read().await.unwrap(), permits.acquire().await.unwrap());
        // Meanwhile somebody else is at the former place, and is not asked for anything.
        first.restart().await.unwrap();
        tokio::time::sleep(LEASE * 3).await;
        assert!(next.is_held() && reader.is_held() && permit.is_held(), "not renewed");
        eventually("its holder is told", PATIENCE, async || {
            locks
                .mutex("held")
                .inspect()
                .await
                .unwrap()
                .holders
                .iter()
                .any(|holder| holder.grant == Some(next.grant_id()))
        })
        .await;
        assert!(locks.mutex("held").force_release(next.grant_id(), "the test").await.unwrap());
        next.lost().await;
        reader.release().await.unwrap();
        permit.release().await.unwrap();
        let asked = first.client().stats("").await.unwrap();
        assert_eq!((&*asked["cmd_meta"], &*asked["cmd_get"], &*asked["curr_items"]), ("0", "0", "0"), "{asked:?}");
    });
}

/// A server that takes another one's place is asked how it is set up, before it grants anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_evicts_is_noticed_when_it_takes_the_place_of_one_that_does_not() {
    let Some(first) = server(MemcachedOptions::new()).await else { return };
    let Some(second) = server(MemcachedOptions::new().evicting()).await else { return };
    let names = Names::default();
    names.lead_to(&first);
    let (locks, strict) = (names.connect().await, names.connect_as(|config| config.with_refuse_eviction(true)).await);
    for locks in [&locks, &strict] {
        locks.mutex("a").try_lock_for(PATIENCE).await.unwrap().unwrap().release().await.unwrap();
        locks.require(&[Guarantee::ExclusionAcrossRestart]).unwrap();
    }
    names.lead_to(&second);
    first.kill().unwrap();
    let _held = locks.mutex("a").try_lock_for(PATIENCE).await.unwrap().unwrap();
    let error = locks.require(&[Guarantee::ExclusionAcrossRestart]).unwrap_err().to_string();
    assert!(error.contains("evicts"), "{error}");
    let refused = strict.mutex("b").try_lock_for(PATIENCE).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert!(refused.to_string().contains("-M"), "{refused}");
    assert!(second.client().get("lock:mutex:b").await.unwrap().is_none(), "the refused claim was left behind");
}

/// The other server has been up for as long as the first one, and knows nothing of its locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_been_up_for_long_is_not_believed_in_another_one_s_place() {
    const LONGEST: Duration = Duration::from_secs(5);
    let Some(first) = server(MemcachedOptions::new()).await else { return };
    let Some(second) = server(MemcachedOptions::new()).await else { return };
    eventually("both are old", PATIENCE, async || {
        second.client().stats("").await.unwrap()["uptime"].parse::<u64>().unwrap() > LONGEST.as_secs() + 5
    })
    .await;
    let early = async |names: &Names| {
        names.lead_to(&first);
        let early = |config: MemcachedConfig| config.with_restart_policy(RestartPolicy::EndEarly);
        names.connect_as(|config| early(config).with_longest_lease(LONGEST)).await
    };
    // The holder has not heard of the other place.
    let (holders, others) = (Names::default(), Names::default());
    let (holder, other) = (early(&holders).await, early(&others).await);
    let held = holder.mutex("held").with_ttl(LONGEST).try_lock().await.unwrap().unwrap();
    others.lead_to(&second);
    first.kill().unwrap();
    let _next = other.mutex("held").try_lock_for(PATIENCE).await.unwrap().unwrap();
    assert!(!held.is_held(), "two holders, the first one for {:?} more", held.remaining());
}
