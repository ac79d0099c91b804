//! The short ways of many mutexes as one script: for each of them what its own run would have done, whatever the others hold.

use std::time::Duration;

use lock_testkit::SeededRng;
use lock_testkit_servers::resp::Value;

use crate::lock::{ALL, CHANNELS, Lock, server, texts};
use crate::random_state::{CLIENTS, RandomState};
use crate::scripts::{
    ACQUIRE_BATCH, ACQUIRE_HOLDERS_BATCH, ACQUIRE_SHORT, HOLDERS, RELEASE_BATCH, RELEASE_HOLDERS_BATCH, RELEASE_SHORT,
    Script,
};

/// The lock of each batch at whose key there is something else.
const SPOILED: usize = 5;

/// A batch of requests, each for a lock of its own, twice: to be asked for together and one by one.
struct Batch {
    together: Vec<Lock>,
    one_by_one: Vec<Lock>,
    /// The answers that were told, by their signs.
    told: [u32; 4],
}

impl Batch {
    /// Asks for all; the reply to each is that of its own run, and so is what its lock holds then.
    async fn ask(
        &mut self,
        (batch, alone): (&'static Script, &'static Script),
        endings: &[&str],
        args: &[Vec<String>],
    ) {
        // Those of each, and the counter that all of them share.
        let own = endings.iter().filter(|ending| **ending != ":tokens");
        let mut keys: Vec<_> =
            self.together.iter().flat_map(|lock| own.clone().map(|ending| lock.key(ending))).collect();
        if endings.contains(&":tokens") {
            keys.push(counter(&self.together));
        }
        let all: Vec<_> = args.iter().flatten().map(String::as_str).collect();
        let replies = lines(&self.together[0].run_at(batch, keys, &all).await.unwrap());
        assert_eq!(replies.len(), args.len());
        for ((i, args), reply) in args.iter().enumerate().zip(replies) {
            let args: Vec<_> = args.iter().map(String::as_str).collect();
            let alone = self.one_by_one[i].run(alone, endings, &args).await;
            // What fails for one is not told: it asks again by itself.
            let alone = alone.ok().and_then(|alone| alone.as_text()).unwrap_or_default();
            let without_token = |reply: &str| reply.get(..33).unwrap_or_default().to_owned();
            assert_eq!(without_token(&reply), without_token(&alone), "{i}: {args:?}");
            if i == SPOILED {
                let taken = async |lock: &Lock| lock.command(&["TYPE", &lock.key("")]).await;
                assert_eq!(taken(&self.together[i]).await, taken(&self.one_by_one[i]).await);
            } else {
                let (together, alone) = (self.together[i].look().await.0, self.one_by_one[i].look().await.0);
                let token = reply.get(33..).unwrap_or_default();
                assert!(token.is_empty() || together.held[""].contains(token), "{i}: {reply}");
                assert_eq!(together.without_tokens(), alone.without_tokens(), "{i}: {args:?}");
            }
            let sign = reply.as_bytes().get(32);
            self.told[sign.map_or(3, |sign| b"+-?".iter().position(|known| known == sign).unwrap())] += 1;
        }
    }
}

/// The counter of tokens that the locks of a batch share.
fn counter(together: &[Lock]) -> String {
    together[0].key(":tokens")
}

