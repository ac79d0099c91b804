//! Crowds: what one run of a script does is bounded, and the next run goes on.

use std::collections::BTreeSet;

use lock_testkit_servers::redis::RedisServer;

use crate::lock::{ALL, CHANNELS, Lock, server, texts};
use crate::scripts::{CHANGE_MODE, HOLDERS, MUTEX, PERMITS_HELD, Scripts};

/// As `scripts/queue.lua` has them.
const MOST_LET_IN: usize = 150;
const MOST_DROPPED: usize = 600;

/// The waiters of this client, and what they wait for.
struct Crowd {
    lock: Lock,
    scripts: &'static Scripts,
    mode: &'static str,
}

impl Crowd {
    fn new(server: &RedisServer, scripts: &'static Scripts, mode: &'static str) -> Self {
        Self { lock: Lock::new(server.client().unwrap(), format!("crowd{mode}")), scripts, mode }
    }

    async fn ask(&mut self, number: usize, client: &str, mode: &str) -> Vec<String> {
        let nonce = nonce(number);
        let args = [&*nonce, client, "60000", "{}", "1", "", CHANNELS, "", mode];
        texts(self.lock.run(&self.scripts.acquire, &ALL, &args).await.unwrap())
    }

    /// A try, which takes no place in the queue.
    async fn attempt(&mut self, number: usize, mode: &str) -> Vec<String> {
        let args = [&*nonce(number), &client(number), "60000", "{}", "", "", CHANNELS, "", mode];
        texts(self.lock.run(&self.scripts.acquire, &ALL, &args).await.unwrap())
    }

    /// So many hold the lock, each for a client of its own.
    async fn fill(&mut self, holders: usize) {
        for number in 0..holders {
            let asked = self.ask(number, &client(number), self.mode).await;
            assert_eq!(asked[1], "1", "{asked:?}");
        }
    }

    /// So many hold the lock, and of these every third one lives on when the others' leases have ended.
    async fn a_third_lives_on(&mut self, holders: usize) {
        self.fill(holders).await;
        for number in (0..holders).step_by(3) {
            self.renew(number).await;
        }
    }

    /// Heartbeats for this client until it is not told to go on; how many runs that took.
    async fn heartbeat_to_the_end(&mut self, client: &str) -> usize {
        let mut runs = 1;
        while self.heartbeat(client).await[2] == "-3" {
            runs += 1;
            assert!(runs < 20, "it comes to no end");
        }
        runs
    }

    async fn cancel(&mut self, number: usize, client: &str) {
        let args = [&*nonce(number), client, CHANNELS, "", ""];
        self.lock.run(&self.scripts.cancel, &ALL, &args).await.unwrap();
    }

    /// One holds, so many wait who die, and one more waits that lives and gives signs meanwhile, so that the server did not
    /// stand still.
    async fn all_but_one_die(&mut self, dead: usize) {
        self.ask(0, &client(1), "").await;
        self.gather(1..=dead, false).await;
        self.ask(dead + 1, &client(2), "").await;
        for _ in 0..3 {
            self.lock.now += 1_000_000;
            self.heartbeat(&client(2)).await;
        }
        self.lock.now += 1_000_000;
    }

    /// Makes a grant last for another 90 s.
    async fn renew(&mut self, number: usize) {
        let args = [&*nonce(number), "90000", &self.lock.key(":x")];
        self.lock.run(&HOLDERS.renew, &[""], &args).await.unwrap();
    }

    /// So many wait, each for a client of its own or all of them for one.
    async fn gather(&mut self, numbers: std::ops::RangeInclusive<usize>, clients: bool) {
        for number in numbers {
            let client = client(if clients { number } else { 1 });
            let asked = self.ask(number, &client, self.mode).await;
            assert_eq!(asked[1], "0", "{asked:?}");
        }
    }

    async fn release(&mut self, number: usize, client: &str) -> Vec<String> {
        let args = [&*nonce(number), client, CHANNELS, "", ""];
        texts(self.lock.run(&self.scripts.release, &ALL, &args).await.unwrap())
    }

