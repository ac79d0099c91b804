//! The queue of a mutex, as the ZooKeeper servers have it.

use lock_testkit::HarnessError;
use lock_testkit_servers::zookeeper::ZooKeeperClient;

/// The grant in the name of a node, which has it as a UUID.
pub(crate) fn grant(name: &str) -> Option<String> {
    Some(name.strip_prefix("_c_")?.get(..36)?.replace('-', ""))
}

/// Returns the holder of the mutex, or the one that is about to be told so.
pub(crate) async fn first_in_line(
    eyes: &ZooKeeperClient,
    namespace: &str,
    mutex: &str,
) -> Result<Option<String>, HarnessError> {
    let line = eyes.children(&format!("/{namespace}/mutex/{mutex}")).await?.unwrap_or_default();
    Ok(line.into_iter().min_by_key(|name| number(name)))
}

/// The number at the end of a node's name.
pub(crate) fn number(name: &str) -> Option<i32> {
    name.get(name.len().checked_sub(10)?..)?.parse().ok()
}