/// The lines of a batch's reply, each of which has its end.
fn lines(reply: &Value) -> Vec<String> {
    let mut lines: Vec<_> = reply.as_text().unwrap().split('\n').map(str::to_owned).collect();
    assert_eq!(lines.pop().as_deref(), Some(""));
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_does_for_each_lock_what_its_own_run_does_and_one_that_fails_disturbs_no_other() {
    let Some(server) = server().await else { return };
    let lock = |name: String| Lock::new(server.client().unwrap(), name);
    let mut told = [0; 4];
    for round in 0..40 {
        let (mut batch, mut requests) = (Batch { together: Vec::new(), one_by_one: Vec::new(), told }, Vec::new());
        let mut now = 0;
        for i in 0..8 {
            let seed = round * 8 + i;
            let mut state = RandomState::after(lock(String::new()), seed + 1000, seed % 9).await;
            now = now.max(state.lock.now);
            let both = ["together", "alone"].map(|way| lock(format!("{way}{seed}")));
            for copy in &both {
                state.lock.copy_to(copy).await;
                if i == SPOILED as u64 {
                    // Something else is where the lock belongs.
                    copy.command(&["DEL", &copy.key("")]).await;
                    copy.command(&["RPUSH", &copy.key(""), "foreign"]).await;
                }
            }
            let [together, alone] = both;
            batch.together.push(together);
            batch.one_by_one.push(alone);
            let holder = state.holder().await;
            let newcomer = (format!("{seed:032x}"), CLIENTS[0].to_owned());
            requests.push(holder.filter(|_| seed % 4 != 0).unwrap_or(newcomer));
        }
        for lock in batch.together.iter_mut().chain(&mut batch.one_by_one) {
            // Some of the locks have been at a later time: as if the clock had been set back.
            lock.now = now - 200 * (round % 3);
        }
        let taken: Vec<_> = requests.iter().map(|(n, c)| vec![format!("{n}:{c}:{{}}:"), "20000".to_owned()]).collect();
        batch.ask((&ACQUIRE_BATCH, &ACQUIRE_SHORT), &["", ":q", ":tokens"], &taken).await;
        let given: Vec<_> = requests.iter().map(|(nonce, _)| vec![nonce.clone()]).collect();
        batch.ask((&RELEASE_BATCH, &RELEASE_SHORT), &[""], &given).await;
        told = batch.told;
    }
    assert!(told.iter().all(|times| *times >= 10), "too few of one kind were told: {told:?}");
}

/// A request for a lock of another kind than the mutex.
struct Wish {
    nonce: String,
    mode: String,
}

impl Wish {
    /// Of a semaphore's permits, a reader or a writer, or one of two owners, by the number of the lock.
    fn by_chance(rng: &mut SeededRng, lock: usize) -> Self {
        let nonce = format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64());
        let mode = match lock % 3 {
            0 => format!("P{}/5", 1 + rng.below(3)),
            1 => if rng.once_in(3) { "W" } else { "R" }.to_owned(),
            _ => format!("O{:032x}", rng.below(2)),
        };
        Self { nonce, mode }
    }

    /// The arguments of the long way.
    fn asks<'a>(&'a self, stays: &'a str) -> [&'a str; 9] {
        [&self.nonce, CLIENTS[0], "20000", "{}", stays, "", CHANNELS, "", &self.mode]
    }
}

