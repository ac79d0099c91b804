//! C-F13, C-F13b, C-F18: servers that are killed and started again, or that forget what they store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{ErrorKind, Guarantee};

use crate::adapters::{Exclusive, Held};
use crate::contenders::{Contenders, GatedCounter, is_of_the_trouble};
use crate::context::{Cx, release};
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::faults::Data;
use crate::harness::{DisposableServer, ServerFault};
use crate::time::{hand_over, ms, pass, promptly, soon, ttl};

use super::servers::{client, contender, disposable_server, is_proven};

/// The number of times that it happens while all kinds are contended for.
const TIMES: usize = 2;

/// The fate of the servers' data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forgetting {
    /// They are started again with it.
    Nothing,
    /// They are started again without it.
    ByRestart,
    /// They forget it while they run.
    AtOnce,
}

impl Forgetting {
    fn fault(self) -> ServerFault {
        match self {
            Self::Nothing | Self::ByRestart => ServerFault::Restart,
            Self::AtOnce => ServerFault::Flush,
        }
    }

    async fn happen(self, servers: &dyn DisposableServer) -> Verdict {
        is_proven(match self {
            Self::Nothing => servers.restart(Data::Kept).await,
            Self::ByRestart => servers.restart(Data::Gone).await,
            Self::AtOnce => servers.flush().await,
        })
    }

    /// It happens while all kinds of lock are contended for.
    async fn among_contenders(
        self,
        cx: &Cx,
        servers: &dyn DisposableServer,
    ) -> Result<Vec<Arc<GatedCounter>>, Failure> {
        let contenders = Contenders::start(cx, async || client(cx, servers).await).await?;
        contenders.all_go_on(3).await?;
        let bystander = cx.form.handle(&client(cx, servers).await?, "a bystander's")?.with_ttl(ttl());
        for _ in 0..TIMES {
            // What is to be forgotten has to be there, even if no contender holds a lock just then.
            let held = if self == Self::AtOnce { Some(bystander.lock().await?) } else { None };
            self.happen(servers).await?;
            drop(held);
            contenders.all_go_on(3).await?;
        }
        let counters = contenders.stop().await?;
        for counter in &counters {
            let lost = counter.lost_updates();
            ensure!(lost == 0, "{}: {lost} updates behind the gate are lost", counter.name());
        }
        Ok(counters)
    }

    /// It happens to a holder, who is told; whoever is next has nothing to fear from it.
    async fn is_no_secret(self, cx: &Cx) -> Verdict {
        let servers = disposable_server(cx, self.fault()).await?;
        for counter in self.among_contenders(cx, &*servers).await? {
            let excludes = cx.abilities.always_promises(Guarantee::ExclusionAcrossRestart);
            ensure!(
                !excludes || counter.overlaps() == 0,
                "{}: two inside, {} times",
                counter.name(),
                counter.overlaps()
            );
        }
        let (a, b) = (contender(cx, &*servers).await?, contender(cx, &*servers).await?);
        let held = first_grant(&a).await?;
        self.happen(&*servers).await?;
        soon("the holder is told", ttl() + hand_over(), held.lost()).await?;
        ensure!(!held.is_held(), "the lock is believed in after its loss: {held:?}");
        let next = next_grant(cx, &held, &b, promptly() * 3).await?.or_fail("not free after it was forgotten")?;
        let late = soon("the late release", promptly(), held.release()).await?;
        let kind = late.as_ref().err().map(lock_core::Error::kind);
        let right = matches!(kind, Some(ErrorKind::NotHeld | ErrorKind::Indeterminate));
        ensure!(right, "a release of what was forgotten says {late:?}");
        cx.is_refused(&contender(cx, &*servers).await?).await?;
        release(next).await
    }
}

pub(super) async fn a_restart_lets_nobody_in_beside_a_holder_and_everybody_goes_on(cx: Arc<Cx>) -> Verdict {
    let servers = disposable_server(&cx, ServerFault::Restart).await?;
    for counter in Forgetting::Nothing.among_contenders(&cx, &*servers).await? {
        let excludes = cx.abilities.promises(Guarantee::ExclusionAcrossRestart);
        ensure!(!excludes || counter.overlaps() == 0, "{}: two inside, {} times", counter.name(), counter.overlaps());
        let grow = cx.abilities.promises(Guarantee::FencingAcrossRestart);
        ensure!(!grow || counter.stale() == 0, "{}: {} tokens went back", counter.name(), counter.stale());
    }
    let (a, b) = (contender(&cx, &*servers).await?, contender(&cx, &*servers).await?);
    let held = first_grant(&a).await?;
    Forgetting::Nothing.happen(&*servers).await?;
    // For longer than a lease: renewals have to find what they ask for, or their holder is told.
    if let Some(next) = next_grant(&cx, &held, &b, ttl() * 2).await? {
        return release(next).await;
    }
    if held.is_held() {
        release(held).await?;
        return release(soon("the lock is free again", promptly(), b.lock()).await??).await;
    }
    let next = next_grant(&cx, &held, &b, promptly() * 3).await?;
    release(next.or_fail("not free after its holder was told of the loss")?).await
}

pub(super) async fn a_restart_without_its_data_is_no_secret(cx: Arc<Cx>) -> Verdict {
    Forgetting::ByRestart.is_no_secret(&cx).await
}

pub(super) async fn what_servers_forget_while_they_run_is_no_secret(cx: Arc<Cx>) -> Verdict {
    Forgetting::AtOnce.is_no_secret(&cx).await
}

/// The first lock of a server that may grant none for a while.
async fn first_grant(lock: &Exclusive) -> Result<Held, Failure> {
    let granted = soon("the first grant", promptly() * 3, lock.try_lock_for(promptly() * 2)).await??;
    granted.or_fail("the lock should be free, but was not granted")
}

/// Another one tries again and again, until it is granted the lock or this time is over: not beside a holder that believes in
/// it, where that is promised.
async fn next_grant(cx: &Cx, former: &Held, other: &Exclusive, within: Duration) -> Result<Option<Held>, Failure> {
    let excludes = cx.abilities.promises(Guarantee::ExclusionAcrossRestart);
    let began = Instant::now();
    while began.elapsed() < within {
        let tried = soon("a try comes back", promptly(), other.try_lock()).await?;
        let believes = former.is_held();
        match tried {
            Ok(Some(next)) => {
                ensure!(!(believes && excludes), "granted although somebody holds it: {former:?}");
                return Ok(Some(next));
            }
            Ok(None) => {}
            Err(error) => is_of_the_trouble(&error)?,
        }
        pass(ms(5)).await;
    }
    Ok(None)
}
