//! The structure of the workspace: in which direction modules use each other, where methods stand, how many things one name
//! stands for.

#![cfg(test)]

mod circles;
mod methods;
mod names;
mod source;
