//! The protocols as they ship, explored state by state, and each mistake that is refuted.

mod batch;
mod handover;
mod lease;
mod permits;
mod queue;
mod reply;
