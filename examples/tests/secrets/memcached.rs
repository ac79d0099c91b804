//! memcached, whose protocol for locks has no credentials: nobody's URL may have any.

use lock_memcached::{MemcachedConfig, MemcachedLocks};

use crate::heap::{failed, shown};
use crate::{PASSWORD, USER, hasty};

pub(crate) async fn by_url() {
    for url in [format!("memcached://{USER}:{PASSWORD}@127.0.0.1:1/"), format!("http://{USER}:{PASSWORD}@a/%zz")] {
        let mut config = MemcachedConfig::new(url);
        config.client = hasty();
        shown(&config);
        failed(MemcachedLocks::connect_with(config).await);
    }
}
