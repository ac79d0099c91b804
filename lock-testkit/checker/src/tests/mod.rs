//! The checker is judged itself: by histories whose verdict is known, and by a search through all orders.

mod agreement;
mod doubts;
mod golden;
mod search;
mod sketch;
