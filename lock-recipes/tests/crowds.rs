//! The size of a question for the leader, with many candidates.

#![cfg(test)]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use lock_core::Locks;
use lock_recipes::Election;
use lock_redis::RedisLocks;
use lock_testkit::testing::{eventually, installed};
use lock_testkit_servers::redis::RedisServer;
use lock_testkit_servers::zookeeper::ZooKeeperServer;
use lock_zk::ZkLocks;

const CANDIDATES: u64 = 60;
/// A lease that is not renewed while somebody looks.
const TTL: Duration = Duration::from_secs(60);

/// A relay that counts the bytes of a server's answers.
#[derive(Debug, Clone, Default)]
struct Relay(Arc<AtomicU64>);

impl Relay {
    /// The URL of the server, by way of this relay.
    fn before(&self, url: &str) -> String {
        let server = url.split('/').nth(2).unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap().to_string();
        let url = url.replacen(&server, &here, 1);
        let relay = self.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&server) else { return };
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || carry(from, to, |_| ()));
                let relay = relay.clone();
                thread::spawn(move || {
                    carry(server, client, |bytes| {
                        relay.0.fetch_add(bytes, Ordering::SeqCst);
                    })
                });
            }
        });
        url
    }

    /// The fewest bytes that the answers to several questions took: sessions are kept alive meanwhile.
    async fn fewest<T>(&self, question: impl AsyncFn() -> T) -> u64 {
        let mut fewest = u64::MAX;
        for _ in 0..5 {
            let before = self.0.load(Ordering::SeqCst);
            question().await;
            fewest = fewest.min(self.0.load(Ordering::SeqCst) - before);
        }
        fewest
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, count: impl Fn(u64)) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        // Before the client can have read them.
        count(bytes as u64);
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_for_the_leader_lists_no_candidates_on_redis() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let relay = Relay::default();
    let locks = RedisLocks::connect(&relay.before(server.url())).await.unwrap().into();
    a_question_for_the_leader_lists_no_candidates(&locks, &relay).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_for_the_leader_lists_no_candidates_on_zookeeper() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let relay = Relay::default();
    let locks = ZkLocks::connect(&relay.before(server.url())).await.unwrap().into();
    a_question_for_the_leader_lists_no_candidates(&locks, &relay).await;
}

async fn a_question_for_the_leader_lists_no_candidates(locks: &Locks, relay: &Relay) {
    let election = Election::new(locks.recorded("many").unwrap().with_ttl(TTL));
    let leadership = election.campaign().await.unwrap();
    let campaign = || {
        let election = election.clone();
        tokio::spawn(async move { election.campaign().await })
    };
    let candidates: Vec<_> = (0..CANDIDATES).map(|_| campaign()).collect();
    let lock = locks.mutex("many");
    let all_wait = async || lock.inspect().await.unwrap().waiter_count() == CANDIDATES;
    eventually("all candidates wait", Duration::from_secs(15), all_wait).await;
    let inspected = relay.fewest(async || lock.inspect().await.unwrap()).await;
    let asked =
        relay.fewest(async || assert_eq!(election.leader().await.unwrap().unwrap().term, leadership.number())).await;
    candidates.iter().for_each(tokio::task::JoinHandle::abort);
    leadership.step_down().await.unwrap();
    // On ZooKeeper the names of the candidates are listed, and nothing else of them.
    assert!(asked < inspected / 2, "{asked} bytes, {inspected} of an inspection with {CANDIDATES} candidates");
}
