//! Killed servers under load: answers are lost at every step of the recipe.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lock_zk::{ErrorKind, ZkLocks};

use crate::support::{PROMPTLY, client, eventually, nodes, server, soon};

const TASKS: usize = 8;
const RESTARTS: usize = 4;

#[derive(Default)]
struct Room {
    inside: AtomicU32,
    overlaps: AtomicU32,
    grants: AtomicU32,
    closed: AtomicBool,
}

/// Takes the lock again and again; what it believes while it holds must be true.
async fn work(locks: ZkLocks, room: Arc<Room>) {
    let mutex = locks.mutex("load");
    while !room.closed.load(Ordering::SeqCst) {
        let Ok(held) = mutex.lock().await else { continue };
        room.grants.fetch_add(1, Ordering::SeqCst);
        if room.inside.fetch_add(1, Ordering::SeqCst) > 0 && held.is_held() {
            room.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        tokio::task::yield_now().await;
        room.inside.fetch_sub(1, Ordering::SeqCst);
        if let Err(error) = held.release().await {
            assert!(matches!(error.kind(), ErrorKind::Indeterminate | ErrorKind::NotHeld), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_killed_under_load_neither_let_two_in_nor_leave_anything() {
    let Some(server) = server().await else { return };
    let long = Duration::from_secs(20);
    let (a, b) = (client(server.url(), long).await, client(server.url(), long).await);
    let room = Arc::<Room>::default();
    let tasks: Vec<_> = (0..TASKS).map(|task| tokio::spawn(work([&a, &b][task % 2].clone(), room.clone()))).collect();
    for _ in 0..RESTARTS {
        let before = room.grants.load(Ordering::SeqCst);
        // A session that hangs, as one of zookeeper-async may, blocks the queue until its time is over.
        eventually("turns are taken", long + PROMPTLY * 2, async || room.grants.load(Ordering::SeqCst) > before + 100)
            .await;
        // Under load, by design: requests are on their way when it dies.
        server.restart().await.unwrap();
    }
    room.closed.store(true, Ordering::SeqCst);
    for task in tasks {
        soon("every task comes to its end", long + PROMPTLY * 2, task).await.unwrap();
    }
    assert_eq!(room.overlaps.load(Ordering::SeqCst), 0, "two were inside at once");
    let truth = server.client().await.unwrap();
    eventually("nothing is left", long + PROMPTLY, async || nodes(&truth, "load").await.is_empty()).await;
}
