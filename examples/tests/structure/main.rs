//! The structure of the workspace: in which direction modules use each other, where methods stand, what backends re-export, how many
//! things one name stands for, and the floor plan.

#![cfg(test)]

mod circles;
mod exports;
mod floor_plan;
mod futures;
mod methods;
mod names;
mod source;
