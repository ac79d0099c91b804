//! Inputs from outside break nothing, and are not taken for ours: URLs, names, lines of replies, values of keys.
//!
//! Some thousands each; more by `LOCK_FUZZ_INPUTS=10000000 cargo test --release -p lock-memcached --lib inputs`.

use std::error::Error as _;
use std::time::Duration;

use lock_core::driver::{Kind, Record};
use lock_core::{FencingToken, GrantId, LockName};
use lock_testkit::{SeededRng, fuzz};

use crate::address::Address;
use crate::client::cas::{CasNumber, OwnItem};
use crate::client::protocol::{Command, CommandAnswer, Item, ReplyLine, stat};
use crate::config::{LongestLease, MemcachedConfig};
use crate::epoch::Epoch;
use crate::inspect;
use crate::items::reason;
use crate::records::record_in;
use crate::slots::stored_limit;
use crate::store::keys::{self, Keys, Nonce, number};
use crate::store::record::HolderRecord;
use crate::url;

const NUMBER: &str = "1234567890123456789";

fn nonce(rng: &mut SeededRng) -> Nonce {
    Nonce::of(format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64()).parse::<GrantId>().unwrap())
}

fn item(value: &[u8]) -> Item {
    Item { value: value.to_vec(), seen: CasNumber::of_a_test(7), left: 9 }
}

#[test]
fn urls_name_one_server_or_are_refused_without_a_word_of_them() {
    let samples = ["memcached://cache", "memcached://10.0.0.1:7/", "memcached://[::1]:11211", "memcached://me:pw@a,b"];
    fuzz::texts("URLs", &samples, |url| match url::parse(url) {
        Ok(address) => {
            let shown = address.to_string();
            assert_eq!(Address::parse(&shown).as_ref(), Ok(&address), "{url:?} is {shown:?}");
            // Nothing of it was passed over.
            let named = url.strip_prefix("memcached://").unwrap();
            let (host, port) = address.pair();
            let of_host = [host.to_owned(), format!("[{host}]")];
            let mut spelled = of_host.iter().flat_map(|host| [host.clone(), format!("{host}:{port}")]);
            let named = named.strip_suffix('/').unwrap_or(named);
            assert!(spelled.any(|spelled| spelled == named), "{url:?} is {shown:?}");
        }
        Err(error) => {
            // As if all of it were a password: longer pieces than any word of ours.
            let config = MemcachedConfig::new(url);
            assert_eq!(config.check().unwrap_err().to_string(), error.to_string());
            let told = format!("{error} {error:?} {config:?}");
            assert!(error.source().is_none() && pieces(url).all(|secret| !told.contains(&secret)), "{url:?}: {told}");
        }
    });
}

/// Every part of a URL that is too long to be in our own words by chance.
fn pieces(url: &str) -> impl Iterator<Item = String> {
    let ours = format!("{0} {0:?}", url::parse("").unwrap_err());
    let characters: Vec<_> = url.chars().collect();
    let parts: Vec<_> = characters.windows(12).map(|part| part.iter().collect::<String>()).collect();
    parts.into_iter().filter(move |part| !ours.contains(part) && part.chars().any(|c| c != ' '))
}

#[test]
fn names_become_keys_of_their_own_that_the_server_can_carry() {
    let long = "x".repeat(300);
    let samples = ["orders/42", "a b\r\nget x", "%20#\u{7f}", "a:0", "a:limit", "ü", &long];
    fuzz::texts("names of locks", &samples, |text| {
        let Ok(name) = LockName::new(text) else { return };
        let keys = Keys::new("a:b");
        for kind in [Kind::Mutex, Kind::Reentrant, Kind::Write, Kind::Permits { permits: 1, limit: 1 }] {
            let lock = keys.lock(&name, kind).unwrap();
            let rest = lock.strip_prefix(&format!("a%3Ab:{}:", kind.space())).unwrap();
            if rest.starts_with('#') {
                assert!(rest.len() == 65 && text.len() > 60, "{lock}");
            } else {
                assert_eq!(unescaped(rest), text, "{lock}");
            }
            for key in [lock.clone(), keys::slot(&lock, 999), keys::writer(&lock), keys::limit(&lock)] {
                is_one_line(&Command::Claim { key: key.clone(), value: 1, seconds: 9 }, &key);
            }
        }
    });
}

