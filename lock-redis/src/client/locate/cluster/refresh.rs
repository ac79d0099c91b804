//! Keeps the map of a cluster true: one task, which is told when somebody needs a new one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::clock::{Clock, SystemClock};
use lock_core::{Error, ErrorKind, Phase, driver::wait};
use redis::RedisResult;
use tokio::sync::Mutex;

use super::Router;
use super::map::{Map, View};
use super::memory::Memory;
use crate::address::Address;
use crate::client::dial::{Commands, Opener};
use crate::error;
use crate::error::nowhere;

/// The time between two looks at the map when nobody asks for it.
const PERIOD: Duration = Duration::from_secs(5);
/// The first pause between two looks for a map that does not change, and the longest before jitter, which at most doubles
/// it.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The number of nodes that are asked at once.
const ASKED: usize = 6;
/// The time that one node may take, and for which others are waited for after the first answer.
const PATIENCE: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_millis(100);

/// The first map, from the nodes that were named.
///
/// # Errors
/// The failure of the last of them, if none has one.
pub(super) async fn first(opener: &Opener, seeds: &[Address], server: &str) -> Result<(Map, Memory), Error> {
    let (mut failure, mut memory) = (None, Memory::default());
    // Not all at once: any of them would do, and there may be many.
    for some in seeds.chunks(ASKED / 2) {
        let asking = some.iter().map(async |seed| view(opener.commands(seed).await?, seed).await);
        let (views, failed) = gather(asking, opener.connect_timeout()).await;
        let map = memory.map(&views, SystemClock.now(), |_| false);
        if !map.serves_nothing() {
            return Ok((map, memory));
        }
        failure = failed.or(failure);
    }
    Err(match failure {
        Some(failure) if failure.to_string().contains("cluster support disabled") => {
            let what = "the server is no node of a cluster; connect to it by redis://";
            Error::new(ErrorKind::Unsupported, Phase::Connect, what)
                .with_backend(crate::guarantees::NAME)
                .with_server(server)
        }
        Some(failure) => error::of_connect(failure, server),
        None => nowhere("the cluster serves no slots", server),
    })
}

/// The task. While the map does not change, nodes are asked less and less often, whoever wants a new one.
pub(super) async fn for_ever(router: Arc<Router>, memory: Arc<Mutex<Memory>>) {
    let pauses = || wait::pauses(FIRST_PAUSE, LONGEST_PAUSE);
    let mut pause = pauses();
    loop {
        // What was told while the last look was under way counts for the next one.
        let wanted = tokio::time::timeout(PERIOD, router.wanted.notified()).await.is_ok();
        if router.is_closed() {
            return;
        }
        let asking = chosen(&router, wanted).into_iter().map(async |(node, commands)| view(commands, &node).await);
        let (views, _) = gather(asking, PATIENCE).await;
        let map = memory.lock().await.map(&views, SystemClock.now(), |node| router.present(node).is_some());
        let changed = !map.serves_nothing() && !router.is_closed() && router.adopt(map);
        if changed || !wanted {
            pause = pauses();
        }
        router.forget_unused();
        // The pauses never end.
        tokio::time::sleep(pause.next().unwrap_or(LONGEST_PAUSE)).await;
    }
}

/// The nodes to ask: those that are connected. If a new map is wanted, or there is none, others are connected to, in turn, and
/// asked the next time.
fn chosen(router: &Router, wanted: bool) -> Vec<(Address, Commands)> {
    let (mut connected, mut others) = (Vec::new(), Vec::new());
    for node in router.nodes.all() {
        match router.present(&node) {
            Some(commands) => connected.push((node, commands)),
            None => others.push(node),
        }
    }
    let most = if wanted { ASKED } else { ASKED / 2 };
    let map = router.nodes.map();
    let others = candidates(&map, connected.iter().map(|(node, _)| node), others);
    connected.truncate(most);
    if wanted || connected.is_empty() {
        let rest = ASKED - connected.len();
        others.iter().take(rest).for_each(|node| drop(router.link(node)));
    }
    // So that their connections stay.
    connected.iter().for_each(|(node, _)| drop(router.link(node)));
    connected
}

/// The other nodes that may be connected to. While a master of the map is connected, nodes outside the map are left out: a name may already
/// lead to another cluster, and one map would be made of the views of both.
fn candidates<'a>(
    map: &Map,
    mut connected: impl Iterator<Item = &'a Address>,
    mut others: Vec<Address>,
) -> Vec<Address> {
    if connected.any(|node| map.is_master(node)) {
        others.retain(|node| map.nodes().any(|known| known == node));
    }
    others
}

async fn view(mut commands: Commands, node: &Address) -> RedisResult<View> {
    View::ask(&mut commands.connection, node).await
}

/// The answers, without those that come long after the first one; and what went wrong last.
async fn gather(
    asking: impl Iterator<Item = impl Future<Output = RedisResult<View>>>,
    patience: Duration,
) -> (Vec<View>, Option<redis::RedisError>) {
    let mut asking: FuturesUnordered<_> = asking.map(|view| tokio::time::timeout(patience, view)).collect();
    let (mut views, mut failure) = (Vec::new(), None);
    let mut end = tokio::time::Instant::now() + patience;
    while let Ok(Some(answer)) = tokio::time::timeout_at(end, asking.next()).await {
        match answer {
            Ok(Ok(view)) => {
                if views.is_empty() {
                    end = end.min(tokio::time::Instant::now() + GRACE);
                }
                views.push(view);
            }
            Ok(Err(error)) => failure = Some(error),
            Err(_) => failure = Some(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }
    (views, failure)
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    #[test]
    fn a_node_that_is_not_in_the_map_is_asked_only_where_no_master_of_the_map_is_connected() {
        let address = |text: &str| Address::parse(text, 6379).unwrap();
        let nodes = "aa 10.0.0.1:1@11 master - 0 0 1 connected 0-16383\nbb 10.0.0.2:2@12 slave aa 0 0 1 connected\n";
        let view = View::read(nodes, &Value::Nil, &address("10.0.0.1:1"));
        let map = Map::of(view.claims()).with_replicas(view.replicas());
        let (master, replica, seed) = (address("10.0.0.1:1"), address("10.0.0.2:2"), address("seed:1"));
        let others = || vec![replica.clone(), seed.clone()];
        assert_eq!(candidates(&map, [&master].into_iter(), others()), vec![replica.clone()]);
        assert_eq!(candidates(&map, [].into_iter(), others()), others());
        assert_eq!(candidates(&map, [&replica].into_iter(), vec![seed.clone()]), vec![seed]);
    }
}
