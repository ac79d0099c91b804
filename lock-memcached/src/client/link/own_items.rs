//! The items of a grant, as they are at the server now.

use lock_core::clock::BootInstant;

use super::Link;
use crate::client::cas::CasNumber;
use crate::client::protocol::Command;
use crate::client::rights::Precedence;
use crate::error::Failure;
use crate::store::keys::{Key, Nonce};

impl Link {
    /// The CAS number that each of these items has now, asked for by this instant; none for one that is not this grant's (any more).
    pub(crate) async fn find_own(
        &self,
        items: impl Iterator<Item = (Nonce, &Key)> + Clone,
        until: BootInstant,
    ) -> Vec<Result<Option<CasNumber>, Failure>> {
        self.find_own_of(items, until, Precedence::Usual).await
    }

    /// [`find_own`](Link::find_own), with this precedence.
    pub(crate) async fn find_own_of(
        &self,
        items: impl Iterator<Item = (Nonce, &Key)> + Clone,
        until: BootInstant,
        precedence: Precedence,
    ) -> Vec<Result<Option<CasNumber>, Failure>> {
        let reads = items.clone().map(|(_, key)| Command::Read { key: key.clone() });
        let answers = self.run_of(reads.collect(), until, precedence).await;
        let own = items.zip(answers).map(|((nonce, _), answer)| {
            let found = answer.item()?.filter(|item| Nonce::read(&item.value) == Some(nonce));
            Ok(found.map(|item| item.seen))
        });
        own.collect()
    }
}
