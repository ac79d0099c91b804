//! Commands in the words of the client crate, and replies as it reads them.

use lock_testkit::fuzz;
use memcache::exp::{
    ArithmeticOptions, DeleteOptions, GetOptions, MetaCommand, SetOptions, build_arithmetic, build_delete, build_get,
    build_set, parse_meta_result,
};

use super::*;

/// A command in the client crate's words.
fn of_the_crate(command: &Command) -> Result<MetaCommand, ClientError> {
    let key = command.key().as_bytes();
    let get = |value, touch| {
        let mut options = GetOptions::default();
        (options.value, options.return_cas, options.return_ttl, options.touch) = (value, true, true, touch);
        build_get(key, &options)
    };
    let change = |own: &OwnItem, delta, seconds| {
        let mut options = ArithmeticOptions::default();
        (options.return_value, options.return_cas, options.compare_cas) = (true, true, Some(own.seen.cas));
        (options.delta, options.ttl) = (Some(delta), Some(seconds));
        build_arithmetic(key, &options)
    };
    match command {
        Command::Claim { value, seconds, .. } => {
            let mut options = ArithmeticOptions::default();
            (options.return_value, options.return_cas, options.compare_cas) = (false, true, Some(NONE));
            (options.delta, options.initial, options.initial_ttl) = (Some(0), Some(*value), Some(*seconds));
            build_arithmetic(key, &options)
        }
        Command::Renew { own, seconds, .. } => change(own, 0, *seconds),
        Command::HandOver { own, to, seconds, .. } => change(own, to.number().wrapping_sub(own.value), *seconds),
        Command::Open { own, to, ends_at, .. } => change(own, to.wrapping_sub(own.value), *ends_at),
        Command::Release { own, .. } => {
            let mut options = DeleteOptions::default();
            options.compare_cas = Some(own.seen.cas);
            build_delete(key, &options)
        }
        Command::Read { .. } => get(true, None),
        Command::Peek { .. } => get(true, None).map(|request| request.flag("u")),
        Command::Look { .. } => get(false, None),
        Command::Keep { seconds, .. } => get(true, Some(*seconds)),
        Command::Note { text, seconds, .. } => {
            let mut options = SetOptions::default();
            options.ttl = Some(*seconds);
            build_set(key, text.as_bytes(), &options)
        }
        Command::Store { .. } => Err(ClientError::Usage("it has no word for this")),
        Command::Forget { .. } => build_delete(key, &DeleteOptions::default()),
    }
}

#[test]
fn commands_are_in_the_words_of_the_client_crate() {
    fuzz::with_rng("commands", |rng| {
        let key = || "a%3Ab:mutex:ü".into();
        let (value, cas) = (rng.next_u64() >> rng.below(64), rng.next_u64() >> rng.below(64));
        let (seconds, mark) = (rng.below(1 << 32) as u32, rng.next_u64() >> rng.below(64));
        let (own, to) = (OwnItem { value, seen: CasNumber::of_a_test(cas) }, Nonce::of_a_test(rng.next_u64()));
        let text = format!("{{\"since\":{value}}}\r\n");
        let commands = [
            Command::Claim { key: key(), value, seconds },
            Command::Renew { key: key(), own, seconds, is_strict: false },
            Command::HandOver { key: key(), own, to, seconds },
            Command::Open { key: key(), own, to: rng.next_u64(), ends_at: seconds },
            Command::Release { key: key(), own },
            Command::Read { key: key() },
            Command::Peek { key: key() },
            Command::Look { key: key() },
            Command::Keep { key: key(), seconds },
            Command::Note { key: key(), text, seconds },
            Command::Forget { key: key() },
        ];
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for command in &commands {
            command.write(mark, &mut ours).unwrap();
            of_the_crate(command).unwrap().flag(format!("O{mark}")).encode_into(&mut theirs).unwrap();
        }
        assert_eq!(String::from_utf8(ours).unwrap(), String::from_utf8(theirs).unwrap());
    });
}

#[test]
fn a_store_is_in_the_older_words() {
    let store = |seen| {
        let mut written = Vec::new();
        let command = Command::Store { key: "k".into(), bytes: b"a\r\nb".to_vec(), seen, seconds: 60 };
        command.write(7, &mut written).unwrap();
        (command, String::from_utf8(written).unwrap())
    };
    let ((command, changed), (_, made)) = (store(Some(9)), store(None));
    assert_eq!((&*changed, &*made), ("cas k 0 60 4 9\r\na\r\nb\r\n", "add k 0 60 4\r\na\r\nb\r\n"));
    let means = |line: &[u8]| {
        let reply = ReplyLine::read(line).unwrap();
        assert!(reply.is_to(&command, 7) && !reply.is_to(&Command::Look { key: "k".into() }, 7));
        reply.means(&command, Vec::new(), CasNumber::of_a_test)
    };
    assert!(matches!(means(b"STORED"), CommandAnswer::Done(_)));
    assert!(matches!(means(b"NOT_STORED"), CommandAnswer::Other));
    assert!(matches!(means(b"EXISTS"), CommandAnswer::Other));
    assert!(matches!(means(b"NOT_FOUND"), CommandAnswer::Missing));
    assert!(!ReplyLine::read(b"HD O8").unwrap().is_to(&command, 7));
}

#[test]
fn a_key_that_the_server_does_not_know_is_not_written() {
    let long = "x".repeat(251);
    for key in ["", "a b", "a\r\nflush_all", "a\u{7f}", "a\0", &long] {
        let mut written = Vec::new();
        assert!(Command::Look { key: key.into() }.write(1, &mut written).is_err(), "{key:?}");
        assert_eq!(written, b"");
    }
}

#[test]
fn replies_mean_what_they_mean_to_the_client_crate() {
    let samples: [&[u8]; 6] = [
        b"HD c123 O7",
        b"VA 19 c9223372036854775807 t-1 O7 s19",
        b"EN O7",
        b"CLIENT_ERROR cannot increment or decrement non-numeric value",
        b"SERVER_ERROR out of memory storing object",
        b"ERROR",
    ];
    fuzz::bytes("replies in the words of the client crate", &samples, |line| {
        let theirs = MetaResponse::parse_header(line);
        match (ReplyLine::read(line), theirs) {
            (Ok(ReplyLine::Answer { code, cas, left, mark, value }), Ok(theirs)) => {
                assert_eq!(code, theirs.rc());
                let theirs = parse_meta_result(theirs);
                // Theirs reads more fields, and refuses more of them.
                let Ok(theirs) = theirs else { return };
                assert_eq!((cas, left), (theirs.cas, theirs.ttl));
                let opaque = theirs.opaque.map(|opaque| String::from_utf8_lossy(&opaque).into_owned());
                assert!(mark.is_none() || mark.map(|mark| mark.to_string()) == opaque);
                assert!(value.is_none_or(|_| code == ReturnCode::Va));
            }
            (Ok(ReplyLine::Refusal(_)), theirs) => {
                assert!(matches!(theirs, Err(ClientError::Server(_) | ClientError::Rejected(_))));
            }
            (Ok(ReplyLine::Stored(_)), _) => {}
            (Ok(answer), Err(theirs)) => panic!("{answer:?}, {theirs}"),
            // Ours is stricter: numbers are as the server writes them.
            (Err(_), _) => {}
        }
    });
}
