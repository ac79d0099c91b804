//! Placeholder until the suite exists.

fn main() {}
