//! The promises of the handles when the server is silent, loses answers, or repeats requests.

#![cfg(test)]

mod asking;
mod bounds;
mod close;
mod detach;
mod ends;
mod fenced;
mod gone;
mod keeper;
mod kept;
mod lab;
mod late;
mod leave;
mod metrics;
mod multi;
mod newer;
mod outage;
mod own;
mod permits;
mod polls;
mod reentrant;
mod runtimes;
mod several;
mod shown;
mod slow;
mod spans;
mod texts;
mod unpolled;
