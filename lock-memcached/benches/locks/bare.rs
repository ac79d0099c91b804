//! The baselines: what the client crate can do without us, over a pool like ours.

use std::time::Duration;

use bench_support::Outcome;
use memcache::exp::{Arithmetic, AsyncMetaClient, Delete, Get, Meta, Op, OpResult};

use crate::Bench;

/// As many connections as ours opens at most.
const CONNECTIONS: usize = 32;

/// No item has this CAS number.
const NONE: u64 = i64::MAX.unsigned_abs();

pub(crate) async fn client(bench: &Bench) -> Outcome<AsyncMetaClient> {
    client_to(bench.server.address()).await
}

/// A client of the server behind this address.
pub(crate) async fn client_to(address: &str) -> Outcome<AsyncMetaClient> {
    let patience = Some(Duration::from_secs(2));
    let builder = AsyncMetaClient::builder().max_connections(Some(CONNECTIONS)).max_idle(CONNECTIONS);
    Ok(builder.connect_timeout(patience).io_timeout(patience).connect_async(address).await?)
}

/// A claim and a deletion by CAS number: the least that any lock on memcached does that frees only its own.
pub(crate) async fn pair(client: &AsyncMetaClient, key: &str) -> Outcome {
    let taken = client.run(claim(key)).await?;
    client.run(Delete::new(key).compare_cas(taken.item.cas.ok_or("taken")?)).await?;
    Ok(())
}

/// The commands of our lock and release, in the same two pipelines.
pub(crate) async fn pipelines(client: &AsyncMetaClient, key: &str) -> Outcome {
    let epoch = Get::new("bench:epoch").meta(Meta::NONE.cas().ttl());
    let answers = client.run_batch([Op::from(claim(key)), epoch.into()]).await?;
    let Some(Ok(OpResult::Arithmetic(taken))) = answers.into_iter().next() else { return Err("no answer".into()) };
    client.run_batch([Op::from(Delete::new(key).compare_cas(taken.item.cas.ok_or("taken")?))]).await?;
    Ok(())
}

/// One cheap read, a round trip.
pub(crate) async fn look(client: &AsyncMetaClient, key: &str) -> Outcome {
    client.run(Get::new(key).without_value()).await?;
    Ok(())
}

fn claim(key: &str) -> Arithmetic {
    Arithmetic::new(key).compare_cas(NONE).return_cas().delta(0).initial(1_234_567_890_123_456_789, 12)
}
