//! The form in which models compare machines: instants and tokens by what the model makes of them, numbers not at all.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use lock_core::FencingToken;
use lock_core::clock::BootInstant;

use super::{Lock, News, Waiters};

impl<L: Lock, W> Waiters<L, W> {
    /// Replaces every instant at which something was asked or is due; those of the wait's patience are left out.
    pub fn map_instants(
        &mut self,
        asked: impl Fn(BootInstant) -> BootInstant,
        due: impl Fn(BootInstant) -> BootInstant,
    ) {
        for waiter in self.registry.waiters() {
            waiter.asked_at = asked(waiter.asked_at);
            if let Some(News::Granted(grant)) = &mut waiter.news {
                grant.sent_at = asked(grant.sent_at);
            }
        }
        for queue in self.queues.values_mut() {
            let at = due(queue.entry.at());
            self.agenda.put_off(&mut queue.entry, at);
            queue.again_at = due(queue.again_at);
        }
    }

    /// Replaces every token.
    pub fn map_tokens(&mut self, mut to: impl FnMut(u64) -> u64) {
        for waiter in self.registry.waiters() {
            waiter.floor = to(waiter.floor);
            if let Some(News::Granted(grant)) = &mut waiter.news {
                grant.token = grant.token.and_then(|token| FencingToken::new(to(token.as_u64())));
            }
        }
    }
}

/// Equal for machines that differ in nothing but the numbers of heartbeats, and in whether the next one is short.
impl<L: Lock, W> Hash for Waiters<L, W> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Maps have no order of their own.
        let queues: BTreeSet<_> = self
            .queues
            .iter()
            .map(|(name, queue)| (name, &queue.waiting, queue.entry.at(), queue.asking, queue.again_at))
            .collect();
        let unfinished: BTreeSet<_> = self.unfinished.keys().collect();
        (queues, unfinished).hash(state);
        self.registry
            .sorted(|waiter| {
                let told = waiter.news.map(|news| match news {
                    News::Granted(grant) => Some((grant.token, grant.sent_at, grant.valid_for)),
                    News::AskAgain => None,
                });
                (waiter.asked_at, waiter.floor, waiter.ticket(), told)
            })
            .hash(state);
    }
}