/// The name out of a key.
fn unescaped(key: &str) -> String {
    let mut parts = key.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (code, rest) = part.split_at(2);
        let byte = u8::from_str_radix(code, 16).unwrap();
        format!("{text}{}{rest}", char::from(byte))
    })
}

/// A command about this key is one line, in which the key is one word.
fn is_one_line(command: &Command, key: &str) {
    let mut bytes = Vec::new();
    command.write(7, &mut bytes).unwrap();
    let line = bytes.strip_suffix(b"\r\n").unwrap();
    assert!(!line.iter().any(|byte| b"\r\n\0".contains(byte)), "{}", bytes.escape_ascii());
    assert_eq!(line.split(|byte| *byte == b' ').nth(1), Some(key.as_bytes()), "{}", bytes.escape_ascii());
}

#[test]
fn shared_keys_are_used_as_they_are_or_refused() {
    let samples = ["__TOOZ_LOCK_a", "a%3Ab:mutex:a", "a:b", "a b", "x\r\nflush_all", "a%3Ab"];
    fuzz::texts("shared keys", &samples, |text| {
        let Ok(name) = LockName::from_key(text) else { return };
        let keys = Keys::new("a:b");
        if let Ok(key) = keys.lock(&name, Kind::Mutex) {
            assert!(&*key == text && !text.starts_with("a%3Ab:") && text.len() <= 250, "{text:?}");
            is_one_line(&Command::Read { key: key.clone() }, &key);
        }
        assert!(keys.lock(&name, Kind::Write).is_err());
    });
}

#[test]
fn lines_of_replies_are_read_or_make_no_sense() {
    let samples: [&[u8]; 10] = [
        b"HD c123 O7",
        b"VA 19 c9223372036854775807 t-1 O7 s19",
        b"EN O7",
        b"NF O7",
        b"EX O7",
        b"CLIENT_ERROR cannot increment or decrement non-numeric value",
        b"SERVER_ERROR out of memory storing object",
        b"ERROR",
        b"STORED",
        b"NOT_STORED",
    ];
    fuzz::bytes("lines of replies", &samples, |line| {
        let Ok(reply) = ReplyLine::read(line) else { return };
        let (refused, stored) = (matches!(reply, ReplyLine::Refusal(_)), matches!(reply, ReplyLine::Stored(_)));
        let release = Command::Release {
            key: "a".into(),
            own: OwnItem { value: NUMBER.parse().unwrap(), seen: CasNumber::of_a_test(1) },
        };
        let words: Vec<_> = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
        // Whatever is cut off or doubled, an answer is to nothing but what it names.
        let marks: Vec<_> = words.iter().filter_map(|word| word.strip_prefix(b"O")).collect();
        for mark in [0, 7, 77, u64::MAX] {
            assert!(!reply.is_to(&release, mark) || refused || marks.contains(&mark.to_string().as_bytes()), "{mark}");
        }
        let long = reply.follows();
        assert!(long.is_none_or(|long| long <= 64 << 20 && words.get(1) == Some(&long.to_string().as_bytes())));
        if stored {
            // To nothing but a store.
            return assert!(!reply.is_to(&release, 7));
        }
        match reply.means(&release, Vec::new(), CasNumber::of_a_test) {
            CommandAnswer::Done(_) => assert!([&b"HD"[..], b"VA"].contains(&words[0])),
            CommandAnswer::Missing => assert!([&b"EN"[..], b"NF"].contains(&words[0])),
            CommandAnswer::Other => assert!(refused || [&b"EX"[..], b"NS"].contains(&words[0])),
            CommandAnswer::Failed(_) => {}
            CommandAnswer::Item(_) => panic!("a release reads nothing"),
        }
    });
}

