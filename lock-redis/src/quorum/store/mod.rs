//! The data of a lock at each server of a quorum: the scripts, and the text that they keep. The keys are those of a single server.

pub(super) mod record;
pub(super) mod scripts;
