//! Earlier connections, on real servers and as their identities are read.

use lock_testkit::testing::installed;
use lock_testkit_servers::redis::{RedisOptions, RedisServer};

use super::*;
use crate::client::dial::{Commands, Opener};
use crate::url::Login;

#[test]
fn an_identity_from_outside_names_one_connection_or_none() {
    let samples = [
        "id=7 addr=127.0.0.1:5000 laddr=127.0.0.1:6379 fd=8 name= age=0 idle=0 flags=N db=0\n",
        "id=7 addr=/tmp/s:0 laddr=/tmp/s:0\n",
        "addr=a id= laddr",
    ];
    lock_testkit::fuzz::texts("connections", &samples, |info| {
        let answer = Value::BulkString(info.as_bytes().to_vec());
        let Some(ConnectionIdentity { id, addr, laddr, .. }) = ConnectionIdentity::read(&answer) else { return };
        for (name, field) in [("id", id), ("addr", addr), ("laddr", laddr)] {
            assert!(!field.contains(char::is_whitespace), "{field:?}");
            assert!(info.contains(&format!("{name}={field}")), "{field:?}");
        }
    });
}

/// A connection, and by what its server knows it after the predecessors were killed over it.
async fn connected(
    opener: &Opener,
    server: &Address,
    predecessors: &Predecessors,
) -> (Commands, Option<ConnectionIdentity>) {
    let mut commands = opener.commands(server).await.unwrap();
    let (identity, _) = predecessors.kill_all(server, &mut commands.connection, None).await.unwrap();
    (commands, identity)
}

fn opener() -> Opener {
    Opener::new(&Login::default(), 0, None, Duration::from_secs(2)).unwrap()
}

async fn on_unix_socket() -> Option<(RedisServer, Address)> {
    let server = installed(RedisServer::start_with(&RedisOptions::new().on_unix_socket()).await)?;
    let path = server.url().strip_prefix("unix://").unwrap().to_owned();
    let path = path.split('?').next().unwrap().to_owned();
    Some((server, Address::Unix(path.into())))
}

#[test]
fn a_run_from_outside_stands_in_a_line_of_its_own() {
    let samples =
        ["# Server\r\nredis_version:7.0.15\r\nrun_id:0123456789abcdef0123456789abcdef01234567\r\ntcp_port:0\r\n"];
    lock_testkit::fuzz::texts("runs of a server", &samples, |info| {
        let answer = Value::BulkString(info.as_bytes().to_vec());
        let Some(run) = run_id(&answer) else { return };
        assert!(
            !run.is_empty() && info.lines().any(|line| line.starts_with("run_id:") && line.contains(&run)),
            "{run:?}"
        );
    });
}

#[test]
fn connections_over_tcp_have_addresses_of_their_own_and_those_over_a_unix_socket_have_not() {
    let told_apart = |addr: &str, laddr: &str| {
        let (addr, laddr) = (addr.to_owned(), laddr.to_owned());
        ConnectionIdentity { addr, laddr, ..ConnectionIdentity::default() }.is_told_apart()
    };
    assert!(told_apart("127.0.0.1:5000", "127.0.0.1:6379") && told_apart("[::1]:5010", "[::1]:6379"));
    assert!(
        !told_apart("/run/redis.sock:0", "/run/redis.sock:0")
            && !told_apart("/run/redis.sock:0", "")
            && !told_apart("", "")
    );
}

/// All connections over a Unix socket have the same addresses, and a restarted server counts their ids anew.
#[tokio::test]
async fn a_stranger_that_has_a_predecessor_s_id_after_a_restart_is_not_killed() {
    for may_ask in [true, false] {
        the_stranger_lives(may_ask).await;
    }
}

