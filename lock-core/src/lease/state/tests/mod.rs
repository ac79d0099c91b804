//! The promises that a holder relies on, event by event.

mod attendance;
mod deadline;
mod doubt;
mod end;
mod extension;
mod part;
mod renewal;
mod sequence;

use super::*;

const TTL: Duration = Duration::from_secs(3);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn at(ms: u64) -> BootInstant {
    BootInstant::from_origin(Duration::from_millis(ms))
}

fn lease(options: LeaseOptions) -> LeaseState {
    LeaseState::new(&Grant::new(None, at(0), TTL), at(0), options, Duration::from_millis(2))
}

fn answer(sent: u64, answer: Answer) -> Event {
    Event::Answer { sent_at: at(sent), answer }
}
