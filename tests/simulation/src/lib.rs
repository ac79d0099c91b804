//! A Redis in memory, for the simulation in `tests/seeds`.

pub mod redis;
