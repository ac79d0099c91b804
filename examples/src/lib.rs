//! The examples are in this folder; run them with `cargo run --release --example NAME`.
