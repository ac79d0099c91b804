//! Shows who holds a lock and who waits for it, and frees a grant by force. The prefix and, on memcached, the longest lease have to be
//! those of the application; here they are the defaults.
//!
//! `cargo run -p examples --example operator -- redis://127.0.0.1:6379 mutex orders/42` shows it, and
//! `… mutex orders/42 GRANT "its machine hangs"` frees the grant of which that has shown the id. The kinds are `mutex`, `reentrant` and
//! `rwlock`.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use lock_core::{GrantId, Inspection, Locks};
use lock_memcached::MemcachedLocks;
use lock_redis::RedisLocks;
use lock_zk::ZkLocks;

/// The time until the holder's next renewal, by the default TTL. On ZooKeeper the holder reads then by whom and why it was freed, which
/// is there for as long as this client lives.
const NEXT_RENEWAL: Duration = Duration::from_secs(4);

async fn connect(url: &str) -> Result<Locks, Box<dyn Error>> {
    // The rest of the URL may have a password.
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    Ok(match scheme {
        "zk" | "zks" => ZkLocks::connect(url).await?.into(),
        "memcached" => MemcachedLocks::connect(url).await?.into(),
        _ if scheme == "unix" || scheme.starts_with("redis") || scheme.starts_with("valkey") => {
            RedisLocks::connect(url).await?.into()
        }
        _ => return Err(format!("{scheme:?} is none of redis, zk and memcached").into()),
    })
}

async fn inspect(locks: &Locks, kind: &str, name: &str) -> Result<Inspection, Box<dyn Error>> {
    Ok(match kind {
        "mutex" => locks.mutex(name).inspect().await?,
        "reentrant" => locks.reentrant(name).ok_or("there are no reentrant locks")?.inspect().await?,
        "rwlock" => locks.rwlock(name).ok_or("there are no read-write locks")?.inspect().await?,
        _ => return Err(format!("{kind:?} is none of mutex, reentrant and rwlock").into()),
    })
}

async fn free(locks: &Locks, kind: &str, name: &str, grant: GrantId, reason: &str) -> Result<bool, Box<dyn Error>> {
    Ok(match kind {
        "mutex" => locks.mutex(name).force_release(grant, reason).await?,
        "reentrant" => {
            let lock = locks.reentrant(name).ok_or("there are no reentrant locks")?;
            lock.force_release(grant, reason).await?
        }
        "rwlock" => locks.rwlock(name).ok_or("there are no read-write locks")?.force_release(grant, reason).await?,
        _ => return Err(format!("{kind:?} is none of mutex, reentrant and rwlock").into()),
    })
}

async fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [url, kind, name] => {
            let seen = inspect(&connect(url).await?, kind, name).await?;
            println!("{}", serde_json::to_string_pretty(&seen)?);
        }
        [url, kind, name, grant, reason] => {
            let locks = connect(url).await?;
            let freed = free(&locks, kind, name, grant.parse()?, reason).await?;
            println!("{}", if freed { "freed" } else { "the lock is not held under this grant" });
            if freed && url.starts_with("zk") {
                tokio::time::sleep(NEXT_RENEWAL).await;
            }
            locks.close().await?;
        }
        _ => return Err("usage: operator URL KIND NAME [GRANT REASON]".into()),
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match run(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
