//! The scripts that each server of a quorum runs, put together as the library does it.

/// One server's part of taking a lock.
pub(crate) const TAKE: &str = include_str!("../../src/store/scripts/quorum/acquire.lua");
/// One server's part of releasing one.
pub(crate) const GIVE: &str = include_str!("../../src/store/scripts/quorum/release.lua");
/// Many of both.
pub(crate) const BATCH: &str = concat!(
    include_str!("../../src/store/scripts/begin_one.lua"),
    include_str!("../../src/store/scripts/quorum/acquire.lua"),
    include_str!("../../src/store/scripts/quorum/acquire_in_batch.lua"),
    include_str!("../../src/store/scripts/begin_one.lua"),
    include_str!("../../src/store/scripts/quorum/release.lua"),
    include_str!("../../src/store/scripts/quorum/batch_end.lua"),
);
