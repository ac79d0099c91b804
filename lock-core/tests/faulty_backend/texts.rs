//! Texts of users that are too long.

use std::time::Duration;

use lock_core::memory::{MemoryConfig, MemoryStore};
use lock_core::{Error, ErrorKind, GrantId, LeaseOptions, Owner};

use crate::lab::Lab;

fn text(length: usize) -> String {
    "x".repeat(length)
}

fn refused(error: &Error, named: &str) {
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains(named) && error.to_string().len() < 300, "{error}");
}

#[test]
fn a_label_of_the_client_is_refused_before_anything_is_made() {
    let over = |length| {
        let mut config = MemoryConfig::default();
        config.client.label = Some(text(length));
        MemoryStore::new().connect_with(config)
    };
    refused(&over(1025).unwrap_err(), "the label has 1025 bytes");
    over(1024).unwrap();
}

#[tokio::test]
async fn an_owner_that_is_too_long_is_refused_before_the_server_is_asked() {
    let lab = Lab::new();
    let locks = lab.connect();
    let long = Owner::new().with_label(text(1025));
    let mut from_outside = serde_json::to_value(Owner::new()).unwrap();
    from_outside["host"] = text(1025).into();
    let from_outside: Owner = serde_json::from_value(from_outside).unwrap();
    for (owner, named) in
        [(long, "the owner's label has 1025 bytes"), (from_outside, "the owner's host has 1025 bytes")]
    {
        refused(&locks.reentrant("a").try_lock(&owner).await.unwrap_err(), named);
        refused(&locks.rwlock("a").with_owner(owner).try_write().await.unwrap_err(), named);
    }
    assert_eq!((lab.line.asked("try_enter"), lab.line.asked("try_write"), lab.store.used()), (0, 0, 0));
    drop(locks.reentrant("a").try_lock(&Owner::new().with_label(text(1024))).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_reason_that_is_too_long_frees_nothing() {
    let lab = Lab::new();
    let locks = lab.connect();
    let lease = LeaseOptions::new(Duration::from_secs(60));
    let guard = locks.mutex("a").with_lease(lease).lock().await.unwrap();
    let force = async |grant: GrantId, length| locks.mutex("a").force_release(grant, &text(length)).await;
    refused(&force(guard.grant_id(), 1025).await.unwrap_err(), "the reason has 1025 bytes");
    assert!(guard.is_held() && lab.line.asked("force_release") == 0);
    assert!(force(guard.grant_id(), 1024).await.unwrap());
}
