//! The name and the promises of this backend.

use lock_core::{Guarantees, Support};

/// The name of this backend in errors and metrics.
pub(crate) const NAME: &str = "memcached";

/// The server changes a record in another step than that in which the lock is looked at.
const IN_FLIGHT: &str =
    "a write is on its way when the lock passes to a holder of the plain mutex, which stamps no record";

/// Promises on a server that evicts nothing, to clients that notice its restarts or do not.
pub(crate) fn on_one_server(notices_restarts: bool) -> Guarantees {
    let mut guarantees = Guarantees::none();
    if notices_restarts {
        guarantees.exclusion_across_restart = Support::Yes;
        guarantees.fencing = Support::Yes;
        guarantees.fencing_across_restart = Support::Unless("the clocks of two clients differ by the longest lease");
        guarantees.record = Support::Unless(IN_FLIGHT);
    }
    guarantees.limit_check = Support::Unless("two clients take their first permits at the same instant");
    guarantees.inspect =
        Support::Unless("the lock was granted a few milliseconds ago; of those who wait only a writer is shown");
    guarantees.force_release = Support::Yes;
    guarantees.foreign_clients = Support::Yes;
    guarantees.adoption = Support::Yes;
    guarantees.leave = Support::Yes;
    guarantees.renewal_across_runtimes = Support::Yes;
    guarantees
}

/// Promises on a server that evicts items when its memory is full: a lock that is evicted is free, and so is a limit.
pub(crate) fn evicting(mut guarantees: Guarantees) -> Guarantees {
    const EVICTS: &str = "the server, which runs without -M, evicts an item";
    const EVICTS_OR_IN_FLIGHT: &str = "the server, which runs without -M, evicts an item, or a write is on its way when the lock passes to \
                                       a holder of the plain mutex, which stamps no record";
    let Guarantees { exclusion_across_restart, limit_check, record, adoption, leave, .. } = &mut guarantees;
    let others = [exclusion_across_restart, limit_check, adoption, leave].map(|support| (support, EVICTS));
    for (support, why) in others.into_iter().chain([(record, EVICTS_OR_IN_FLIGHT)]) {
        if *support != Support::No {
            *support = Support::Unless(why);
        }
    }
    guarantees
}
