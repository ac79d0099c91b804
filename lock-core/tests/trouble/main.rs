//! What the handles promise when the server is silent, loses answers, or repeats requests.

mod close;
mod lab;
mod late;
mod permits;
mod reentrant;
