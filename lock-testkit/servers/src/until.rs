//! Waiting for a state of servers.

use std::future::Future;
use std::time::{Duration, Instant};

use lock_testkit::{HarnessError, ms};

/// Between two questions. Servers change their state within seconds, not within milliseconds.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// The time in which something that needs no waiting at all must have happened even on a busy machine.
pub(crate) fn promptly() -> Duration {
    ms(10_000)
}

/// Asks until there is an answer, and fails at the deadline with the last reason why there was none.
pub(crate) async fn until<T, F>(what: &str, within: Duration, ask: impl Fn() -> F) -> Result<T, HarnessError>
where
    F: Future<Output = Result<T, HarnessError>>,
{
    let began = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(reason) if began.elapsed() >= within => {
                return Err(HarnessError::new(format!("{what}: not within {within:?}: {reason}")));
            }
            Err(_) => tokio::time::sleep(ASK_EVERY).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn it_asks_again_and_says_what_was_missing_in_the_end() {
        let asked = Cell::new(0);
        let third = || async {
            asked.set(asked.get() + 1);
            if asked.get() == 3 { Ok("yes") } else { Err(HarnessError::new("not yet")) }
        };
        assert_eq!(until("the third answer", ms(10_000), third).await.unwrap(), "yes");
        let never = || async { Err::<(), _>(HarnessError::new("it is cheese")) };
        let failure = until("the moon", ms(50), never).await.unwrap_err().to_string();
        assert!(failure.contains("the moon") && failure.contains("it is cheese"), "{failure}");
    }
}
