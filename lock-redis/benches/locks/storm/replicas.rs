//! Tries that want a replica where there is none.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_redis::{ClientOptions, RedisConfig, RedisLocks};

use super::table::{Bar, Table};
use super::truth::server;
use crate::{Bench, Outcome};

pub(super) async fn run(bench: &Bench) -> Outcome {
    let many = if bench.is_quick { 200 } else { 1_000 };
    let table = Table::begin(&format!("{many} tries at once that want a replica, and there is none"), "one try");
    let (one, last) = (tries(1).await?, tries(many).await?);
    let bar = ClientOptions::default().op_timeout + Duration::from_millis(100);
    table.row("last answer, s", last.as_secs_f64(), Some(one.as_secs_f64()), Bar::AtMost(bar.as_secs_f64()));
    Ok(())
}

async fn tries(count: usize) -> Outcome<Duration> {
    let server = server().await?;
    let config = RedisConfig::new(server.url()).with_prefix("bench").with_replicas(1, Duration::from_millis(500));
    let locks = RedisLocks::connect_with(config).await?;
    let answers = join_all((0..count).map(|name| {
        let mutex = locks.mutex(format!("try {name}"));
        tokio::spawn(async move {
            let start = Instant::now();
            (mutex.try_lock().await.is_ok_and(|granted| granted.is_some()), start.elapsed())
        })
    }));
    let mut last = Duration::ZERO;
    for answer in answers.await {
        let (granted, took) = answer?;
        if granted {
            return Err("granted without a replica".into());
        }
        last = last.max(took);
    }
    Ok(last)
}
