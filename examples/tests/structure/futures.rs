//! Futures that callers hold in theirs are small: a test that connects ten clients at once fits into a thread's stack.

use std::mem::size_of_val;

/// The bytes of a future, at most.
const MOST: usize = 2048;

#[test]
fn connecting_takes_little_room_in_the_caller_s_future() {
    let url = "nobody://is-asked";
    let sizes = [
        ("redis", size_of_val(&lock_redis::RedisLocks::connect(url))),
        ("a quorum", size_of_val(&lock_redis::QuorumLocks::connect([url; 3]))),
        ("zookeeper", size_of_val(&lock_zk::ZkLocks::connect(url))),
        ("memcached", size_of_val(&lock_memcached::MemcachedLocks::connect(url))),
    ];
    for (backend, size) in sizes {
        assert!(size <= MOST, "{backend}: {size} bytes");
    }
}
