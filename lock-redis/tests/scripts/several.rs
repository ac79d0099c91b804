//! Several locks by one script: all of them as each by itself would have been taken, or everything as it was.

use std::time::Duration;

use lock_testkit_servers::resp::Value;

use crate::lock::{ALL, CHANNELS, Lock, server};
use crate::random_state::{CLIENTS, RandomState};
use crate::scripts::{HOLDERS, MUTEX, SEVERAL};

const TTL: &str = "20000";

/// Several locks in random states.
struct Several {
    locks: Vec<Lock>,
    /// Of each its nonce and its mode.
    wanted: Vec<(String, &'static str)>,
    /// Whether there is something else in the place of the last one.
    is_spoiled: bool,
}

impl Several {
    /// Asks for all of them.
    async fn ask(&mut self) -> Vec<Value> {
        let of = |lock: &Lock| ALL.map(|ending| if ending == ":tokens" { self.counter() } else { lock.key(ending) });
        let keys = self.locks.iter().flat_map(of).collect();
        let args = self.wanted.iter().flat_map(|(nonce, mode)| [&**nonce, CLIENTS[0], TTL, "{}", mode]);
        let args: Vec<_> = args.collect();
        self.locks[0].run_at(&SEVERAL, keys, &args).await.unwrap().into_parts()
    }

    /// The counter that they share.
    fn counter(&self) -> String {
        self.locks[0].key(":common tokens")
    }

