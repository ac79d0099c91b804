//! Many acquisitions and releases at one server of a quorum as one script: for each of them what its own run would have done.

use std::time::Duration;

use lock_testkit::SeededRng;
use lock_testkit_servers::resp::Resp;

use crate::lock::{Lock, server, texts};
use crate::quorum_scripts::{BATCH, GIVE, TAKE};

/// The most releases that go together.
const MOST: usize = 8;
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
                        let client =
                            if rng.below(2) == 0 { format!("{:032x}", 100 + rng.below(3)) } else { String::new() };
                        // Far enough from each other for the order of those who wait.
                        let waited = ((round + 1) * 1_000_000 * (i + 1)).to_string();
                        ('a', owned(&[&nonce, &i.to_string(), "60000", "{}", &client, &waited]))
                    } else {
                        let (force, stops) = (["", "[\"a\\nb\"]"], ["", "1"]);
                        let (force, stops) = (force[rng.below(2) as usize], stops[rng.below(2) as usize]);
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

/// Each of them passes over as many clients that are gone as it may.
#[tokio::test(flavor = "multi_thread")]
async fn the_largest_batch_holds_the_server_for_less_than_five_milliseconds() {
    let Some(server) = server().await else { return };
    let lock = Lock::new(server.client().unwrap(), "large");
    let resp = server.client().unwrap();
    let locks: Vec<_> = (0..MOST).map(|i| format!("large:{i}:{}", "x".repeat(200))).collect();
    let gone: Vec<_> = (0..64).flat_map(|i| [i.to_string(), format!("{i:032x}")]).collect();
    let mut least = Duration::MAX;
    for _ in 0..20 {
        for lock in &locks {
            let queue = ["ZADD".to_owned(), format!("{lock}:w")];
            resp.command(&queue.into_iter().chain(gone.iter().cloned()).collect::<Vec<_>>()).await.unwrap();
        }
        let all: Vec<_> = locks.iter().flat_map(|lock| keys(lock, 'r')).collect();
        let nonce = "f".repeat(32);
        let release = [&*nonce, "9", "", "channel:", "", "0", "1"].map(str::to_owned);
        let args: Vec<_> = ["r".repeat(MOST)].into_iter().chain((0..MOST).flat_map(|_| release.clone())).collect();
        let before = lock.server_time().await;
        assert_eq!(run(&resp, BATCH, &all, &args).await.unwrap().len(), MOST);
        least = least.min(lock.server_time().await - before);
        assert_eq!(resp.command(&["DBSIZE"]).await.unwrap().as_int(), Some(0), "all who are gone were passed over");
    }
    assert!(least < Duration::from_millis(5), "{least:?}");
}
