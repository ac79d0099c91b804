//! Faults of everything that passes a link.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use lock_testkit_proxy::{Direction, LinkFault, Protocol, Toxic, Trigger};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::ends::{Ends, PROMPTLY, ending, hears, hears_nothing, says, soon};

const BOTH: Direction = Direction::Both;

fn now(toxic: Toxic, direction: Direction) -> LinkFault {
    LinkFault::new(toxic, direction)
}

#[tokio::test]
async fn without_a_fault_everything_passes_both_ends_included() {
    let ends = Ends::new(Protocol::Opaque).await;
    let (mut client, mut server) = ends.connection().await;
    drop(client);
    assert_eq!(ending(&mut server).await, Ok(()));
    (client, server) = ends.connection().await;
    drop(server);
    assert_eq!(ending(&mut client).await, Ok(()));
    assert_eq!((ends.proxy.connections(), ends.proxy.requests()), (2, 2));
}

#[tokio::test]
async fn what_is_held_arrives_in_order_when_it_is_healed_and_so_does_the_end() {
    let ends = Ends::new(Protocol::Resp).await;
    let (mut client, mut server) = ends.connection().await;
    let hold = ends.proxy.inject(now(Toxic::Hold, Direction::ToServer));
    says(&mut client, b"+one\r\n+two\r\n").await;
    says(&mut server, b"+passes\r\n").await;
    hears(&mut client, b"+passes\r\n").await;
    drop(client);
    assert_eq!(hold.applied(PROMPTLY).await.unwrap().frames, 2);
    hears_nothing(&mut server).await;
    assert_eq!(hold.heal().unwrap().bytes, 12);
    hears(&mut server, b"+one\r\n+two\r\n").await;
    assert_eq!(ending(&mut server).await, Ok(()));
}

#[tokio::test]
async fn a_held_link_takes_no_connection_through_before_it_is_healed() {
    let ends = Ends::new(Protocol::Opaque).await;
    let hold = ends.proxy.inject(now(Toxic::Hold, BOTH));
    let mut client = TcpStream::connect(ends.proxy.address()).await.unwrap();
    says(&mut client, b"x").await;
    ends.nobody_comes().await;
    assert_eq!(hold.heal().unwrap().connections, 1);
    hears(&mut ends.accept().await, b"x").await;
}

#[tokio::test]
async fn a_stalled_link_fills_the_sender_s_buffers_and_loses_nothing() {
    const MUCH: usize = 32 << 20;
    let ends = Ends::new(Protocol::Opaque).await;
    let (client, mut server) = ends.connection().await;
    let stall = ends.proxy.inject(now(Toxic::Stall, BOTH));
    let (_keep, mut sending) = client.into_split();
    let sent = tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut sending, &vec![7; MUCH]).await });
    stall.applied(PROMPTLY).await.unwrap();
    hears_nothing(&mut server).await;
    assert!(!sent.is_finished(), "the buffers took all of it");
    stall.heal().unwrap();
    let mut all = vec![0; MUCH];
    soon(server.read_exact(&mut all)).await.unwrap();
    assert!(all.iter().all(|byte| *byte == 7) && sent.await.unwrap().is_ok());
}

#[tokio::test]
async fn what_falls_into_a_blackhole_never_arrives_and_its_connection_is_reset_when_it_is_healed() {
    let ends = Ends::new(Protocol::Resp).await;
    let (mut client, mut server) = ends.connection().await;
    let (mut quiet, mut other) = ends.connection().await;
    let blackhole = ends.proxy.inject(now(Toxic::Blackhole, Direction::ToClient));
    says(&mut client, b"+passes\r\n").await;
    hears(&mut server, b"+passes\r\n").await;
    says(&mut server, b"+lost\r\n").await;
    blackhole.applied(PROMPTLY).await.unwrap();
    hears_nothing(&mut client).await;
    assert_eq!(blackhole.heal().unwrap().frames, 1);
    assert_eq!(ending(&mut client).await, Err(ErrorKind::ConnectionReset));
    assert_eq!(ending(&mut server).await, Err(ErrorKind::ConnectionReset));
    // A connection that lost nothing goes on.
    says(&mut other, b"+here\r\n").await;
    hears(&mut quiet, b"+here\r\n").await;
}

#[tokio::test]
async fn present_connections_are_reset_or_closed_and_new_ones_are_not() {
    let ends = Ends::new(Protocol::Opaque).await;
    for (toxic, expected) in [(Toxic::Reset, Err(ErrorKind::ConnectionReset)), (Toxic::Fin, Ok(()))] {
        let (mut client, mut server) = ends.connection().await;
        let cut = ends.proxy.inject(now(toxic, BOTH));
        assert_eq!(ending(&mut client).await, expected);
        assert_eq!(ending(&mut server).await, expected);
        ends.connection().await;
        assert_eq!(cut.heal().unwrap().connections, 1);
    }
}