/// A batch of such locks does for each of them what the long way does, or nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_other_kinds_does_for_each_lock_what_its_own_run_does_or_leaves_it_as_it_was() {
    let Some(server) = server().await else { return };
    let lock = |name: String| Lock::new(server.client().unwrap(), name);
    let mut told = [[0; 2]; 2];
    for round in 0..40_u64 {
        let mut rng = SeededRng::new(round);
        let (mut together, mut alone, mut wishes) = (Vec::new(), Vec::new(), Vec::new());
        let mut now = 0;
        // Of some batches all locks are free.
        let all_free = round % 4 == 3;
        for i in 0..8 {
            let mut held = lock(format!("held{round}/{i}"));
            let mut last = Wish::by_chance(&mut rng, i);
            for _ in 0..if all_free { 0 } else { rng.below(4) } {
                held.now += rng.below(9_000_000);
                let wish = Wish::by_chance(&mut rng, i);
                held.run(&HOLDERS.acquire, &ALL, &wish.asks(if rng.once_in(4) { "1" } else { "" })).await.unwrap();
                if rng.once_in(2) {
                    last = wish;
                }
            }
            now = now.max(held.now);
            let both = ["together", "alone"].map(|way| lock(format!("{way}{round}/{i}")));
            for copy in &both {
                held.copy_to(copy).await;
                if i == SPOILED && !all_free {
                    copy.command(&["DEL", &copy.key("")]).await;
                    copy.command(&["RPUSH", &copy.key(""), "foreign"]).await;
                }
            }
            let [one, other] = both;
            together.push(one);
            alone.push(other);
            wishes.push(if rng.once_in(3) { last } else { Wish::by_chance(&mut rng, i) });
        }
        for lock in together.iter_mut().chain(&mut alone) {
            // Some of the locks have been at a later time: as if the clock had been set back.
            lock.now = now - 200 * (round % 3);
        }
        let asks: Vec<_> = wishes.iter().map(|wish| wish.asks("")).collect();
        let of_batch: Vec<_> = asks.iter().flat_map(|args| [args[0], args[1], args[2], args[3], args[8]]).collect();
        let releases: Vec<_> = wishes.iter().map(|wish| [&*wish.nonce, CLIENTS[0], CHANNELS, "", ""]).collect();
        let nonces: Vec<_> = wishes.iter().map(|wish| &*wish.nonce).collect();
        for (step, batch, endings, args, (script, each)) in [
            (
                0,
                &*ACQUIRE_HOLDERS_BATCH,
                &["", ":q"][..],
                &of_batch,
                (&HOLDERS.acquire, asks.iter().map(|args| &args[..]).collect::<Vec<_>>()),
            ),
            (
                1,
                &*RELEASE_HOLDERS_BATCH,
                &["", ":q"],
                &nonces,
                (&HOLDERS.release, releases.iter().map(|args| &args[..]).collect()),
            ),
        ] {
            let mut before = Vec::new();
            for (i, lock) in together.iter_mut().enumerate() {
                before.push(if i == SPOILED && !all_free { None } else { Some(lock.look().await.0) });
            }
            let mut keys: Vec<_> =
                together.iter().flat_map(|lock| endings.iter().map(|ending| lock.key(ending))).collect();
            if step == 0 {
                keys.push(counter(&together));
            }
            let replies = lines(&together[0].run_at(batch, keys, args).await.unwrap());
            assert_eq!(replies.len(), 8);
            for (i, reply) in replies.into_iter().enumerate() {
                let is_left = reply == format!("{}?", nonces[i]);
                told[step][usize::from(is_left)] += 1;
                assert!(!all_free || !is_left, "{round}/{i}: it was free");
                if i == SPOILED && !all_free {
                    assert!(is_left || reply.is_empty(), "{round}/{i}: {reply}");
                    continue;
                }
                if is_left {
                    if let Some(before) = &before[i] {
                        let after = together[i].look().await.0.without_tokens();
                        assert_eq!(after, before.clone().without_tokens(), "{round}/{i} was changed");
                    }
                    // Whatever it does is done in both.
                    for lock in [&mut together[i], &mut alone[i]] {
                        let _ = lock.run(script, &ALL, each[i]).await;
                    }
                    continue;
                }
                let own = texts(alone[i].run(script, &ALL, each[i]).await.unwrap());
                assert_eq!(own[1], "1", "{round}/{i}: {own:?}");
                assert!(reply.starts_with(&format!("{}+", nonces[i])), "{round}/{i}: {reply}");
                let (together, alone) = (together[i].look().await.0, alone[i].look().await.0);
                assert!(step == 1 || together.held[nonces[i]].contains(&reply[33..]), "{round}/{i}: {reply}");
                assert_eq!(together.without_tokens(), alone.without_tokens(), "{round}/{i}");
            }
        }
    }
    assert!(told.iter().flatten().all(|times| *times >= 20), "too few of one kind were told: {told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_last_token_that_is_text_of_its_length_is_no_obstacle() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "text");
    lock.command(&["SET", &lock.key(":tokens"), "zzzzzzzzzzzzzzzz"]).await;
    let wish = Wish { nonce: "1".repeat(32), mode: "R".to_owned() };
    let reply = texts(lock.run(&HOLDERS.acquire, &ALL, &wish.asks("")).await.unwrap());
    assert_eq!(reply[1], "1", "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_empty_teaches_the_server_its_script_and_does_nothing() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "empty");
    for script in [&*ACQUIRE_BATCH, &*RELEASE_BATCH, &*ACQUIRE_HOLDERS_BATCH, &*RELEASE_HOLDERS_BATCH] {
        assert_eq!(lock.run_at(script, Vec::new(), &[]).await.unwrap().as_text().as_deref(), Some(""));
    }
    assert_eq!(lock.command(&["DBSIZE"]).await.as_int(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_batch_holds_the_server_for_less_than_five_milliseconds() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "large");
    let keys: Vec<_> = (0..128).map(|i| format!("large:{i}:{}", "x".repeat(200))).collect();
    let nonces: Vec<_> = (0..128).map(|i| format!("{i:032x}")).collect();
    let owner = format!("{{\"host\":\"{}\"}}", "h".repeat(200));
    let queues = |keys: &[String]| keys.iter().flat_map(|key| [key.clone(), format!("{key}:q")]).collect::<Vec<_>>();
    let counted = |keys: &[String]| [queues(keys), vec!["tokens".to_owned()]].concat();
    let args: Vec<_> =
        nonces.iter().flat_map(|nonce| [format!("{nonce}:{}:{owner}:", CLIENTS[0]), "60000".to_owned()]).collect();
    let (args, nonces): (Vec<_>, Vec<_>) =
        (args.iter().map(String::as_str).collect(), nonces.iter().map(String::as_str).collect());
    let others: Vec<_> = (0..128).map(|i| format!("other:{i}:{}", "x".repeat(200))).collect();
    // Of other kinds 64 are taken at once, and 128 released.
    let permits: Vec<_> =
        nonces[..64].iter().flat_map(|nonce| [*nonce, CLIENTS[0], "60000", &*owner, "P1/2"]).collect();
    let rest: Vec<_> = nonces[64..].iter().flat_map(|nonce| [*nonce, CLIENTS[0], "60000", &*owner, "P1/2"]).collect();
    // Each is found to be held, and left to the long way.
    let held: Vec<_> = nonces[64..].iter().flat_map(|nonce| [*nonce, CLIENTS[1], "60000", &*owner, "P2/2"]).collect();
    let mut least = [Duration::MAX; 6];
    for _ in 0..20 {
        let batches = [
            (&*ACQUIRE_BATCH, counted(&keys), &args, true),
            (&*RELEASE_BATCH, keys.clone(), &nonces, true),
            (&*ACQUIRE_HOLDERS_BATCH, counted(&others[..64]), &permits, true),
            (&*ACQUIRE_HOLDERS_BATCH, counted(&others[64..]), &rest, true),
            (&*ACQUIRE_HOLDERS_BATCH, counted(&others[..64]), &held, false),
            (&*RELEASE_HOLDERS_BATCH, queues(&others), &nonces, true),
        ];
        for ((script, keys, args, are_done), least) in batches.into_iter().zip(&mut least) {
            let before = lock.server_time().await;
            let replies = lines(&lock.run_at(script, keys, args).await.unwrap());
            assert!(replies.iter().all(|reply| (reply.as_bytes()[32] == b'+') == are_done), "{replies:?}");
            *least = (*least).min(lock.server_time().await - before);
        }
    }
    assert!(least.iter().all(|least| *least < Duration::from_millis(5)), "{least:?}");
}

/// A free lock that comes several times in a batch is free for the first request only.
#[tokio::test(flavor = "multi_thread")]
async fn requests_for_one_lock_in_one_batch_see_each_other() {
    let Some(server) = server().await else { return };
    let owner = format!("O{:032x}", 1);
    let cases: [(&[&str], &str); 5] = [
        (&["R", "R", "W", "R"], "++?+"),
        (&["W", "W", "R"], "+??"),
        (&["P2/5", "P3/5", "P1/5"], "++?"),
        (&["P4/5", "P2/5", "P1/5"], "+?+"),
        // The owner is inside, which is for the long way.
        (&[&owner, &owner], "+?"),
    ];
    for (number, (modes, expected)) in cases.into_iter().enumerate() {
        let mut lock = Lock::new(server.client().unwrap(), format!("one{number}"));
        let nonces: Vec<_> = (0..modes.len()).map(|i| format!("{i:032x}")).collect();
        let mut keys: Vec<_> = modes.iter().flat_map(|_| [lock.key(""), lock.key(":q")]).collect();
        let releases = keys.clone();
        keys.push(lock.key(":tokens"));
        let asks = modes.iter().zip(&nonces).flat_map(|(mode, nonce)| [&**nonce, CLIENTS[0], "20000", "{}", mode]);
        let replies = lines(&lock.run_at(&ACQUIRE_HOLDERS_BATCH, keys, &asks.collect::<Vec<_>>()).await.unwrap());
        let signs: String = replies.iter().map(|reply| reply.chars().nth(32).unwrap()).collect();
        assert_eq!(signs, expected, "{modes:?}");
        let used: u64 =
            modes.iter().zip(signs.chars()).filter(|(_, sign)| *sign == '+').map(|(mode, _)| weight(mode)).sum();
        assert_eq!(lock.look().await.0.held["#used"], used.to_string(), "{modes:?}");
        let nonces: Vec<_> = nonces.iter().map(|nonce| &**nonce).collect();
        let replies = lines(&lock.run_at(&RELEASE_HOLDERS_BATCH, releases, &nonces).await.unwrap());
        let signs: String = replies.iter().map(|reply| reply.chars().nth(32).unwrap()).collect();
        assert_eq!(signs, expected, "{modes:?}");
        assert!(lock.look().await.0.held.is_empty(), "{modes:?}");
    }
}

/// A grant of a batch ends by itself, as one that was asked for alone does.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_taken_in_a_batch_ends_with_its_lease() {
    let Some(server) = server().await else { return };
    let mut locks: Vec<_> = (0..2).map(|i| Lock::new(server.client().unwrap(), format!("ends{i}"))).collect();
    let mut keys: Vec<_> = locks.iter().flat_map(|lock| [lock.key(""), lock.key(":q")]).collect();
    keys.push(counter(&locks));
    let args: Vec<_> = ["0", "1"].map(|digit| digit.repeat(32)).to_vec();
    let args: Vec<_> = args.iter().flat_map(|nonce| [&**nonce, CLIENTS[0], "20000", "{}", "R"]).collect();
    locks[0].run_at(&ACQUIRE_HOLDERS_BATCH, keys, &args).await.unwrap();
    for lock in &mut locks {
        let left = lock.look().await.1;
        assert!((10_000..=20_000).contains(&left), "{left} ms");
    }
}

/// A release in a batch is left to the long way where somebody waits, or where grants may have ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_releases_leaves_what_is_waited_for_and_what_is_to_be_counted_anew() {
    let Some(server) = server().await else { return };
    for (number, (second, stays, later)) in [("W", "1", 0), ("R", "", 2_000_000)].into_iter().enumerate() {
        let mut lock = Lock::new(server.client().unwrap(), format!("left{number}"));
        let nonces = ["0", "1", "2"].map(|digit| digit.repeat(32));
        for (nonce, ttl, mode, stays) in
            [(&nonces[0], "20000", "R", ""), (&nonces[1], "20000", "R", ""), (&nonces[2], "1000", second, stays)]
        {
            let args = [nonce, CLIENTS[0], ttl, "{}", stays, "", CHANNELS, "", mode];
            lock.run(&HOLDERS.acquire, &ALL, &args).await.unwrap();
        }
        lock.now += later;
        let before = lock.look().await.0;
        let keys = vec![lock.key(""), lock.key(":q"), lock.key(""), lock.key(":q")];
        let replies = lines(&lock.run_at(&RELEASE_HOLDERS_BATCH, keys, &[&nonces[0], &nonces[1]]).await.unwrap());
        assert_eq!(replies, [0, 1].map(|i| format!("{}?", nonces[i])), "{second}");
        assert_eq!(lock.look().await.0, before, "{second}");
    }
}

