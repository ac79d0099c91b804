//! Many acquisitions and releases at one server of a quorum as one script: for each of them what its own run would have done.

use std::time::Duration;

use lock_testkit::SeededRng;
use lock_testkit_servers::resp::Resp;

use crate::lock::{Lock, server, texts};
use crate::quorum_scripts::{BATCH, GIVE, TAKE};

/// The most requests that go together.
const MOST: usize = 32;
/// The lock at whose key there is something else.
const SPOILED: usize = 2;

/// A request of one lock: its letter, and its arguments.
type Asked = (char, Vec<String>);

/// The keys of a lock, as a request with this letter names them.
fn keys(lock: &str, letter: char) -> Vec<String> {
    let endings: &[&str] = if letter == 'a' { &["", ":w"] } else { &["", ":x", ":w"] };
    endings.iter().map(|ending| format!("{lock}{ending}")).collect()
}

async fn run(resp: &Resp, script: &str, keys: &[String], args: &[String]) -> Result<Vec<String>, String> {
    let count = keys.len().to_string();
    let command: Vec<_> = ["EVAL", script, &count].into_iter().map(str::to_owned).collect();
    let command: Vec<_> = command.into_iter().chain(keys.iter().cloned()).chain(args.iter().cloned()).collect();
    match resp.command(&command).await {
        Ok(reply) => Ok(reply.as_text().map_or_else(|| texts(reply), |text| vec![text])),
        Err(error) => Err(error.to_string()),
    }
}

