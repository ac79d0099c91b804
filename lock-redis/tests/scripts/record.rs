//! The record beside a mutex: who may write it, and what is kept of it.

use lock_testkit_servers::resp::Value;

use crate::lock::{Lock, server};
use crate::scripts::{ACQUIRE_SHORT, READ_RECORD, RECORD, RELEASE_SHORT};

const A: &str = "0000000000000000000000000000000a";
const B: &str = "0000000000000000000000000000000b";
const NONE: &str = "0000000000000000";

async fn take(lock: &mut Lock, nonce: &str) -> String {
    let me = format!("{nonce}:{}:{{}}:", &nonce[16..]);
    let taken = lock.run(&ACQUIRE_SHORT, &["", ":q", ":tokens"], &[&me, "20000"]).await.unwrap().as_text().unwrap();
    taken.strip_prefix(&format!("{nonce}+")).unwrap().to_owned()
}

async fn write(lock: &mut Lock, nonce: &str, token: &str, data: Option<&str>) -> Result<String, String> {
    let has_data = if data.is_some() { "1" } else { "" };
    let args = [nonce, token, "60000", has_data, data.unwrap_or_default()];
    lock.run(&RECORD, &["", ":r"], &args).await.map(told)
}

async fn read(lock: &mut Lock) -> String {
    told(lock.run(&READ_RECORD, &[":r"], &["?"]).await.unwrap())
}

fn told(reply: Value) -> String {
    let text = |part: Value| part.as_int().map_or_else(|| part.as_text().unwrap(), |number| number.to_string());
    reply.into_parts().into_iter().map(text).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_written_by_the_holder_with_a_token_that_is_not_older() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "recorded");
    let refused = write(&mut lock, A, NONE, Some("nobody holds")).await.unwrap();
    let nothing = read(&mut lock).await;
    let first = take(&mut lock, A).await;
    let stamped = write(&mut lock, A, &first, None).await.unwrap();
    assert!(stamped.contains(&format!("{first}:{NONE}:")), "{stamped}");
    let written = write(&mut lock, A, &first, Some("by A")).await.unwrap();
    assert!(written.contains(&format!("{first}:{first}:by A")), "{written}");
    assert_eq!(write(&mut lock, B, &first, Some("not mine")).await.unwrap(), refused.replace(A, B));
    lock.run(&RELEASE_SHORT, &[""], &[A]).await.unwrap();
    assert_eq!(write(&mut lock, A, &first, Some("too late")).await.unwrap(), refused);
    lock.now += 1;
    let second = take(&mut lock, B).await;
    let stamped = write(&mut lock, B, &second, None).await.unwrap();
    assert!(second > first && stamped.contains(&format!("{second}:{first}:by A")), "{stamped}");
    assert_eq!(write(&mut lock, B, &first, Some("an older token")).await.unwrap(), refused.replace(A, B));
    let now = read(&mut lock).await;
    assert!(now.contains(&format!("{second}:{first}:by A")) && !nothing.contains("by A"), "{now}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_record_is_neither_read_as_one_nor_overwritten() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "foreign");
    let token = take(&mut lock, A).await;
    for foreign in ["", "hello", "0000000000000007:", "000000000000000x:0000000000000000:"] {
        let place = lock.key(":r");
        lock.command(&["SET", &place, foreign]).await;
        let refused = write(&mut lock, A, &token, Some("data")).await.unwrap_err();
        assert!(refused.starts_with("LOCKRECORD"), "{foreign:?}: {refused}");
        assert_eq!(lock.command(&["GET", &place]).await.as_text().unwrap(), foreign);
    }
}
