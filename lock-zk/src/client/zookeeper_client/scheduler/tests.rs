//! Requests of one connection: which are refused, which wait, which go together.

use std::time::Duration;

use futures_util::FutureExt;
use lock_testkit::testing::installed;
use lock_testkit_servers::zookeeper::ZooKeeperServer;

use super::super::{ConnectOptions, connect};
use super::*;
use crate::access::Access;
use crate::client::Fate;

fn fate<T>(answer: Option<Result<T, Failure>>) -> Option<Fate> {
    answer.and_then(Result::err).map(|failure| failure.fate)
}

#[tokio::test]
async fn a_request_for_which_there_is_no_room_is_unknown_at_once_and_a_deletion_waits() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let options = ConnectOptions {
        servers: server.url().trim_start_matches("zk://").to_owned(),
        chroot: String::new(),
        prefix: "lock".to_owned(),
        timeout: Duration::from_secs(10),
        credentials: None,
        tls: None,
        access: Access::Everybody,
    };
    // Nothing that waits is sent.
    let (scheduler, _backlog) = Scheduler::new(connect::open(&options).await.unwrap(), "/lock".to_owned());
    let ask = |priority| scheduler.send(priority, |_| future::pending::<Result<u32, Error>>());
    let mut asked: Vec<_> = (0..AT_ONCE + LONGEST_BACKLOG).map(|_| ask(Priority::Normal)).collect();
    assert!(asked.iter_mut().all(|asked| asked.now_or_never().is_none()));
    assert_eq!(fate(ask(Priority::Normal).now_or_never()), Some(Fate::Unknown));
    assert_eq!(fate(ask(Priority::Detached).now_or_never()), None);
    assert_eq!(fate(ask(Priority::Urgent).now_or_never()), None);
}

fn paths(number: usize) -> Vec<Arc<str>> {
    (0..number).map(|number| format!("/{number}").into()).collect()
}

fn names(bytes: usize) -> Vec<String> {
    vec!["x".repeat(bytes - 4)]
}

fn lengths(listings: &LongListings, number: usize) -> Vec<usize> {
    listings.divide(paths(number)).iter().map(Vec::len).collect()
}

#[test]
fn short_listings_go_together_and_long_ones_as_far_as_they_have_room() {
    let (listings, all) = (LongListings::default(), paths(MOST_TOGETHER));
    assert_eq!(lengths(&listings, MOST_TOGETHER), [MOST_TOGETHER]);
    listings.note(&all[1], &names(SHORT));
    assert_eq!(lengths(&listings, MOST_TOGETHER), [MOST_TOGETHER], "it is short");
    listings.note(&all[1], &names(MOST_BYTES_LISTED * 2));
    assert_eq!(lengths(&listings, 4), [1, 1, 2]);
    listings.note(&all[2], &names(MOST_BYTES_LISTED / 2));
    listings.note(&all[3], &names(MOST_BYTES_LISTED / 2));
    assert_eq!(lengths(&listings, 5), [1, 1, 2, 1]);
    for path in &all {
        listings.note(path, &[]);
    }
    assert_eq!(lengths(&listings, MOST_TOGETHER), [MOST_TOGETHER]);
    assert!(listings.long().is_empty(), "what is short again is forgotten");
    assert!(listings.divide(Vec::new()).is_empty());
}

#[test]
fn so_many_are_noted_at_most_and_the_last_one_always_is() {
    let listings = LongListings::default();
    for path in paths(MOST_NOTED + 10) {
        listings.note(&path, &names(SHORT + 1));
        assert!(listings.long().contains_key(&path));
    }
    assert_eq!(listings.long().len(), MOST_NOTED);
}