#[test]
fn lines_of_stats_are_a_name_and_a_value_or_make_no_sense() {
    let samples: [&[u8]; 6] = [
        b"STAT evictions on",
        b"STAT limit_maxbytes 67108864",
        b"STAT uptime 18446744073709551616",
        b"STAT version 1.6.38 a b",
        b"END",
        b"SERVER_ERROR out of memory writing stats",
    ];
    fuzz::bytes("lines of stats", &samples, |line| {
        let Some((name, value)) = stat(line) else { return };
        assert!(line.starts_with(b"STAT ") && !name.contains(' '), "{}", line.escape_ascii());
        // Nothing is left out, and nothing is changed but what is no text.
        assert_eq!(format!("STAT {name} {value}"), String::from_utf8_lossy(line));
    });
}

#[test]
fn what_a_reply_says_is_what_it_means() {
    fuzz::with_rng("replies that were put together", |rng| {
        let (cas, left, mark) = (rng.next_u64() >> rng.below(64), rng.below(100_000) as i64 - 1, rng.next_u64());
        let mut words = [format!("c{cas}"), format!("t{left}"), format!("O{mark}")];
        for at in (1..words.len()).rev() {
            words.swap(at, usize::try_from(rng.below(at as u64 + 1)).unwrap());
        }
        let long = rng.below(300);
        let reply = ReplyLine::read(format!("VA {long} {}", words.join(" ")).as_bytes()).unwrap();
        let read = Command::Read { key: "a".into() };
        assert!(reply.is_to(&read, mark) && !reply.is_to(&read, mark ^ 1));
        assert_eq!(reply.follows(), usize::try_from(long).ok());
        let answer = reply.means(&read, b"x".to_vec(), CasNumber::of_a_test);
        let found = answer.item().unwrap().unwrap();
        assert_eq!((found.seen.cas, found.left, &*found.value), (cas, left, &b"x"[..]));
    });
}

#[test]
fn an_item_is_never_taken_for_one_that_it_is_not() {
    let holders = [NUMBER, "1234567890123456789 ", "1000000000000000000", "9199999999999999999", "worker-1", "+7"];
    let samples: Vec<_> = holders.iter().map(|text| text.as_bytes()).collect();
    fuzz::bytes("values of locks", &samples, |value| {
        let read = Nonce::read(value);
        assert_eq!(read.map(|nonce| nonce.number().to_string().into_bytes()), read.map(|_| value.to_vec()));
        assert!(read.is_none_or(|nonce| number(value) == Some(nonce.number())));
        let spelled = number(value).map(|number| number.to_string().into_bytes());
        assert!(spelled.is_none_or(
            |spelled| value.starts_with(&spelled) && value[spelled.len()..].iter().all(|byte| *byte == b' ')
        ));
        // Whoever's it is: what changes only one's own is not done if another's came with the answer.
        let own = OwnItem { value: NUMBER.parse().unwrap(), seen: CasNumber::of_a_test(1) };
        let is_own = number(value) == Some(own.value);
        let commands = [
            Command::Claim { key: "a".into(), value: own.value, seconds: 9 },
            Command::Renew { key: "a".into(), own, seconds: 9, is_strict: false },
            Command::Open { key: "a".into(), own: OwnItem { value: 9, ..own }, to: own.value, ends_at: 9 },
        ];
        for command in commands {
            let reply = ReplyLine::read(b"VA 19 c8 O7").unwrap();
            let answer = reply.means(&command, value.to_vec(), CasNumber::of_a_test);
            assert_eq!(matches!(answer, CommandAnswer::Done(_)), is_own, "{command:?}: {}", value.escape_ascii());
        }
    });
}

