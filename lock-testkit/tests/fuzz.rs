//! Input from outside breaks nothing in `lock-core`: names, owners, grants, tokens and options, as texts and as JSON, and
//! mutexes on their way from one client to another. (It is here because `lock-core` itself depends on no testkit.)

use lock_core::memory::MemoryStore;
use lock_core::{ClientOptions, DetachedMutex, ErrorKind, FencingToken, GrantId, LeaseOptions, LockName, Owner};
use lock_testkit::fuzz::texts;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value that was read is the same after it was written and read again.
fn survives<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(json: &str) -> Option<T> {
    let value: T = serde_json::from_str(json).ok()?;
    let written = serde_json::to_string(&value).expect("what was read can be written");
    let again = serde_json::from_str::<T>(&written).expect("what was written can be read");
    // Two owners are equal by their ids alone.
    assert_eq!(serde_json::to_string(&again).expect("what was read can be written"), written);
    assert_eq!(again, value);
    Some(value)
}

#[test]
fn names_are_what_their_limits_say() {
    texts("names of locks", &["orders/42", "ü", "a:b/../{c}", "x"], |text| {
        for name in [LockName::new(text), LockName::from_key(text)] {
            let fits = (1..=LockName::MAX_BYTES).contains(&text.len());
            assert_eq!(name.is_ok(), fits);
            match name {
                Ok(name) => {
                    assert_eq!(name.as_str(), text);
                    let json = serde_json::to_string(&name).unwrap();
                    assert_eq!(survives::<LockName>(&json), Some(name));
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                    assert!(error.to_string().len() < 1_000);
                }
            }
        }
    });
}

#[test]
fn what_serde_reads_is_written_again() {
    let samples = [
        r#""orders/42""#,
        r#"{"at_key":"raw"}"#,
        r#"{"id":"0123456789abcdef0123456789abcdef","host":"h","pid":7,"label":"l"}"#,
        r#""0123456789abcdef0123456789abcdef""#,
        "9007199254740991",
        r#"{"lease":{"ttl":{"secs":10,"nanos":0},"renew_every":null,"max_hold":null},"op_timeout":{"secs":2,"nanos":1},"label":null}"#,
        r#"{"ttl":{"secs":18446744073709551615,"nanos":999999999},"auto_renew":true}"#,
    ];
    texts("names, owners, grants, tokens and options as JSON", &samples, |json| {
        survives::<LockName>(json);
        survives::<Owner>(json);
        if let Some(token) = survives::<FencingToken>(json) {
            assert!((1..=FencingToken::MAX.as_u64()).contains(&token.as_u64()));
        }
        if let Some(id) = survives::<GrantId>(json) {
            assert_eq!(id.to_string().parse::<GrantId>().ok(), Some(id));
        }
        survives::<LeaseOptions>(json);
        if let Some(options) = survives::<ClientOptions>(json) {
            let checked = options.check();
            assert!(checked.is_err() || options.lease.ttl <= LeaseOptions::MAX_TTL);
        }
    });
}

#[test]
fn ids_of_grants_are_read_as_they_are_shown() {
    texts("ids of grants", &["0123456789abcdef0123456789abcdef", "ffffffffffffffffffffffffffffffff"], |text| {
        if let Ok(id) = text.parse::<GrantId>() {
            assert!(id.to_string().eq_ignore_ascii_case(text), "{text} is {id}");
        }
    });
}

/// Anybody may write into the queue by which a detached mutex travels.
#[test]
fn detached_mutexes_are_read_as_they_were_written_and_a_made_up_one_takes_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (locks, held) = runtime.block_on(async {
        let locks = MemoryStore::new().connect();
        let held = locks.mutex("import/7").with_lease(LeaseOptions::new(LeaseOptions::MAX_TTL)).lock().await.unwrap();
        (locks, held)
    });
    let samples = [
        r#"{"name":"import/7","grant":"0123456789abcdef0123456789abcdef","token":7,"left_ms":30000}"#,
        r#"{"name":{"at_key":"raw"},"grant":"ffffffffffffffffffffffffffffffff","token":null,"left_ms":0}"#,
        r#"{"left_ms":18446744073709551615,"token":9007199254740991,"grant":"0123456789abcdef0123456789abcdef","name":"ü"}"#,
    ];
    texts("detached mutexes as JSON", &samples, |json| {
        let Some(detached) = survives::<DetachedMutex>(json) else { return };
        // A name out of its limits is refused where it is used, as any other.
        let fits = (1..=LockName::MAX_BYTES).contains(&detached.name.as_str().len());
        assert!(detached.token.is_none_or(|token| token <= FencingToken::MAX));
        let error = runtime.block_on(locks.adopt(&detached)).unwrap_err();
        assert_eq!(error.kind(), if fits { ErrorKind::NotHeld } else { ErrorKind::InvalidArgument }, "{error}");
        assert!(held.is_held(), "taken over by {json}");
    });
}