/// Restarts a server, and connects to it anew when a stranger has the predecessor's id; whether the user may ask for the server's run then.
async fn the_stranger_lives(may_ask: bool) {
    let Some((server, address)) = on_unix_socket().await else { return };
    let (opener, predecessors) = (opener(), Predecessors::default());
    predecessors.note_lease(Duration::from_secs(60));
    // More than the server's own tools open before it is known to be up.
    let mut strangers = Vec::new();
    for _ in 0..50 {
        strangers.push(opener.commands(&address).await.unwrap());
    }
    let (before, identity) = connected(&opener, &address, &predecessors).await;
    let id = identity.as_ref().unwrap().id.clone();
    let first = predecessors.next_generation();
    predecessors.add(Predecessor::new(first, address.clone(), identity), Duration::from_secs(2));
    drop((before, strangers));
    server.restart().await.unwrap();
    let mut company = Vec::new();
    let mut stranger = loop {
        let mut commands = opener.commands(&address).await.unwrap();
        let its: u64 = redis::cmd("CLIENT").arg("ID").query_async(&mut commands.connection).await.unwrap();
        assert!(its <= id.parse().unwrap(), "too many connections");
        if its.to_string() == id {
            break commands;
        }
        company.push(commands);
    };
    if !may_ask {
        let denied = ["SETUSER", "default", "-info"];
        redis::cmd("ACL").arg(&denied).exec_async(&mut stranger.connection).await.unwrap();
    }
    let _after = connected(&opener, &address, &predecessors).await;
    let alive = redis::cmd("PING").query_async::<String>(&mut stranger.connection).await;
    assert!(alive.is_ok(), "the stranger was killed: {alive:?}");
    // The server that it was connected to is gone, as far as that can be told.
    assert_eq!(predecessors.none_in_flight(&address, first), may_ask);
}

#[tokio::test]
async fn a_predecessor_on_a_unix_socket_is_killed_while_its_server_lives() {
    let Some((_server, address)) = on_unix_socket().await else { return };
    let (opener, predecessors) = (opener(), Predecessors::default());
    predecessors.note_lease(Duration::from_secs(60));
    let (mut before, identity) = connected(&opener, &address, &predecessors).await;
    let first = predecessors.next_generation();
    predecessors.add(Predecessor::new(first, address.clone(), identity), Duration::from_secs(2));
    assert!(!predecessors.none_in_flight(&address, first));
    let _after = connected(&opener, &address, &predecessors).await;
    assert!(predecessors.none_in_flight(&address, first));
    redis::cmd("PING").query_async::<String>(&mut before.connection).await.unwrap_err();
}

#[test]
fn a_predecessor_disturbs_what_was_sent_before_its_end_to_its_own_server() {
    let predecessors = Predecessors::default();
    let address = |host: &str| Address::Tcp { host: host.to_owned(), port: 1 };
    let (before, first) = (SystemClock.now(), predecessors.next_generation());
    let predecessor = Predecessor::new(first, address("a"), None);
    assert!(
        predecessors.none_in_flight(&address("a"), first) && predecessors.none_in_flight_since(&address("a"), before)
    );
    predecessors.note_lease(Duration::from_secs(10));
    predecessors.add(predecessor, Duration::from_secs(2));
    assert!(
        !predecessors.none_in_flight(&address("a"), first) && !predecessors.none_in_flight_since(&address("a"), before)
    );
    assert!(
        predecessors.none_in_flight(&address("b"), first) && predecessors.none_in_flight_since(&address("b"), before)
    );
    let after = SystemClock.now().plus(std::time::Duration::from_nanos(1));
    assert!(
        predecessors.none_in_flight(&address("a"), predecessors.next_generation())
            && predecessors.none_in_flight_since(&address("a"), after)
    );
}

#[test]
fn a_predecessor_is_forgotten_an_operation_timeout_and_the_longest_lease_after_its_end() {
    let (predecessors, server) = (Predecessors::default(), Address::Tcp { host: "a".to_owned(), port: 1 });
    predecessors.note_lease(Duration::from_millis(30));
    predecessors.note_lease(Duration::from_millis(10));
    let first = predecessors.next_generation();
    predecessors.add(Predecessor::new(first, server.clone(), None), Duration::from_millis(20));
    let began = SystemClock.now();
    assert!(!predecessors.none_in_flight(&server, first));
    while !predecessors.none_in_flight(&server, first) {
        assert!(SystemClock.now().since(began) < Duration::from_secs(10));
        std::thread::yield_now();
    }
    assert!(SystemClock.now().since(began) >= Duration::from_millis(45));
}

