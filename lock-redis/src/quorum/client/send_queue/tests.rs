//! Requests to one server: their order, and which of them go together.

use std::time::Duration;

use futures_util::future::join_all;
use lock_testkit::testing::installed;
use lock_testkit_servers::redis::RedisServer;
use tokio::sync::oneshot::error::TryRecvError;

use super::waiting::{MOST, MOST_BYTES};
use super::*;
use crate::address::Address;
use crate::client::dial::{Dial, Opener};
use crate::url::Login;

fn request(letter: Option<char>, bytes: usize) -> Arc<ScriptRequest> {
    let request = ScriptRequest::new(&scripts::INSPECT, Call::of(["x".repeat(bytes)]), Phase::Acquire);
    Arc::new(match letter {
        Some(letter) => request.with_others(letter),
        None => request,
    })
}

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_origin(Duration::from_secs(seconds))
}

/// The letters of the batches that these requests make.
fn batches(requests: impl IntoIterator<Item = Arc<ScriptRequest>>) -> Vec<String> {
    let mut waiting = WaitingRequests::default();
    waiting.requests.extend(requests.into_iter().map(|request| QueuedRequest::of(&request, at(2)).0));
    let letters = |batch: Vec<QueuedRequest>| batch.iter().map(|queued| queued.request.letter.unwrap_or('-')).collect();
    std::iter::from_fn(|| waiting.take(at(1), "a server").map(letters)).collect()
}

#[test]
fn requests_go_in_their_order_and_those_without_a_letter_by_themselves() {
    let letters = [Some('a'), Some('r'), None, None, Some('r'), Some('a'), Some('a'), None];
    assert_eq!(batches(letters.map(|letter| request(letter, 9))), ["ar", "-", "-", "raa", "-"]);
}

#[test]
fn a_batch_has_so_many_requests_and_bytes_at_most() {
    let many = batches((0..MOST * 2 + 1).map(|_| request(Some('a'), 9)));
    assert_eq!(many.iter().map(String::len).collect::<Vec<_>>(), [MOST, MOST, 1]);
    let releases = batches((0..MOST).map(|_| request(Some('r'), 9)));
    assert_eq!(releases.iter().map(String::len).collect::<Vec<_>>(), [MOST]);
    let large = [MOST_BYTES + 1, MOST_BYTES - 9, 9, 1].map(|bytes| request(Some('r'), bytes));
    assert_eq!(batches(large), ["r", "rr", "r"]);
}

#[test]
fn whoever_has_no_time_left_is_not_sent_and_told_so() {
    let mut waiting = WaitingRequests::default();
    let [(late, mut told), (early, mut other)] =
        [1, 3].map(|until| QueuedRequest::of(&request(Some('a'), 9), at(until)));
    waiting.requests.extend([late, early]);
    assert_eq!(waiting.take(at(1), "a server").map(|batch| batch.len()), Some(1));
    let failed = told.try_recv().unwrap().unwrap_err();
    assert!(failed.error.is_definite() && failed.fate == RequestFate::Refused, "{failed:?}");
    assert!(waiting.take(at(1), "a server").is_none());
    // The batch was dropped here.
    assert!(other.try_recv().is_err());
}

/// A runtime that has shut down drops a task where it is begun, and with it what waits in the queue.
#[test]
fn a_request_in_a_runtime_that_has_shut_down_is_not_sent_and_stops_nobody() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let queue = runtime.block_on(async {
        let opener = Opener::new(&Login::default(), 0, None, Duration::from_secs(10)).unwrap();
        let nobody = Address::Tcp { host: "127.0.0.1".to_owned(), port: 1 };
        SendQueue::over(Link::begin(Arc::new(Dial::to(Arc::new(opener), nobody)), Arc::default()))
    });
    drop(runtime);
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let until = SystemClock.now().plus(Duration::from_secs(10));
        let answers = [(); 2].map(|()| queue.join(&request(Some('a'), 9), until, true).unwrap().unwrap());
        done.send(answers).unwrap();
    });
    let mut answers = ended.recv_timeout(Duration::from_secs(10)).expect("nobody is stopped");
    assert!(answers.iter_mut().all(|answer| matches!(answer.try_recv(), Err(TryRecvError::Closed))));
}

/// A server that has forgotten its scripts is asked again, for what is not over.
#[tokio::test]
async fn what_is_over_is_not_asked_for_again() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let (host, port) = server.address().rsplit_once(':').map(|(host, port)| (host.to_owned(), port)).unwrap();
    let opener = Opener::new(&Login::default(), 0, None, Duration::from_secs(10)).unwrap();
    let dial = Dial::to(Arc::new(opener), Address::Tcp { host, port: port.parse().unwrap() });
    let link = Link::begin(Arc::new(dial), Arc::default());
    let until = SystemClock.now().plus(Duration::from_secs(10));
    link.ready(until).await.unwrap();
    let (queue, operator) = (SendQueue::over(link.clone()), server.client().unwrap());
    let asked = |names: [&str; 3]| {
        names.map(|name| {
            let args = ["00112233445566778899aabbccddeeff", "1", "60000", "{}", "", "0"];
            let call = Call::of([name, "waiters"]).with(args);
            Arc::new(ScriptRequest::new(&scripts::ACQUIRE, call, Phase::Acquire).with_others('a'))
        })
    };
    // The first one goes by itself, the others go together.
    let known = asked(["a", "b", "c"]);
    assert!(join_all(known.iter().map(|request| queue.run(request, until))).await.iter().all(Result::is_ok));
    operator.command(&["SCRIPT", "FLUSH"]).await.unwrap();
    server.stop().unwrap();
    let requests = asked(["d", "e", "f"]);
    let mut answers: Vec<_> = requests.iter().map(|request| Box::pin(queue.run(request, until))).collect();
    assert!(answers.iter_mut().all(|answer| answer.now_or_never().is_none()));
    requests[2].end();
    server.cont().unwrap();
    let answers = join_all(answers).await;
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false], "{answers:?}");
    assert_eq!(operator.command(&["EXISTS", "d", "e", "f"]).await.unwrap().as_int(), Some(2));
    link.close();
}
