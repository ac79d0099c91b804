//! Faults that one request triggers.

use std::io::ErrorKind;
use std::time::Duration;

use lock_testkit_proxy::{Direction, LinkFault, Protocol, Toxic};

use crate::ends::{Ends, PROMPTLY, ending, hears, hears_nothing, says};

const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n";

#[tokio::test]
async fn the_reply_to_the_second_matching_request_is_hit_and_no_other() {
    let ends = Ends::new(Protocol::Resp).await;
    let (mut client, mut server) = ends.connection().await;
    let fault = LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(2, "SET");
    let reset = ends.proxy.inject(fault);
    for request in [SET, GET, SET] {
        says(&mut client, request).await;
        hears(&mut server, request).await;
    }
    // Before the replies, something that answers nobody.
    let news: &[u8] = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n";
    for reply in [news, b"+OK\r\n", b"$-1\r\n"] {
        says(&mut server, reply).await;
        hears(&mut client, reply).await;
    }
    assert!(!reset.proof().is_given());
    says(&mut server, b"+OK\r\n").await;
    assert_eq!(ending(&mut client).await, Err(ErrorKind::ConnectionReset));
    let proof = reset.heal().unwrap();
    assert_eq!((proof.frames, proof.bytes, proof.connections), (1, 5, 1));
}

#[tokio::test]
async fn a_fault_that_lasts_goes_on_where_it_was_triggered_and_nowhere_else() {
    let ends = Ends::new(Protocol::Resp).await;
    let (mut client, mut server) = ends.connection().await;
    let (mut other, mut other_server) = ends.connection().await;
    let hold = ends.proxy.inject(LinkFault::new(Toxic::Hold, Direction::Both).on_request(1, "SET"));
    says(&mut client, GET).await;
    says(&mut client, SET).await;
    hears(&mut server, GET).await;
    hold.applied(PROMPTLY).await.unwrap();
    says(&mut server, b"$-1\r\n").await;
    hears_nothing(&mut client).await;
    hears_nothing(&mut server).await;
    says(&mut other, SET).await;
    hears(&mut other_server, SET).await;
    hold.heal().unwrap();
    hears(&mut server, SET).await;
    hears(&mut client, b"$-1\r\n").await;
}

#[tokio::test]
async fn one_reply_may_be_late() {
    let ends = Ends::new(Protocol::Resp).await;
    let (mut client, mut server) = ends.connection().await;
    let delay = Toxic::Delay { by: Duration::from_millis(100), jitter: Duration::ZERO };
    let delay = ends.proxy.inject(LinkFault::new(delay, Direction::ToClient).on_request(1, "GET"));
    says(&mut client, GET).await;
    hears(&mut server, GET).await;
    let began = std::time::Instant::now();
    says(&mut server, b"$-1\r\n").await;
    hears(&mut client, b"$-1\r\n").await;
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert_eq!(delay.heal().unwrap().frames, 1);
}

#[tokio::test]
async fn a_frame_is_cut_after_so_many_bytes_and_before_its_end() {
    let ends = Ends::new(Protocol::Resp).await;
    for (bytes, arrives) in [(0, 0), (3, 3), (1000, SET.len() - 1)] {
        let (mut client, mut server) = ends.connection().await;
        let cut = LinkFault::new(Toxic::CutAfter { bytes }, Direction::ToServer).on_request(1, "SET");
        let cut = ends.proxy.inject(cut);
        says(&mut client, GET).await;
        says(&mut client, SET).await;
        hears(&mut server, GET).await;
        hears(&mut server, &SET[..arrives]).await;
        assert_eq!(ending(&mut server).await, Ok(()));
        assert_eq!(cut.heal().unwrap().connections, 1);
    }
}

#[tokio::test]
async fn a_doubled_request_arrives_twice_and_is_answered_once() {
    let ends = Ends::new(Protocol::Resp).await;
    let (mut client, mut server) = ends.connection().await;
    let double = ends.proxy.inject(LinkFault::new(Toxic::Duplicate, Direction::ToServer).on_request(1, "SET"));
    says(&mut client, &[SET, GET].concat()).await;
    hears(&mut server, &[SET, SET, GET].concat()).await;
    says(&mut server, b"+first\r\n+second\r\n$-1\r\n").await;
    hears(&mut client, b"+first\r\n$-1\r\n").await;
    double.heal().unwrap();
}