/// A script may begin on a server that refuses its first write.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_releases_that_a_server_refuses_to_write_is_done_for_nobody() {
    let Some(server) = server().await else { return };
    let mut locks: Vec<_> = (0..2).map(|i| Lock::new(server.client().unwrap(), format!("refused{i}"))).collect();
    let nonces = ["0", "1", "2", "3"].map(|digit| digit.repeat(32));
    // Of the first lock something stays, of the second one nothing does.
    for (nonce, lock) in nonces.iter().zip([0, 0, 0, 1]) {
        let args = [nonce, CLIENTS[0], "20000", "{}", "", "", CHANNELS, "", "P1/5"];
        locks[lock].run(&HOLDERS.acquire, &ALL, &args).await.unwrap();
    }
    let before = [locks[0].look().await.0, locks[1].look().await.0];
    let released = [(&nonces[0], 0), (&nonces[1], 0), (&nonces[3], 1)];
    let keys: Vec<_> = released.iter().flat_map(|(_, lock)| [locks[*lock].key(""), locks[*lock].key(":q")]).collect();
    let args = released.map(|(nonce, _)| &**nonce);
    locks[0].command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let refused = lines(&locks[0].run_at(&RELEASE_HOLDERS_BATCH, keys.clone(), &args).await.unwrap());
    locks[0].command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    assert_eq!(refused, ["", "", ""]);
    assert_eq!([locks[0].look().await.0, locks[1].look().await.0], before);
    let done = lines(&locks[0].run_at(&RELEASE_HOLDERS_BATCH, keys, &args).await.unwrap());
    assert_eq!(done, released.map(|(nonce, _)| format!("{nonce}+")));
}

fn weight(mode: &str) -> u64 {
    mode.strip_prefix('P').map_or(1, |rest| rest.split('/').next().unwrap().parse().unwrap())
}