    /// The content of all of them but the spoiled one, and but for the tokens.
    async fn look(&mut self) -> Vec<crate::lock::Data> {
        let mut seen = Vec::new();
        let sound = self.locks.len() - usize::from(self.is_spoiled);
        for lock in &mut self.locks[..sound] {
            seen.push(lock.look().await.0.without_tokens());
        }
        seen
    }
}

/// The answer to a try of one by itself: granted, held, or an error.
async fn alone(lock: &mut Lock, nonce: &str, mode: &str) -> Result<Option<(String, String)>, String> {
    let script = if mode.is_empty() { &MUTEX.acquire } else { &HOLDERS.acquire };
    let args = [nonce, CLIENTS[0], TTL, "{}", "", "", CHANNELS, "", mode];
    let parts = lock.run(script, &ALL, &args).await?.into_parts();
    let text = |part: &Value| part.as_text().unwrap_or_else(|| part.as_int().unwrap().to_string());
    Ok((text(&parts[1]) == "1").then(|| (text(&parts[2]), text(&parts[3]))))
}

#[tokio::test(flavor = "multi_thread")]
async fn several_are_taken_as_each_by_itself_or_everything_is_as_it_was() {
    let Some(server) = server().await else { return };
    let lock = |name: String| Lock::new(server.client().unwrap(), name);
    let mut told = [0_u32; 3];
    for round in 0..150_u64 {
        let is_spoiled = round % 7 == 3;
        let mut several = Several { locks: Vec::new(), wanted: Vec::new(), is_spoiled };
        let (mut copies, mut now) = (Vec::new(), 0);
        for i in 0..4 {
            let seed = round * 4 + i;
            // Most often free: otherwise hardly ever all of them are.
            let mut state =
                RandomState::after(lock(String::new()), seed, if seed % 5 == 0 { seed % 8 } else { 0 }).await;
            now = now.max(state.lock.now);
            let both = ["together", "alone"].map(|way| lock(format!("{way}{seed}")));
            let writer = i == 2 && state.lock.look().await.0.held.is_empty();
            for mut copy in both {
                state.lock.copy_to(&copy).await;
                if is_spoiled && i == 3 && round % 2 == 1 {
                    // Something else is where the lock belongs.
                    copy.command(&["DEL", &copy.key("")]).await;
                    copy.command(&["RPUSH", &copy.key(""), "foreign"]).await;
                }
                if writer && round % 5 == 4 {
                    copy.now = state.lock.now;
                    alone(&mut copy, &"e".repeat(32), if round % 2 == 0 { "R" } else { "W" }).await.unwrap();
                }
                if copy.key("").contains("alone") { copies.push(copy) } else { several.locks.push(copy) }
            }
            let holder = state.holder().await.filter(|(_, client)| client == CLIENTS[0] && seed % 3 == 0);
            let nonce = holder.map_or_else(|| format!("{seed:032x}"), |(nonce, _)| nonce);
            several.wanted.push((nonce, if writer { "W" } else { "" }));
        }
        several.locks.iter_mut().chain(&mut copies).for_each(|lock| lock.now = now);
        // A last token ahead of the clock, or behind it, or something else in its place.
        let last = if round % 3 == 0 { now + 500 } else { now - 500 };
        several.locks[0].command(&["SET", &several.counter(), &last.to_string(), "PX", "7200000"]).await;
        if is_spoiled && round % 2 == 0 {
            several.locks[0].command(&["DEL", &several.counter()]).await;
            several.locks[0].command(&["RPUSH", &several.counter(), "foreign"]).await;
        }
        let before = several.look().await;
        let reply = several.ask().await;
        let status = reply[1].as_text().unwrap_or_else(|| reply[1].as_int().unwrap().to_string());
        let status: usize = status.parse().unwrap();
        told[status] += 1;
        if is_spoiled && round % 2 == 0 {
            assert_eq!((status, several.look().await), (2, before), "round {round}: {reply:?}");
            continue;
        }
        let mut each = Vec::new();
        for (copy, (nonce, mode)) in copies.iter_mut().zip(&several.wanted) {
            each.push(alone(copy, nonce, mode).await);
        }
        if status == 1 {
            let tokens = reply[2..].iter().step_by(2).map(|token| token.as_text().unwrap().parse().unwrap());
            let tokens: Vec<u64> = tokens.collect();
            let held_before = before.iter().zip(&several.wanted);
            let had_one = held_before.map(|(data, (nonce, _))| data.held.values().any(|held| held.contains(&**nonce)));
            let new: Vec<_> = tokens.iter().zip(had_one).filter(|(_, had)| !had).map(|(token, _)| *token).collect();
            assert!(new.iter().all(|token| *token > last), "round {round}: {tokens:?} after {last}");
            assert!(new.is_sorted_by(|a, b| a < b), "round {round}: {tokens:?}");
            let counter = several.locks[0].command(&["GET", &several.counter()]).await.as_text().unwrap();
            assert!(new.iter().all(|token| *token <= counter.parse().unwrap()), "round {round}: {tokens:?}, {counter}");
            for (i, (outcome, reply)) in each.iter().zip(reply[2..].chunks(2)).enumerate() {
                let reply = reply.iter().map(|part| part.as_text().unwrap()).collect::<Vec<_>>();
                let (_, ms) = outcome.as_ref().unwrap().as_ref().expect("it is refused by itself");
                assert_eq!(&reply[1], ms, "round {round}, lock {i}");
                let (together, copy) = (several.locks[i].look().await.0, copies[i].look().await.0);
                assert!(
                    together.held.values().any(|held| held.contains(&reply[0])),
                    "round {round}, lock {i}: {reply:?}"
                );
                assert_eq!(together.without_tokens(), copy.without_tokens(), "round {round}, lock {i}");
            }
            continue;
        }
        assert_eq!(reply.len(), 2);
        assert!(status == 2 || each.iter().any(|outcome| matches!(outcome, Ok(None))), "round {round}: {each:?}");
        if several
            .wanted
            .iter()
            .zip(&before)
            .all(|((nonce, _), data)| data.held.values().all(|held| !held.contains(nonce.as_str())))
        {
            assert_eq!(several.look().await, before, "round {round}: {reply:?}");
        }
    }
    assert!(told.iter().all(|times| *times >= 10), "too few of one kind were told: {told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_most_locks_that_are_taken_at_once_hold_the_server_for_less_than_five_milliseconds() {
    let Some(server) = server().await else { return };
    let lock = |i: usize| Lock::new(server.client().unwrap(), format!("large{i}{}", "x".repeat(150)));
    let mut several = Several { locks: Vec::new(), wanted: Vec::new(), is_spoiled: false };
    for i in 0..64 {
        several.locks.push(lock(i));
        several.wanted.push((format!("{i:032x}"), if i % 2 == 0 { "W" } else { "" }));
    }
    // Granted first, and refused at its last lock then.
    for refused in [false, true] {
        let mut least = Duration::MAX;
        for _ in 0..20 {
            several.locks[0].command(&["FLUSHDB"]).await;
            if refused {
                several.locks[63].command(&["SET", &several.locks[63].key(""), "foreign"]).await;
            }
            let before = several.locks[0].server_time().await;
            let reply = several.ask().await;
            assert_eq!(reply.len(), if refused { 2 } else { 130 });
            least = least.min(several.locks[0].server_time().await - before);
        }
        assert!(least < Duration::from_millis(5), "{least:?}");
    }
}
