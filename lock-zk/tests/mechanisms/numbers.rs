//! Directories whose numbers are used up: the servers count to 2^31 - 1, and give that number to every node from then on.

use std::path::PathBuf;

use lock_testkit_servers::zookeeper::ZooKeeperServer;
use lock_zk::{ErrorKind, LockName, ZkConfig};

use crate::support::{LASTING, PROMPTLY, client, connected, eventually, fails, nodes, server};

/// The tries of which one would be before an earlier one by chance.
const TRIES: usize = 12;

#[tokio::test]
async fn nobody_is_granted_a_lock_by_a_number_that_others_have_too() {
    let Some(server) = server().await else { return };
    let (truth, directory) = (server.client().await.unwrap(), "/lock/mutex/worn");
    truth.create_all(directory).await.unwrap();
    use_numbers(&server, directory, i32::MAX - 1).await;
    let (locks, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let worn = locks.mutex("worn").with_ttl(LASTING);
    let held = worn.lock().await.unwrap();
    let last = nodes(&truth, "worn").await;
    assert!(last[0].ends_with("2147483646"), "{last:?}");
    for _ in 0..TRIES {
        let error = fails(worn.try_lock().await, ErrorKind::Unavailable);
        assert!(error.is_definite() && error.what().contains(directory), "{error}");
        fails(worn.lock().await, ErrorKind::Unavailable);
        assert_eq!(nodes(&truth, "worn").await, last, "a place is left");
    }
    assert!(held.is_held());
    held.release().await.unwrap();
    // Nobody is there any more: the numbers begin anew.
    fails(worn.try_lock().await, ErrorKind::Unavailable);
    let held = worn.lock().await.unwrap();
    assert!(nodes(&truth, "worn").await[0].ends_with("0000000000"));
    assert!(worn.try_lock().await.unwrap().is_none());
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_shared_path_whose_numbers_are_used_up_is_refused_until_it_is_deleted() {
    let Some(server) = server().await else { return };
    let truth = server.client().await.unwrap();
    truth.create_all("/jobs/import").await.unwrap();
    use_numbers(&server, "/jobs/import", i32::MAX).await;
    let config = ZkConfig::new(server.url()).with_session_timeout(LASTING);
    let (locks, truth) = (connected(config).await, server.client().await.unwrap());
    let import = locks.mutex(LockName::from_key("/jobs/import").unwrap());
    let mut held = Vec::new();
    for _ in 0..TRIES {
        match import.try_lock().await {
            Ok(granted) => held.extend(granted),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    }
    assert!(held.is_empty(), "{} hold it", held.len());
    assert_eq!(truth.children("/jobs/import").await.unwrap(), Some(Vec::new()));
    assert!(truth.delete("/jobs/import").await.unwrap());
    import.lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn permits_are_within_the_limit_when_the_numbers_are_used_up() {
    let Some(server) = server().await else { return };
    let truth = server.client().await.unwrap();
    let directories = ["/lock/semaphore/worn/leases", "/lock/semaphore/worn/locks"];
    for directory in directories {
        truth.create_all(directory).await.unwrap();
    }
    for directory in directories {
        use_numbers(&server, directory, i32::MAX).await;
    }
    let locks = client(server.url(), LASTING).await;
    let permits = locks.semaphore("worn", 2).with_ttl(LASTING);
    let held = eventually("a permit", PROMPTLY, async || permits.acquire().await.ok()).await;
    let both = [held, permits.acquire().await.unwrap()];
    for _ in 0..TRIES {
        assert!(permits.try_acquire().await.unwrap().is_none(), "more than there are");
    }
    for one in both {
        one.release().await.unwrap();
    }
    assert_eq!(permits.available().await.unwrap(), 2);
}

/// Has the next node of a directory get this number, as if so many had been made before: the server starts again from a snapshot that
/// says so.
async fn use_numbers(server: &ZooKeeperServer, directory: &str, number: i32) {
    // It writes one at each start.
    server.restart().await.unwrap();
    server.kill().unwrap();
    let path = last_snapshot(server);
    let mut snapshot = std::fs::read(&path).unwrap();
    let entry = [&u32::try_from(directory.len()).unwrap().to_be_bytes(), directory.as_bytes()].concat();
    let at = snapshot.windows(entry.len()).position(|bytes| bytes == entry).unwrap() + entry.len();
    let data = usize::try_from(i32::from_be_bytes(snapshot[at..at + 4].try_into().unwrap()).max(0)).unwrap();
    // Behind the data: the number of its rights, two transactions, two times and a version.
    let count = at + 4 + data + 5 * 8 + 4;
    snapshot[count..count + 4].copy_from_slice(&number.to_be_bytes());
    seal(&mut snapshot);
    std::fs::write(path, snapshot).unwrap();
    server.restart().await.unwrap();
}

/// Returns the newest snapshot of a server.
fn last_snapshot(server: &ZooKeeperServer) -> PathBuf {
    let files = std::fs::read_dir(server.directory().unwrap().join("version-2")).unwrap();
    let number = |path: &PathBuf| {
        let zxid = path.file_name()?.to_str()?.strip_prefix("snapshot.")?;
        u64::from_str_radix(zxid, 16).ok()
    };
    files.map(|file| file.unwrap().path()).filter(|path| number(path).is_some()).max_by_key(number).unwrap()
}

/// Writes the checksums of a snapshot anew. Each is a number of eight bytes over all that is before it, with the text `/` behind; the last
/// one ends the file, and one before it stands behind the nodes.
fn seal(snapshot: &mut [u8]) {
    const SEAL: usize = 8 + 5;
    // Between the two: a transaction, a version and a digest.
    const DIGEST: usize = 8 + 4 + 8;
    for end in [snapshot.len() - SEAL - DIGEST, snapshot.len()] {
        let at = end - SEAL;
        assert_eq!(&snapshot[at + 8..end], [0, 0, 0, 1, b'/']);
        let sum = adler32(&snapshot[..at]);
        snapshot[at..at + 8].copy_from_slice(&u64::from(sum).to_be_bytes());
    }
}

fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1_u32, 0_u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (a + b) % 65_521)
    });
    (b << 16) | a
}
