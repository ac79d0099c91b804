//! Leases that are longer than the session's timeout: kept in parts, and never promised beyond it.

use std::time::{Duration, Instant};

use lock_testkit::testing::about_time;
use lock_zk::{LeaseOptions, LossReason, Owner};

use crate::support::{PROMPTLY, SESSION, client, ms, server, soon};

#[test]
fn a_lease_longer_than_the_session_is_kept_to_its_end_and_no_longer() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (a, b) = (client(server.url(), SESSION).await, client(server.url(), SESSION).await);
        let ttl = SESSION * 2;
        let began = Instant::now();
        let held = a.mutex("long").with_lease(LeaseOptions::new(ttl).with_auto_renew(false)).lock().await.unwrap();
        assert!(held.remaining() <= SESSION, "{:?} are promised beyond the session", held.remaining());
        let lost = held.lost();
        while began.elapsed() < ttl - ms(300) {
            assert!(held.is_held(), "lost after {:?} of {ttl:?}", began.elapsed());
            assert!(b.mutex("long").try_lock().await.unwrap().is_none());
            tokio::time::sleep(ms(50)).await;
        }
        assert_eq!(soon("the lease ends", PROMPTLY, lost).await, LossReason::Expired);
        soon("the lock is free then", PROMPTLY, b.mutex("long").lock()).await.unwrap().release().await.unwrap();
    });
}

#[test]
fn an_extension_beyond_the_session_is_kept() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let a = client(server.url(), SESSION).await;
        let held =
            a.mutex("extended").with_lease(LeaseOptions::new(ms(1800)).with_auto_renew(false)).lock().await.unwrap();
        let began = Instant::now();
        held.extend(ms(4000)).await.unwrap();
        held.extend(ms(200)).await.unwrap();
        while began.elapsed() < ms(3700) {
            assert!(held.is_held(), "lost after {:?} of an extension by 4 s", began.elapsed());
            tokio::time::sleep(ms(50)).await;
        }
        soon("the extension ends", PROMPTLY, held.lost()).await;
    });
}

#[test]
fn where_the_session_lasts_longer_an_extension_is_promised_at_once() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let a = client(server.url(), Duration::from_secs(15)).await;
        let held =
            a.mutex("promised").with_lease(LeaseOptions::new(ms(3000)).with_auto_renew(false)).lock().await.unwrap();
        held.extend(ms(10_000)).await.unwrap();
        assert!(held.remaining() >= ms(7000));
        let (tree, me) = (a.reentrant("promised"), Owner::new());
        let outer = tree.clone().with_ttl(ms(10_000)).lock(&me).await.unwrap();
        let inner = tree.with_ttl(ms(1000)).lock(&me).await.unwrap();
        assert!(outer.remaining() > ms(5000));
        inner.release().await.unwrap();
        assert!(outer.remaining() > ms(5000));
    });
}