#[tokio::test]
async fn a_port_that_refuses_is_open_again_afterwards_and_present_connections_go_on() {
    let ends = Ends::new(Protocol::Opaque).await;
    let (mut client, mut server) = ends.connection().await;
    let refusal = ends.proxy.inject(now(Toxic::Refuse, BOTH));
    refusal.applied(PROMPTLY).await.unwrap();
    let error = TcpStream::connect(ends.proxy.address()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    says(&mut client, b"x").await;
    hears(&mut server, b"x").await;
    refusal.heal().unwrap();
    let again = async {
        while TcpStream::connect(ends.proxy.address()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(again).await;
}

#[tokio::test]
async fn a_delayed_frame_is_late_by_what_the_seed_says_and_no_other_overtakes_it() {
    let ends = Ends::new(Protocol::Resp).await;
    let (mut client, mut server) = ends.connection().await;
    let delay = Toxic::Delay { by: Duration::from_millis(80), jitter: Duration::from_millis(40) };
    let delay = ends.proxy.inject(now(delay, Direction::ToServer).with_seed(3));
    let began = Instant::now();
    says(&mut client, b"+one\r\n").await;
    says(&mut client, b"+two\r\n").await;
    hears(&mut server, b"+one\r\n+two\r\n").await;
    assert!(began.elapsed() >= Duration::from_millis(80));
    assert_eq!(delay.heal().unwrap().frames, 2);
}

#[tokio::test]
async fn a_throttled_link_takes_its_time_and_a_split_one_sends_byte_by_byte() {
    let ends = Ends::new(Protocol::Opaque).await;
    let (mut client, mut server) = ends.connection().await;
    let throttle = ends.proxy.inject(now(Toxic::Throttle { rate: 1000 }, Direction::ToServer));
    let began = Instant::now();
    says(&mut client, &[b'x'; 200]).await;
    hears(&mut server, &[b'x'; 180]).await;
    assert!(began.elapsed() >= Duration::from_millis(150), "{:?}", began.elapsed());
    throttle.heal().unwrap();
    hears(&mut server, &[b'x'; 20]).await;

    let split = ends.proxy.inject(now(Toxic::Split, Direction::ToServer));
    says(&mut client, b"0123456789").await;
    let mut most = 0;
    let mut left = 10;
    while left > 0 {
        let heard = soon(server.read(&mut [0; 10])).await.unwrap();
        (left, most) = (left - heard, most.max(heard));
    }
    assert!(most < 10, "all bytes came at once");
    split.heal().unwrap();
}

#[tokio::test]
async fn a_throttled_link_is_as_fast_as_ever_once_it_is_healed() {
    let ends = Ends::new(Protocol::Opaque).await;
    let (mut client, mut server) = ends.connection().await;
    let throttle = ends.proxy.inject(now(Toxic::Throttle { rate: 100 }, Direction::ToServer));
    // All of it is on its way by then, for ten minutes at this rate.
    says(&mut client, &[b'x'; 60_000]).await;
    hears(&mut server, b"x").await;
    throttle.heal().unwrap();
    hears(&mut server, &[b'x'; 59_999]).await;
}

#[tokio::test]
async fn a_fault_may_begin_after_so_many_bytes() {
    let ends = Ends::new(Protocol::Resp).await;
    let (mut client, mut server) = ends.connection().await;
    let fault = now(Toxic::Hold, Direction::ToServer).on(Trigger::AfterBytes(12));
    let hold = ends.proxy.inject(fault);
    says(&mut client, b"+one\r\n+two\r\n").await;
    hears(&mut server, b"+one\r\n+two\r\n").await;
    assert!(!hold.proof().is_given());
    says(&mut client, b"+three\r\n").await;
    hold.applied(PROMPTLY).await.unwrap();
    hears_nothing(&mut server).await;
    drop(hold);
    hears(&mut server, b"+three\r\n").await;
}

#[tokio::test]
async fn a_fault_that_met_nothing_is_unproven() {
    let ends = Ends::new(Protocol::Opaque).await;
    let fault = now(Toxic::Blackhole, Direction::ToClient);
    let unproven = ends.proxy.inject(fault.clone()).heal().unwrap_err();
    assert!(unproven.to_string().contains("Blackhole"), "{unproven}");
    let injected = ends.proxy.inject(fault.clone());
    assert!(injected.applied(Duration::from_millis(20)).await.is_err());
    assert_eq!(injected.fault(), fault.to_string());
}