    async fn heartbeat(&mut self, client: &str) -> Vec<String> {
        texts(self.lock.run(&self.scripts.heartbeat, &ALL, &[client, CHANNELS, "", "7", ""]).await.unwrap())
    }

    /// The number of permits that count as held, and `1` if counting goes on with the next run.
    async fn used(&mut self) -> (usize, String) {
        let [_, used, more] = texts(self.lock.run(&PERMITS_HELD, &ALL, &[]).await.unwrap()).try_into().unwrap();
        (used.parse().unwrap(), more)
    }

    async fn calls_of(&self, command: &str) -> u64 {
        let told = self.lock.command(&["INFO", "commandstats"]).await.as_text().unwrap();
        let line =
            told.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls="))?.split(',').next());
        line.map_or(0, |calls| calls.parse().unwrap())
    }
}

fn nonce(number: usize) -> String {
    format!("{number:032x}")
}

fn client(number: usize) -> String {
    format!("{number:016x}")
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_behind_a_writer_are_let_in_some_at_a_time() {
    const READERS: usize = 1100;
    let Some(server) = server().await else { return };
    for caller in [client(1), client(2)] {
        let mut crowd = Crowd::new(&server, &HOLDERS, "R");
        crowd.lock.rename(format!("readers{caller}"));
        crowd.ask(0, &caller, "W").await;
        crowd.gather(1..=READERS, false).await;
        let mut more = crowd.release(0, &caller).await[1] == "2";
        let mut runs = 1;
        loop {
            let inside = crowd.lock.look().await.0.held.keys().filter(|field| !field.starts_with('#')).count();
            assert_eq!(more, inside < READERS, "{inside} are inside");
            assert_eq!(inside, READERS.min(runs * MOST_LET_IN), "after {runs} runs");
            if !more {
                break;
            }
            more = crowd.heartbeat(&client(3)).await[2] == "-3";
            runs += 1;
        }
        let data = crowd.lock.look().await.0;
        let tokens = data.held.iter().filter(|(field, _)| !field.starts_with('#'));
        let tokens: BTreeSet<u64> =
            tokens.map(|(_, record)| record.split(':').nth(1).unwrap().parse().unwrap()).collect();
        assert_eq!(tokens.len(), READERS, "each has a token of its own");
        assert_eq!(tokens.last().unwrap().to_string(), data.last_token, "the counter knows the last");
        assert_eq!(data.held["#used"], READERS.to_string());
        assert!(data.queue.is_empty() && data.waiters.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_behind_a_writer_that_becomes_a_reader_are_let_in_some_at_a_time() {
    let Some(server) = server().await else { return };
    let mut crowd = Crowd::new(&server, &HOLDERS, "R");
    crowd.ask(0, &client(1), "W").await;
    crowd.gather(1..=MOST_LET_IN + 50, false).await;
    let args = [&*nonce(0), &client(1), CHANNELS, "", "R"];
    let changed = texts(crowd.lock.run(&CHANGE_MODE, &ALL, &args).await.unwrap());
    assert_eq!(changed[1], "2", "there is more to do");
    assert_eq!(crowd.lock.look().await.0.held["#used"], (1 + MOST_LET_IN).to_string());
    crowd.heartbeat_to_the_end(&client(3)).await;
    assert_eq!(crowd.lock.look().await.0.held["#used"], (1 + MOST_LET_IN + 50).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_holders_are_counted_anew_a_part_at_a_time() {
    const READERS: usize = 3000;
    let Some(server) = server().await else { return };
    let mut crowd = Crowd::new(&server, &HOLDERS, "R");
    crowd.a_third_lives_on(READERS).await;
    // A writer waits.
    crowd.ask(READERS, &client(1), "W").await;
    crowd.lock.now += 61_000_000;
    crowd.ask(READERS, &client(1), "W").await;
    let before = crowd.calls_of("hgetall").await;
    let runs = crowd.heartbeat_to_the_end(&client(1)).await;
    assert!(runs > 2, "it was counted in {runs} runs");
    assert_eq!(crowd.calls_of("hgetall").await, before, "all holders are looked at in one run");
    let data = crowd.lock.look().await.0;
    let holders = data.held.keys().filter(|field| !field.starts_with('#')).count();
    assert_eq!((holders, &*data.held["#used"]), (READERS / 3, "1000"));
    let end = data.held[&nonce(0)].split(':').next().unwrap();
    assert!(data.held["#next"].as_str() <= end && !data.held.contains_key("#scan"), "{end}");
    // When all have ended, the writer has it.
    crowd.lock.now += 30_000_000;
    crowd.ask(READERS, &client(1), "W").await;
    let mut heartbeats = 0;
    while crowd.lock.look().await.0.held.get("#group").is_none_or(|group| group != "W") {
        assert!(heartbeats < 4, "the writer does not have it");
        crowd.lock.now += 1_000_000;
        crowd.heartbeat(&client(1)).await;
        heartbeats += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_in_place_of_one_that_has_ended_loses_no_permits() {
    const HOLDERS_OF_TWO: usize = 3000;
    const MODE: &str = "P2/10000";
    let Some(server) = server().await else { return };
    let mut crowd = Crowd::new(&server, &HOLDERS, MODE);
    crowd.fill(HOLDERS_OF_TWO).await;
    for number in (0..HOLDERS_OF_TWO).filter(|number| number % 10 != 0) {
        crowd.renew(number).await;
    }
    crowd.lock.now += 61_000_000;
    // Each run of the script looks at a part, so that most of these were not looked at yet.
    for number in (0..HOLDERS_OF_TWO).step_by(10) {
        assert_eq!(crowd.ask(number, &client(number), MODE).await[1], "1");
    }
    crowd.heartbeat_to_the_end(&client(1)).await;
    let held = crowd.lock.look().await.0.held;
    assert_eq!(held.keys().filter(|field| !field.starts_with('#')).count(), HOLDERS_OF_TWO);
    assert_eq!(held["#used"], (2 * HOLDERS_OF_TWO).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_at_a_semaphore_goes_on_until_all_that_have_ended_are_counted() {
    const HELD: usize = 3000;
    let Some(server) = server().await else { return };
    let mut crowd = Crowd::new(&server, &HOLDERS, "P1/3000");
    crowd.a_third_lives_on(HELD).await;
    crowd.lock.now += 61_000_000;
    let mut runs = 1;
    loop {
        let tried = crowd.attempt(HELD, "P2000/3000").await;
        if tried[1] == "1" {
            break;
        }
        assert_eq!(tried[2], "-3", "after {runs} runs it is told that there is no room");
        runs += 1;
        assert!(runs < 20, "it comes to no end");
    }
    assert!(runs > 2, "it was counted in {runs} runs");
    // What can not be had, is not asked for again.
    assert_ne!(crowd.attempt(HELD + 1, "P1/3000").await[2], "-3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_at_a_free_lock_goes_on_until_all_dead_waiters_are_dropped() {
    const DEAD: usize = 2500;
    let Some(server) = server().await else { return };
    let mut crowd = Crowd::new(&server, &MUTEX, "");
    crowd.all_but_one_die(DEAD).await;
    crowd.cancel(DEAD + 1, &client(2)).await;
    assert_ne!(crowd.attempt(DEAD + 2, "").await[2], "-3", "it is held");
    crowd.lock.ends_in(0).await;
    for run in 1.. {
        let tried = crowd.attempt(DEAD + 2, "").await;
        if run * MOST_DROPPED >= DEAD {
            assert_eq!(tried[1], "1");
            break;
        }
        assert_eq!(tried[2], "-3", "after {run} runs");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_memory_for_how_far_counting_has_come_nobody_is_told_to_go_on() {
    const READERS: usize = 1500;
    let Some(server) = server().await else { return };
    let mut crowd = Crowd::new(&server, &HOLDERS, "R");
    crowd.fill(READERS).await;
    for number in 0..READERS {
        crowd.renew(number).await;
    }
    crowd.ask(READERS, &client(1), "W").await;
    crowd.lock.now += 61_000_000;
    crowd.heartbeat(&client(2)).await;
    crowd.lock.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    // Of a client that only goes on where another script stopped.
    let asked = crowd.heartbeat(&client(2)).await;
    crowd.lock.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_ne!(asked[2], "-3");
    crowd.heartbeat_to_the_end(&client(2)).await;
    assert!(!crowd.lock.look().await.0.held.contains_key("#scan"));
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_waiters_are_dropped_some_at_a_time() {
    const DEAD: usize = 2500;
    let Some(server) = server().await else { return };
    let mut crowd = Crowd::new(&server, &MUTEX, "");
    crowd.all_but_one_die(DEAD).await;
    let mut replied = crowd.release(0, &client(3)).await[1].clone();
    for run in 1.. {
        let data = crowd.lock.look().await.0;
        let left = (DEAD + 1).saturating_sub(run * MOST_DROPPED);
        if left == 0 {
            assert!(data.held[""].starts_with(&nonce(DEAD + 1)) && data.queue.is_empty(), "{data:?}");
            assert_ne!(replied, "-3");
            break;
        }
        assert_eq!(data.queue.len(), left);
        assert!(data.held.is_empty() && (replied == "2" || replied == "-3"), "{replied}");
        replied = crowd.heartbeat(&client(2)).await[2].clone();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clearing_up_after_clients_that_left_is_no_heartbeat_s_whole_work() {
    const GONE: usize = 3000;
    let Some(server) = server().await else { return };
    let mut crowd = Crowd::new(&server, &MUTEX, "");
    crowd.ask(0, &client(0), "").await;
    crowd.gather(1..=GONE, true).await;
    for number in 2..=GONE {
        crowd.cancel(number, &client(number)).await;
    }
    let signs = async |crowd: &mut Crowd| {
        crowd.lock.look().await.0.waiters.keys().filter(|field| field.starts_with('@')).count()
    };
    assert!(signs(&mut crowd).await >= GONE, "they may be alive");
    let before = crowd.calls_of("hgetall").await;
    crowd.heartbeat(&client(1)).await;
    assert_eq!(crowd.calls_of("hgetall").await, before, "a heartbeat looks at the whole hash");
    let mut heartbeats = 0;
    while signs(&mut crowd).await > 80 {
        crowd.lock.now += 1_000_000;
        crowd.heartbeat(&client(1)).await;
        heartbeats += 1;
        assert!(heartbeats < 1000, "{} signs are left after {heartbeats} heartbeats", signs(&mut crowd).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_come_and_go_leave_no_more_signs_than_can_be_alive() {
    let Some(server) = server().await else { return };
    let mut crowd = Crowd::new(&server, &MUTEX, "");
    crowd.ask(0, &client(0), "").await;
    crowd.ask(1, &client(1), "").await;
    // A hundred each second, and nobody sends heartbeats.
    for number in 2..=3000 {
        crowd.lock.now += 10_000;
        crowd.ask(number, &client(number), "").await;
        crowd.cancel(number, &client(number)).await;
        if number % 100 == 0 {
            // A sign of life that clears nothing up.
            crowd.ask(1, &client(1), "").await;
        }
    }
    assert_eq!(crowd.lock.look().await.0.queue.len(), 1);
    let signs = crowd.lock.look().await.0.waiters.len();
    assert!(signs < 600, "{signs} for the 300 of the last 3 s");
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_are_counted_a_part_at_a_time_and_exactly() {
    const PERMITS: usize = 3000;
    let Some(server) = server().await else { return };
    let mut crowd = Crowd::new(&server, &HOLDERS, "P1/9000");
    crowd.fill(PERMITS).await;
    let looks = crowd.calls_of("hscan").await + crowd.calls_of("hgetall").await;
    assert_eq!(crowd.used().await, (PERMITS, "0".to_owned()));
    assert_eq!(crowd.calls_of("hscan").await + crowd.calls_of("hgetall").await, looks, "the number is known");
    for number in (0..PERMITS).step_by(3) {
        crowd.renew(number).await;
    }
    crowd.lock.now += 61_000_000;
    let mut runs = 1;
    let held = loop {
        let (held, more) = crowd.used().await;
        if more == "0" {
            break held;
        }
        assert!(runs < 20, "it does not end");
        runs += 1;
    };
    assert_eq!(held, PERMITS / 3);
    assert!(runs >= PERMITS / 1000, "{runs} runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_of_permits_that_began_long_ago_says_so() {
    const PERMITS: usize = 3000;
    let Some(server) = server().await else { return };
    let mut crowd = Crowd::new(&server, &HOLDERS, "P1/9000");
    crowd.fill(PERMITS).await;
    for number in 1..PERMITS {
        crowd.renew(number).await;
    }
    // One of them ends, and half of the others are looked at.
    crowd.lock.now += 61_000_000;
    for _ in 0..3 {
        assert_eq!(crowd.used().await.1, "1");
    }
    // All end.
    crowd.lock.now += 600_000_000;
    let mut said = Vec::new();
    while said.last() != Some(&(0, "0".to_owned())) {
        assert!(said.len() < 20, "it does not end: {said:?}");
        said.push(crowd.used().await);
    }
    assert_eq!(said.iter().filter(|(_, more)| more == "2").count(), 1, "{said:?}");
    assert!(said.iter().all(|(held, more)| more != "0" || *held == 0), "nobody holds any: {said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_that_are_granted_while_the_clock_goes_back_under_a_count_are_counted() {
    const PERMITS: usize = 2000;
    let Some(server) = server().await else { return };
    let mut crowd = Crowd::new(&server, &HOLDERS, "P1/9000");
    crowd.fill(PERMITS).await;
    for number in 1..PERMITS {
        crowd.renew(number).await;
    }
    // One has ended, and a part of the others was looked at.
    crowd.lock.now += 61_000_000;
    assert_eq!(crowd.used().await.1, "1");
    crowd.lock.now -= 30_000_000;
    for number in PERMITS..PERMITS + 200 {
        let args = [&*nonce(number), &client(number), "1000", "{}", "", "", CHANNELS, "", "P1/9000"];
        assert_eq!(texts(crowd.lock.run(&HOLDERS.acquire, &ALL, &args).await.unwrap())[1], "1");
    }
    crowd.lock.now += 30_000_000;
    let mut looks = 0;
    while crowd.used().await.0 != PERMITS - 1 {
        assert!(looks < 40, "permits that have ended are not free");
        looks += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inspection_lists_some_and_counts_the_others() {
    const MANY: usize = 1500;
    let Some(server) = server().await else { return };
    let mut crowd = Crowd::new(&server, &HOLDERS, "R");
    for number in 0..MANY {
        crowd.ask(number, &client(number), "R").await;
    }
    for number in MANY..2 * MANY {
        crowd.ask(number, &client(1), "W").await;
    }
    let seen = crowd.lock.run(&HOLDERS.inspect, &ALL, &["500"]).await.unwrap().into_parts();
    let [_, _, held, others, queue, entries, more] = seen.try_into().unwrap();
    let listed = texts(held).chunks(2).filter(|pair| !pair[0].starts_with('#')).count();
    assert!((500..700).contains(&listed), "{listed}");
    assert_eq!(listed + usize::try_from(others.as_int().unwrap()).unwrap(), MANY);
    let queue = texts(queue);
    assert_eq!((queue.len(), texts(entries).len(), more.as_int()), (1000, 500, Some(1000)));
    assert!(queue[0].starts_with(&nonce(MANY)), "the first in the queue come first");
}
