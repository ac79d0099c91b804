//! The keeper's task.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::Keeper;
use crate::clock::BootInstant;
use crate::driver::bound::asked;
use crate::driver::{Doubts, Notice, Notices, Renewal, Renewed, log};
use crate::lease::LiveGrant;
use crate::lease::state::{Answer, Event};

/// The most leases that one call of [`Backend::renew`](crate::driver::Backend::renew) carries: leases of one place, of about the same
/// length.
const BATCH: usize = 128;

type RenewalBatch = BoxFuture<'static, (Vec<(Arc<LiveGrant>, Duration)>, BootInstant, Vec<Renewed>)>;

/// The task. It ends when the client and every guard are gone.
pub(super) async fn run(
    keeper: Arc<Keeper>,
    mut notices: Option<Notices>,
    mut doubts: Option<Doubts>,
    starts_again: bool,
) {
    if starts_again {
        // One verification is enough for every doubt until now.
        let _ = next_doubt(&mut doubts).now_or_never();
        // With the task before have gone the notices that it had not taken up, and its renewals.
        keeper.suspect_all();
    }
    // Where the keeper lives, the reaper can too.
    keeper.reaper.follow_keeper();
    let mut batches: FuturesUnordered<RenewalBatch> = FuturesUnordered::new();
    let mut idle_since = None;
    while !keeper.is_closed() {
        // It may have gone since, with another runtime or by a panic.
        keeper.reaper.ensure_running();
        let (due, next) = keeper.due(&mut idle_since);
        let mut alike = BTreeMap::<_, Vec<_>>::new();
        for live in due {
            if let Some(ttl) = keeper.settle(&live, Event::Tick).renew {
                // The answers of a batch come together: a short lease must not wait for those of a place that is silent, nor
                // for as long as a long lease has.
                let urgency = ttl.as_millis().checked_ilog2();
                alike.entry((asked(|| keeper.backend.place(&live.attempt)), urgency)).or_default().push((live, ttl));
            }
        }
        for mut renewals in alike.into_values() {
            while !renewals.is_empty() {
                let rest = renewals.split_off(renewals.len().min(BATCH));
                batches.push(Box::pin(renew(keeper.clone(), std::mem::replace(&mut renewals, rest))));
            }
        }
        tokio::select! {
            Some((leases, sent_at, answers)) = batches.next() => take(&keeper, leases, sent_at, answers),
            notice = next_notice(&mut notices) => match notice {
                Some(notice) => keeper.hear(notice),
                None => notices = None,
            },
            () = next_doubt(&mut doubts) => keeper.suspect_all(),
            () = keeper.wake.notified() => {}
            () = keeper.clock.sleep_until(next) => {}
        }
    }
}

async fn next_notice(notices: &mut Option<Notices>) -> Option<Notice> {
    match notices {
        Some(notices) => notices.next().await,
        None => std::future::pending().await,
    }
}

async fn next_doubt(doubts: &mut Option<Doubts>) {
    if let Some(some) = doubts
        && some.next().await.is_some()
    {
        return;
    }
    *doubts = None;
    std::future::pending().await
}

/// Sends one request for up to [`BATCH`] leases. The instant of sending is read before the backend is asked, however long it
/// needs to find a connection: that can only end a lease too early.
async fn renew(
    keeper: Arc<Keeper>,
    leases: Vec<(Arc<LiveGrant>, Duration)>,
) -> (Vec<(Arc<LiveGrant>, Duration)>, BootInstant, Vec<Renewed>) {
    let sent_at = keeper.clock.now();
    let batch: Vec<_> = leases.iter().map(|(live, ttl)| Renewal::new(&live.attempt, *ttl)).collect();
    let answers = keeper.ask(&batch).await;
    drop(batch);
    (leases, sent_at, answers)
}

fn take(keeper: &Arc<Keeper>, leases: Vec<(Arc<LiveGrant>, Duration)>, sent_at: BootInstant, answers: Vec<Renewed>) {
    let mut answers = answers.into_iter();
    for (live, wanted) in leases {
        // A backend that gives fewer answers than questions has said nothing about the rest.
        let answer = match answers.next() {
            Some(Renewed::For(valid_for)) => {
                if let Some(left) = live.left(&*keeper.clock) {
                    keeper.meters.margin(left);
                }
                Answer::kept(valid_for, wanted)
            }
            Some(Renewed::Held) => {
                keeper.meters.renewal_failed();
                Answer::Held
            }
            Some(Renewed::Lost(reason)) => Answer::Lost(reason),
            Some(Renewed::Unknown(error)) => {
                keeper.meters.renewal_failed();
                log(|| tracing::debug!(name = %live.attempt.name, %error, "renewal without an answer"));
                Answer::Unknown
            }
            None => Answer::Unknown,
        };
        keeper.settle(&live, Event::Answer { sent_at, answer });
    }
}
