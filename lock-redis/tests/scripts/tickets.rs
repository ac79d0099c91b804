//! Places in a queue, and those who come back to theirs.

use crate::lock::{ALL, CHANNELS, Lock, server};
use crate::scripts::{HOLDERS, MUTEX};

/// The server has lost its data, and its clock is behind. The newcomer is of a client that waits already, and of another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_stands_behind_one_that_came_back_to_a_place_ahead_of_the_clock() {
    const BACK: u64 = 0xb;
    let Some(server) = server().await else { return };
    for (scripts, mode) in [(&MUTEX, ""), (&HOLDERS, "W"), (&HOLDERS, "P5/5")] {
        for newcomers_client in [BACK, 0xc] {
            let mut lock = Lock::new(server.client().unwrap(), format!("{mode}{newcomers_client}"));
            let place = (lock.now + 60_000_000).to_string();
            for (number, client, waits, ticket) in
                [(0xa, 0xa, "", ""), (BACK, BACK, "1", &*place), (0xd, newcomers_client, "1", ""), (0xe, 0xe, "1", "")]
            {
                let (nonce, client) = (format!("{number:032x}"), format!("{client:016x}"));
                let args = [&*nonce, &client, "9000", "{}", waits, ticket, CHANNELS, "", mode];
                lock.run(&scripts.acquire, &ALL, &args).await.unwrap();
                lock.now += 1000;
            }
            let queue: Vec<_> =
                lock.look().await.0.queue.into_iter().map(|(member, _)| member[..32].to_owned()).collect();
            assert_eq!(queue, [BACK, 0xd, 0xe].map(|number| format!("{number:032x}")), "{mode} {newcomers_client:x}");
            // One that comes back to an earlier place stands there, and nobody else's place changes.
            let (nonce, client) = (format!("{:032x}", 0xf), format!("{:016x}", 0xf));
            let args = [&*nonce, &client, "9000", "{}", "1", "17", CHANNELS, "", mode];
            lock.run(&scripts.acquire, &ALL, &args).await.unwrap();
            let args = [&*format!("{:032x}", 0x10), &client, "9000", "{}", "1", "", CHANNELS, "", mode];
            lock.run(&scripts.acquire, &ALL, &args).await.unwrap();
            let queue: Vec<_> =
                lock.look().await.0.queue.into_iter().map(|(member, _)| member[..32].to_owned()).collect();
            assert_eq!(queue, [0xf, BACK, 0xd, 0xe, 0x10].map(|number| format!("{number:032x}")), "{mode}");
        }
    }
}