/// A reply without the time that is left of a lease.
fn timeless(reply: &str) -> String {
    match (reply.split_at_checked(33), reply.split_once(':')) {
        (Some((nonce, _)), Some((_, holder))) if nonce.ends_with('-') => format!("{nonce}:{holder}"),
        _ => reply.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_does_for_each_request_what_its_own_run_does_and_one_that_fails_disturbs_no_other() {
    let Some(server) = server().await else { return };
    let resp = server.client().unwrap();
    let (mut rng, mut signs) = (SeededRng::new(0x51), [0_u32; 3]);
    for round in 0..200_u64 {
        let locks = |side: &str| (0..4).map(|i| format!("{side}:{round}:{i}")).collect::<Vec<_>>();
        let (together, one_by_one) = (locks("together"), locks("alone"));
        for lock in [&together[SPOILED], &one_by_one[SPOILED]] {
            resp.command(&["RPUSH", lock, "foreign"]).await.unwrap();
        }
        for _ in 0..3 {
            let asked: Vec<(usize, Asked)> = (0..12_u64)
                .map(|i| {
                    let nonce = format!("{:032x}", rng.below(3));
                    let owned = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
                    let asked = if rng.below(2) == 0 {
                        // In every other round nobody waits, and what is usual is done in the usual way.
                        let waits = round % 2 == 0 && rng.below(2) == 0;
                        let client = if waits { format!("{:032x}", 100 + rng.below(3)) } else { String::new() };
                        // Far enough from each other for the order of those who wait.
                        let waited = ((round + 1) * 1_000_000 * (i + 1)).to_string();
                        ('a', owned(&[&nonce, &i.to_string(), "60000", "{}", &client, &waited]))
                    } else {
                        let (force, stops) = (["", "[\"a\\nb\"]"], ["", "1"]);
                        let (force, stops) =
                            (force[rng.below(2) as usize], stops[rng.below(1 + (round + 1) % 2) as usize]);
                        ('r', owned(&[&nonce, &rng.below(14).to_string(), force, "channel:", stops, "0", "1"]))
                    };
                    (rng.below(4) as usize, asked)
                })
                .collect();
            let letters: String = asked.iter().map(|(_, (letter, _))| *letter).collect();
            let all: Vec<_> = asked.iter().flat_map(|(lock, (letter, _))| keys(&together[*lock], *letter)).collect();
            let args: Vec<_> =
                [letters].into_iter().chain(asked.iter().flat_map(|(_, (_, args))| args.clone())).collect();
            let replies = run(&resp, BATCH, &all, &args).await.unwrap();
            assert_eq!(replies.len(), asked.len());
            for ((lock, (letter, args)), reply) in asked.iter().zip(replies) {
                let script = if *letter == 'a' { TAKE } else { GIVE };
                match run(&resp, script, &keys(&one_by_one[*lock], *letter), args).await {
                    Ok(alone) => assert_eq!(timeless(&reply), timeless(&alone[0]), "{letter} {args:?}"),
                    // It asks by itself, which tells why.
                    Err(error) => {
                        assert!(
                            *lock == SPOILED && reply.is_empty() && error.contains("WRONGTYPE"),
                            "{reply}: {error}"
                        );
                    }
                }
                let sign = reply.as_bytes().get(32).copied();
                signs[sign.map_or(2, |sign| usize::from(sign == b'-'))] += 1;
            }
            for (together, alone) in together.iter().zip(&one_by_one).filter(|(lock, _)| !lock.ends_with(":2")) {
                let holder = async |lock: &String| {
                    let held = resp.command(&["GET", lock]).await.unwrap().as_text().unwrap_or_default();
                    held.get(..32).unwrap_or_default().to_owned()
                };
                assert_eq!(holder(together).await, holder(alone).await);
                let waiting = async |lock: &String| {
                    texts(resp.command(&["ZRANGE", &format!("{lock}:w"), "0", "-1"]).await.unwrap())
                };
                assert_eq!(waiting(together).await, waiting(alone).await);
            }
        }
    }
    assert!(signs.iter().all(|count| *count > 100), "each answer was told: {signs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_tells_a_client_that_began_to_wait_in_the_same_batch() {
    let Some(server) = server().await else { return };
    let resp = server.client().unwrap();
    let [holder, waiter, client] = [1, 2, 3].map(|number| format!("{number:032x}"));
    let all: Vec<_> = ['a', 'a', 'r'].iter().flat_map(|letter| keys("same", *letter)).collect();
    let args = [
        &["aar"] as &[&str],
        &[&holder, "1", "60000", "{}", "", "0"],
        &[&waiter, "2", "60000", "{}", &client, "1000"],
        &[&holder, "1", "", "channel:", "", "0", "1"],
    ];
    let args: Vec<_> = args.concat().into_iter().map(str::to_owned).collect();
    let replies = run(&resp, BATCH, &all, &args).await.unwrap();
    assert_eq!(replies[2], format!("{holder}+1"), "{replies:?}");
    // Nobody listens to its channel, so it is passed over.
    assert_eq!(resp.command(&["DBSIZE"]).await.unwrap().as_int(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_release_of_a_batch_is_told_as_done_by_a_server_that_refuses_to_write() {
    let Some(server) = server().await else { return };
    let resp = server.client().unwrap();
    let nonce = format!("{:032x}", 1);
    for lock in ["a", "b"] {
        let taken = [&*nonce, "1", "60000", "{}", "", "0"].map(str::to_owned);
        run(&resp, TAKE, &keys(lock, 'a'), &taken).await.unwrap();
    }
    resp.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await.unwrap();
    let all: Vec<_> = ["a", "b"].iter().flat_map(|lock| keys(lock, 'r')).collect();
    let release = [&*nonce, "1", "", "channel:", "", "0", "1"].map(str::to_owned);
    let args: Vec<_> = ["rr".to_owned()].into_iter().chain(release.clone()).chain(release).collect();
    assert_eq!(run(&resp, BATCH, &all, &args).await.unwrap(), ["", ""], "each is asked for by itself, which tells why");
    assert_eq!(resp.command(&["DBSIZE"]).await.unwrap().as_int(), Some(2));
}

/// The README gave it only from 2026-11-28 on.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_the_right_to_ask_for_many_waiters_at_once_has_its_batches_carried_out() {
    let Some(server) = server().await else { return };
    let resp = server.client().unwrap();
    resp.command(&["ACL", "SETUSER", "default", "-exists"]).await.unwrap();
    let nonce = format!("{:032x}", 1);
    let all: Vec<_> = ['a', 'r'].into_iter().flat_map(|letter| keys("right", letter)).collect();
    let args = ["ar", &nonce, "1", "60000", "{}", "", "0", &nonce, "1", "", "channel:", "", "0", "1"];
    let replies = run(&resp, BATCH, &all, &args.map(str::to_owned)).await.unwrap();
    assert_eq!(replies, [format!("{nonce}+"), format!("{nonce}+0")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_tells_nobody_is_carried_out_behind_any_number_of_clients_that_are_gone() {
    let Some(server) = server().await else { return };
    let resp = server.client().unwrap();
    let nonce = format!("{:032x}", 1);
    let locks: Vec<_> = (0..9).map(|i| format!("behind:{i}")).collect();
    let gone: Vec<_> = (0..64).flat_map(|i| [i.to_string(), format!("{i:032x}")]).collect();
    for lock in &locks[..8] {
        let queue = ["ZADD".to_owned(), format!("{lock}:w")];
        resp.command(&queue.into_iter().chain(gone.iter().cloned()).collect::<Vec<_>>()).await.unwrap();
    }
    run(&resp, TAKE, &keys(&locks[8], 'a'), &[&*nonce, "1", "60000", "{}", "", "0"].map(str::to_owned)).await.unwrap();
    let all: Vec<_> = locks.iter().flat_map(|lock| keys(lock, 'r')).collect();
    let release = |channels: &str| [&*nonce, "1", "", channels, "", "0", "1"].map(str::to_owned);
    let args = ["r".repeat(9)].into_iter().chain((0..8).flat_map(|_| release("channel:"))).chain(release(""));
    let replies = run(&resp, BATCH, &all, &args.collect::<Vec<_>>()).await.unwrap();
    assert_eq!(replies[8], format!("{nonce}+0"), "{replies:?}");
    assert_eq!(resp.command(&["EXISTS", &locks[8]]).await.unwrap().as_int(), Some(0));
}

/// Each of them would pass over as many clients that are gone as it may; what is too much for one run is left.
#[tokio::test(flavor = "multi_thread")]
async fn the_largest_batch_holds_the_server_for_less_than_five_milliseconds() {
    let Some(server) = server().await else { return };
    let lock = Lock::new(server.client().unwrap(), "large");
    let resp = server.client().unwrap();
    let locks: Vec<_> = (0..MOST).map(|i| format!("large:{i}:{}", "x".repeat(200))).collect();
    let gone: Vec<_> = (0..64).flat_map(|i| [i.to_string(), format!("{i:032x}")]).collect();
    let nonce = "f".repeat(32);
    let release = [&*nonce, "9", "", "channel:", "", "0", "1"].map(str::to_owned);
    let mut least = Duration::MAX;
    for _ in 0..20 {
        for lock in &locks {
            let queue = ["ZADD".to_owned(), format!("{lock}:w")];
            resp.command(&queue.into_iter().chain(gone.iter().cloned()).collect::<Vec<_>>()).await.unwrap();
        }
        let all: Vec<_> = locks.iter().flat_map(|lock| keys(lock, 'r')).collect();
        let args: Vec<_> = ["r".repeat(MOST)].into_iter().chain((0..MOST).flat_map(|_| release.clone())).collect();
        let before = lock.server_time().await;
        let replies = run(&resp, BATCH, &all, &args).await.unwrap();
        least = least.min(lock.server_time().await - before);
        for (lock, reply) in locks.iter().zip(&replies) {
            let left = resp.command(&["ZCARD", &format!("{lock}:w")]).await.unwrap().as_int().unwrap();
            // All of it was done, or nothing: then it is asked for by itself.
            assert_eq!(left, if reply.is_empty() { 64 } else { 0 });
            if reply.is_empty() {
                run(&resp, GIVE, &keys(lock, 'r'), &release).await.unwrap();
            }
        }
        assert!((1..MOST).contains(&replies.iter().filter(|reply| reply.is_empty()).count()), "{replies:?}");
        assert_eq!(resp.command(&["DBSIZE"]).await.unwrap().as_int(), Some(0), "all who are gone were passed over");
    }
    assert!(least < Duration::from_millis(5), "{least:?}");
}
