//! The tick of the servers of a run.

use std::time::Duration;

use lock_testkit::HarnessError;

use crate::zookeeper::{ENSEMBLE_URL_VARIABLE, URL_VARIABLE};

/// The variable that tells the `tickTime` of servers that exist already, in milliseconds.
pub const TICK_VARIABLE: &str = "LOCK_TESTKIT_ZOOKEEPER_TICK_MS";

/// The `tickTime` of servers that are started.
const OWN: Duration = Duration::from_millis(200);
/// The `tickTime` of most servers.
const USUAL: Duration = Duration::from_millis(2000);

/// Returns the `tickTime` of the servers of a run: that which [`TICK_VARIABLE`] tells; or else the usual 2 s of servers that are `named`,
/// by an argument or by a variable, and 200 ms of our own.
///
/// A client that believes in less than its servers' tick believes in more than is proven: its locks may overlap with others.
///
/// # Errors
/// If the variable is no number between 1 and 60,000.
pub fn tick_time(named: bool) -> Result<Duration, HarnessError> {
    let is_set = |variable| std::env::var_os(variable).is_some();
    of(std::env::var(TICK_VARIABLE).ok().as_deref(), named || is_set(URL_VARIABLE) || is_set(ENSEMBLE_URL_VARIABLE))
}

fn of(told: Option<&str>, named: bool) -> Result<Duration, HarnessError> {
    let Some(told) = told else { return Ok(if named { USUAL } else { OWN }) };
    match told.parse() {
        Ok(ms @ 1..=60_000) => Ok(Duration::from_millis(ms)),
        _ => Err(HarnessError::new(format!("{TICK_VARIABLE} is {told:?}, and no number between 1 and 60000"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_servers_have_the_usual_tick_where_nothing_else_is_told() {
        let ms = |told, named| of(told, named).map(|tick| tick.as_millis()).map_err(|error| error.to_string());
        assert_eq!((ms(None, false), ms(None, true)), (Ok(200), Ok(2000)));
        assert_eq!((ms(Some("3000"), false), ms(Some("3000"), true)), (Ok(3000), Ok(3000)));
        for wrong in ["", "0", "60001", "2s"] {
            assert!(ms(Some(wrong), true).unwrap_err().contains(TICK_VARIABLE), "{wrong:?}");
        }
    }
}