#[test]
fn a_predecessor_that_counts_as_dead_is_killed_all_the_same() {
    let (predecessors, server) = (Predecessors::default(), Address::Tcp { host: "a".to_owned(), port: 1 });
    let [known, unknown] = [Some(ConnectionIdentity::default()), None].map(|identity| {
        let predecessor = Predecessor::new(predecessors.next_generation(), server.clone(), identity);
        let generation = predecessor.generation;
        predecessors.add(predecessor, Duration::ZERO);
        generation
    });
    std::thread::sleep(Duration::from_millis(1));
    assert!(predecessors.none_in_flight(&server, known) && predecessors.none_in_flight(&server, unknown));
    let killed: Vec<_> = predecessors.to_kill(&server).iter().map(|predecessor| predecessor.generation).collect();
    assert_eq!(killed, [known]);
    // Where there is no right to kill, there is nothing to remember it for.
    predecessors.may_not_kill(&server);
    assert!(predecessors.to_kill(&server).is_empty());
    predecessors.note_lease(Duration::from_secs(10));
    predecessors.add(
        Predecessor::new(predecessors.next_generation(), server.clone(), Some(ConnectionIdentity::default())),
        Duration::ZERO,
    );
    predecessors.may_not_kill(&server);
    assert!(!predecessors.none_in_flight(&server, known) && predecessors.to_kill(&server).len() == 1);
}

fn at(s: u64) -> BootInstant {
    BootInstant::from_origin(Duration::from_secs(s))
}

/// Adds one that ended at one second, and is over at another.
fn add(known: &mut Known, generation: u64, killable: bool, (ended, over): (u64, u64)) {
    let identity = killable.then(ConnectionIdentity::default);
    let predecessor = Predecessor::new(generation, Address::Tcp { host: "a".to_owned(), port: 1 }, identity);
    known.add(Predecessor { ended_at: at(ended), over_at: at(over), ..predecessor }, at(ended));
}

/// Whether none of these or later ones, nor any that ended then or later, can carry something out at this second.
fn is_quiet(known: &Known, generation: u64, ended: u64, now: u64) -> bool {
    let numbered = known.is_quiet(at(now), |one| one.generation >= generation, |all| all.generation >= generation);
    let since = at(ended);
    assert_eq!(numbered, known.is_quiet(at(now), |one| one.ended_at >= since, |all| all.ended_at >= since));
    numbered
}

#[test]
fn what_was_forgotten_early_disturbs_until_it_is_over() {
    let mut known = Known::default();
    add(&mut known, 1, false, (1, 60));
    for generation in 2..=1 + MOST as u64 {
        add(&mut known, generation, false, (2, 100));
    }
    known.each.clear();
    assert!(!is_quiet(&known, 1, 1, 59) && is_quiet(&known, 2, 2, 59) && is_quiet(&known, 1, 1, 60));
}

#[test]
fn what_was_over_when_it_was_forgotten_disturbs_nobody() {
    let mut known = Known::default();
    add(&mut known, 1, false, (1, 60_000));
    for generation in 2..=2 + MOST as u64 {
        add(&mut known, generation, true, (generation, generation + 1));
    }
    assert_eq!(known.each.len(), MOST);
    known.each.clear();
    assert!(!is_quiet(&known, 1, 1, 59_999) && is_quiet(&known, 2, 2, 59_999));
}

/// A connection that ends last may be older than others.
#[test]
fn what_is_over_does_not_outlive_itself_in_what_is_forgotten_later() {
    let mut known = Known::default();
    add(&mut known, 9000, false, (1, 60));
    for _ in 0..MOST {
        add(&mut known, 9000, false, (1, 60));
    }
    for _ in 0..=MOST {
        add(&mut known, 1, false, (100, 160));
    }
    known.each.clear();
    assert!(known.is_quiet(at(101), |_| true, |merged| merged.generation >= 2));
    assert!(!known.is_quiet(at(101), |_| true, |merged| merged.generation >= 1));
}
