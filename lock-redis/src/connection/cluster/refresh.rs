//! Keeps the map of a cluster true: one task, which is told when somebody needs a new one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::{Error, ErrorKind, Phase};
use redis::RedisResult;

use super::map::{Map, View};
use super::{Router, locked};
use crate::connection::address::Address;
use crate::connection::dial::{Commands, Opener, nowhere};
use crate::error;

/// How often the map is looked at when nobody asks for it.
const PERIOD: Duration = Duration::from_secs(5);
/// The shortest pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// How many nodes are asked at once.
const ASKED: usize = 6;
/// How long one node may take, and how long others are waited for after the first answer.
const PATIENCE: Duration = Duration::from_millis(500);
const GRACE: Duration = Duration::from_millis(100);

/// The first map, from the nodes that were named.
///
/// # Errors
/// What the last of them said, if none has one.
pub(super) async fn first(opener: &Opener, seeds: &[Address], server: &str) -> Result<Map, Error> {
    let mut failure = None;
    // Not all at once: any of them would do, and there may be many.
    for some in seeds.chunks(ASKED / 2) {
        let (views, failed) = gather(some.iter().map(|seed| view(opener, None, seed))).await;
        let map = Map::of(&views);
        if !map.serves_nothing() {
            return Ok(map);
        }
        failure = failed.or(failure);
    }
    Err(match failure {
        Some(failure) if failure.to_string().contains("cluster support disabled") => {
            let what = "the server is no node of a cluster; connect to it by redis://";
            Error::new(ErrorKind::Unsupported, Phase::Connect, what).with_backend(crate::NAME).with_server(server)
        }
        Some(failure) => error::of_connect(failure, server),
        None => nowhere("the cluster serves no slots", server),
    })
}

/// The task.
pub(super) async fn for_ever(router: Arc<Router>) {
    loop {
        // What was told while the last look was under way counts for the next one.
        let wanted = tokio::time::timeout(PERIOD, router.wanted.notified()).await.is_ok();
        if router.is_closed() {
            return;
        }
        let nodes = chosen(&router, wanted);
        let asking = nodes.iter().map(|(node, present)| view(&router.opener, present.clone(), node));
        let (views, _) = gather(asking).await;
        let map = Map::of(&views);
        if !map.serves_nothing() && !router.is_closed() {
            router.adopt(map);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whom to ask: some that are connected, and if a new map is wanted others too, in turn.
fn chosen(router: &Router, wanted: bool) -> Vec<(Address, Option<Commands>)> {
    let all = router.nodes.all();
    let links = locked(&router.links);
    let live = |node: &Address| links.get(node).and_then(|link| link.present()).map(|live| live.commands);
    let (mut connected, others): (Vec<_>, Vec<_>) = all
        .into_iter()
        .map(|node| (live(&node), node))
        .map(|(live, node)| (node, live))
        .partition(|(_, live)| live.is_some());
    connected.truncate(ASKED / 2);
    if wanted || connected.is_empty() {
        let rest = ASKED - connected.len();
        connected.extend(others.into_iter().take(rest));
    }
    connected
}

async fn view(opener: &Opener, present: Option<Commands>, node: &Address) -> RedisResult<View> {
    let mut commands = match present {
        Some(commands) => commands,
        None => opener.commands(node).await?,
    };
    View::ask(&mut commands.connection, node).await
}

/// The answers, without those that come long after the first one; and what went wrong last.
async fn gather(
    asking: impl Iterator<Item = impl Future<Output = RedisResult<View>>>,
) -> (Vec<View>, Option<redis::RedisError>) {
    let mut asking: FuturesUnordered<_> = asking.map(|view| tokio::time::timeout(PATIENCE * 2, view)).collect();
    let (mut views, mut failure) = (Vec::new(), None);
    let mut end = tokio::time::Instant::now() + PATIENCE * 2;
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