#[test]
fn numbers_of_grants_are_read_again_and_are_nobody_else_s() {
    fuzz::with_rng("numbers of grants", |rng| {
        let (one, other) = (nonce(rng), nonce(rng));
        assert_eq!(Nonce::read(one.number().to_string().as_bytes()), Some(one));
        let held = format!("{} ", other.number());
        assert_eq!(number(held.as_bytes()) == Some(one.number()), one == other);
        for foreign in [format!("+{}", one.number()), format!("0{}", one.number()), format!(" {}", one.number())] {
            assert_eq!((Nonce::read(foreign.as_bytes()), number(foreign.as_bytes())), (None, None), "{foreign:?}");
        }
    });
}

#[test]
fn epochs_are_read_as_they_were_written_or_not_at_all() {
    let epoch = Epoch::new(Duration::from_secs(30), Duration::from_micros(1_795_247_659_123_456));
    let (closed, open) = (epoch.value().to_string(), epoch.opened().value().to_string());
    let samples = [closed.as_bytes(), open.as_bytes(), b"9223372036854775808", b"18446744073709551615", b"1", b"x"];
    fuzz::bytes("epochs", &samples, |value| {
        let Some(epoch) = Epoch::of(value, 0) else { return };
        assert_eq!(number(value), Some(epoch.value()), "{}", value.escape_ascii());
        assert!(epoch.longest() >= Duration::from_secs(1) && epoch.longest() <= LongestLease::MOST);
        assert!((1..=FencingToken::MAX.as_u64()).contains(&epoch.id()) && epoch.open == (epoch.value() & 1 == 1));
        assert_eq!(Epoch::of(epoch.value().to_string().as_bytes(), 0), Some(epoch));
        if let Some(token) = epoch.token(9) {
            assert!(token.as_u64() > epoch.id());
        }
    });
}

#[test]
fn records_are_read_as_they_were_written_or_not_at_all() {
    let good = Record::next(None, FencingToken::new(7).unwrap(), Some(b"data")).unwrap().to_bytes();
    fuzz::bytes("records beside mutexes", &[&good, b"0000000000000009:0000000000000000:"], |value| {
        if let Ok(record) = record_in(&item(value)) {
            assert_eq!(record.to_bytes(), value);
        }
    });
}

#[test]
fn limits_are_numbers_in_their_range_or_refused() {
    fuzz::bytes("limits and numbers of readers", &[b"1", b"64", b"1000", b"1001", b"+5", b"007"], |value| {
        if let Ok((limit, _)) = stored_limit(item(value)) {
            assert!((1..=1000).contains(&limit) && limit.to_string().as_bytes() == value.trim_ascii_end());
        }
    });
}

#[test]
fn what_is_said_of_holders_is_read_or_not() {
    let id = "0f8fad5bd9cb469fa16570867728950e";
    let owner = format!(r#"{{"id":"{id}","host":"a","pid":7,"label":null}}"#);
    let record = format!(r#"{{"grant":"{id}","owner":{owner},"token":12,"since":1795247659123}}"#);
    let reason = r#"["somebody","because"]"#;
    fuzz::texts("records and reasons", &[&record, reason, r#"{"since":18446744073709551615}"#], |text| {
        if let Ok(record) = serde_json::from_str::<HolderRecord>(text) {
            let written = serde_json::to_string(&record).unwrap();
            let again = serde_json::from_str::<HolderRecord>(&written).unwrap();
            assert_eq!(serde_json::to_string(&again).unwrap(), written);
            // However wrong its clock is.
            let number = Nonce::of(record.grant);
            let items = [(false, item(number.number().to_string().as_bytes()))];
            let told = inspect::told(&items, &[(number, record)].into());
            assert_eq!(told.holders.len() + told.waiters.len(), 1);
        }
        let told = reason::reason_in(CommandAnswer::Item(item(text.as_bytes())));
        assert_eq!(told.is_some(), serde_json::from_str::<(String, String)>(text).is_ok());
    });
}