#[tokio::test]
async fn a_request_is_refused_in_its_turn_and_never_reaches_the_server() {
    let ends = Ends::new(Protocol::Resp).await;
    let (mut client, mut server) = ends.connection().await;
    let refusal = Toxic::Answer { text: "LOADING wait".to_owned() };
    let refusal = ends.proxy.inject(LinkFault::new(refusal, Direction::ToServer).on_request(1, "SET"));
    says(&mut client, &[GET, SET, GET].concat()).await;
    hears(&mut server, &[GET, GET].concat()).await;
    hears_nothing(&mut client).await;
    says(&mut server, b"$-1\r\n").await;
    hears(&mut client, b"$-1\r\n-LOADING wait\r\n").await;
    says(&mut server, b":1\r\n").await;
    hears(&mut client, b":1\r\n").await;
    says(&mut client, SET).await;
    hears(&mut server, SET).await;
    refusal.heal().unwrap();
}

/// A frame of ZooKeeper with this number and this text.
fn frame(number: i32, text: &str) -> Vec<u8> {
    let length = i32::try_from(4 + text.len()).unwrap();
    [&length.to_be_bytes()[..], &number.to_be_bytes(), text.as_bytes()].concat()
}

#[tokio::test]
async fn a_reply_of_zookeeper_is_known_by_its_number() {
    let ends = Ends::new(Protocol::ZooKeeper).await;
    let mut client = tokio::net::TcpStream::connect(ends.proxy.address()).await.unwrap();
    let mut server = ends.accept().await;
    let blackhole = LinkFault::new(Toxic::Blackhole, Direction::ToClient).on_request(1, "/lock/a");
    let blackhole = ends.proxy.inject(blackhole);
    for request in [frame(0, "greeting"), frame(-2, ""), frame(1, "/lock/a"), frame(2, "/lock/b")] {
        says(&mut client, &request).await;
        hears(&mut server, &request).await;
    }
    for reply in [frame(0, "welcome"), frame(-1, "news"), frame(-2, "")] {
        says(&mut server, &reply).await;
        hears(&mut client, &reply).await;
    }
    says(&mut server, &frame(1, "made")).await;
    says(&mut server, &frame(2, "made")).await;
    assert!(blackhole.applied(PROMPTLY).await.unwrap().frames >= 1);
    hears_nothing(&mut client).await;
}

#[tokio::test]
async fn one_reply_is_swallowed_and_the_next_ones_pass() {
    let ends = Ends::new(Protocol::ZooKeeper).await;
    let mut client = tokio::net::TcpStream::connect(ends.proxy.address()).await.unwrap();
    let mut server = ends.accept().await;
    let swallow = LinkFault::new(Toxic::Swallow, Direction::ToClient).on_request(1, "/lock/a");
    let swallow = ends.proxy.inject(swallow);
    for request in [frame(0, "greeting"), frame(1, "/lock/a"), frame(2, "/lock/a")] {
        says(&mut client, &request).await;
        hears(&mut server, &request).await;
    }
    let replies = [frame(0, "welcome"), frame(1, "made"), frame(-1, "news"), frame(2, "made")];
    says(&mut server, &replies.concat()).await;
    hears(&mut client, &[&replies[0][..], &replies[2], &replies[3]].concat()).await;
    assert_eq!(swallow.heal().unwrap().frames, 1);
}

#[tokio::test]
async fn one_request_is_swallowed_and_nobody_waits_for_its_reply() {
    let ends = Ends::new(Protocol::Resp).await;
    let (mut client, mut server) = ends.connection().await;
    let swallow = ends.proxy.inject(LinkFault::new(Toxic::Swallow, Direction::ToServer).on_request(1, "SET"));
    let refusal = Toxic::Answer { text: "LOADING wait".to_owned() };
    let refusal = ends.proxy.inject(LinkFault::new(refusal, Direction::ToServer).on_request(2, "SET"));
    says(&mut client, &[SET, SET, GET].concat()).await;
    hears(&mut client, b"-LOADING wait\r\n").await;
    hears(&mut server, GET).await;
    swallow.heal().unwrap();
    refusal.heal().unwrap();
}

#[tokio::test]
async fn the_second_matching_push_is_swallowed_and_no_reply() {
    let ends = Ends::new(Protocol::Resp).await;
    let (mut client, mut server) = ends.connection().await;
    let swallow = ends.proxy.inject(LinkFault::new(Toxic::Swallow, Direction::ToClient).on_push(2, "hi"));
    let push: &[u8] = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n";
    let other: &[u8] = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nno\r\n";
    says(&mut client, GET).await;
    hears(&mut server, GET).await;
    says(&mut server, &[push, b"$2\r\nhi\r\n", other, push, push].concat()).await;
    hears(&mut client, &[push, b"$2\r\nhi\r\n", other, push].concat()).await;
    assert_eq!(swallow.heal().unwrap().frames, 1);
}
