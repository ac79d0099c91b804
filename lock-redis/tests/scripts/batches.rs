//! The short ways of many mutexes as one script: for each of them what its own run would have done, whatever the others hold.

use lock_testkit_servers::resp::Value;

use crate::lock::{Lock, server};
use crate::random_state::{CLIENTS, RandomState};
use crate::scripts::{ACQUIRE_BATCH, ACQUIRE_SHORT, RELEASE_BATCH, RELEASE_SHORT, Script};

/// The lock of each batch at whose key, or at whose fence, there is something else.
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
        let keys: Vec<_> =
            self.together.iter().flat_map(|lock| endings.iter().map(|ending| lock.key(ending))).collect();
        let all: Vec<_> = args.iter().flatten().map(String::as_str).collect();
        let replies = lines(&self.together[0].run_at(batch, keys, &all).await.unwrap());
        assert_eq!(replies.len(), args.len());
        for ((i, args), reply) in args.iter().enumerate().zip(replies) {
            let args: Vec<_> = args.iter().map(String::as_str).collect();
            let alone = self.one_by_one[i].run(alone, endings, &args).await;
            // What fails for one is not told: it asks again by itself.
            assert_eq!(reply, alone.ok().and_then(|alone| alone.as_text()).unwrap_or_default(), "{i}: {args:?}");
            if i == SPOILED {
                let taken = async |lock: &Lock| lock.command(&["TYPE", &lock.key("")]).await;
                assert_eq!(taken(&self.together[i]).await, taken(&self.one_by_one[i]).await);
            } else {
                assert_eq!(self.together[i].look().await.0, self.one_by_one[i].look().await.0, "{i}: {args:?}");
            }
            let sign = reply.as_bytes().get(32);
            self.told[sign.map_or(3, |sign| b"+-?".iter().position(|known| known == sign).unwrap())] += 1;
        }
    }
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
                    // Something else is where the fence belongs, or the lock.
                    let wrong = copy.key(if round % 2 == 0 { ":f" } else { "" });
                    copy.command(&["DEL", &wrong]).await;
                    copy.command(&["RPUSH", &wrong, "foreign"]).await;
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
        batch.ask((&ACQUIRE_BATCH, &ACQUIRE_SHORT), &["", ":f"], &taken).await;
        let given: Vec<_> = requests.iter().map(|(nonce, _)| vec![nonce.clone()]).collect();
        batch.ask((&RELEASE_BATCH, &RELEASE_SHORT), &[""], &given).await;
        told = batch.told;
    }
    assert!(told.iter().all(|times| *times >= 10), "too few of one kind were told: {told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_empty_teaches_the_server_its_script_and_does_nothing() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "empty");
    for script in [&*ACQUIRE_BATCH, &*RELEASE_BATCH] {
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
    let pairs = keys.iter().flat_map(|key| [key.clone(), format!("{key}:f")]).collect::<Vec<_>>();
    let args: Vec<_> =
        nonces.iter().flat_map(|nonce| [format!("{nonce}:{}:{owner}:", CLIENTS[0]), "60000".to_owned()]).collect();
    let (args, nonces): (Vec<_>, Vec<_>) =
        (args.iter().map(String::as_str).collect(), nonces.iter().map(String::as_str).collect());
    lock.command(&["CONFIG", "SET", "slowlog-log-slower-than", "5000"]).await;
    // Whatever else this machine does: at least one of some takes its own time only.
    let mut slow = Vec::new();
    for _ in 0..20 {
        lock.command(&["SLOWLOG", "RESET"]).await;
        for (script, keys, args) in [(&*ACQUIRE_BATCH, pairs.clone(), &args), (&*RELEASE_BATCH, keys.clone(), &nonces)]
        {
            let replies = lines(&lock.run_at(script, keys, args).await.unwrap());
            assert!(replies.iter().all(|reply| reply.as_bytes()[32] == b'+'), "{replies:?}");
        }
        slow.push(lock.command(&["SLOWLOG", "LEN"]).await.as_int().unwrap());
    }
    assert!(slow.contains(&0), "each time more than 5 ms: {slow:?}");
}
