//! Options of leases and clients.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Phase};

/// The lifetime of a grant at the server, and its renewal.
///
/// Deserialised, a duration is `{ "secs": 30, "nanos": 0 }`, as serde writes it, and what is left out has its default. An unknown field is
/// an error: one that is misspelled would have the default of the right one.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use lock_core::LeaseOptions;
///
/// let lease: LeaseOptions = serde_json::from_str(r#"{ "ttl": { "secs": 30, "nanos": 0 } }"#)?;
/// assert_eq!(lease, LeaseOptions::new(Duration::from_secs(30)));
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// use std::time::Duration;
/// use lock_core::LeaseOptions;
///
/// let by_hand = LeaseOptions::new(Duration::from_secs(30)).with_auto_renew(false);
/// let guard = locks.mutex("report").with_lease(by_hand).lock().await?;
/// guard.extend(Duration::from_secs(60)).await?; // nobody else does
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LeaseOptions {
    /// The time for which the server keeps the grant when it hears nothing more, and so for which a crashed holder blocks the
    /// others. From 100 ms to 24 h; 10 s by default.
    pub ttl: Duration,
    /// The interval of the renewals: from 1 ms to half of `ttl`. A third of `ttl` by default.
    pub renew_every: Option<Duration>,
    /// Whether the lease is renewed by itself while the guard lives. On by default.
    pub auto_renew: bool,
    /// The longest time for which a guard may hold, renewals included; lost after that. It counts from the guard's beginning. Unlimited by
    /// default.
    ///
    /// This bounds a guard that was leaked (`mem::forget`) or whose task hangs.
    pub max_hold: Option<Duration>,
}

impl LeaseOptions {
    /// The shortest time to live.
    pub const MIN_TTL: Duration = Duration::from_millis(100);
    /// The longest time to live.
    pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);
    /// The shortest interval of the renewals. With less the keeper would do nothing else.
    pub(crate) const MIN_INTERVAL: Duration = Duration::from_millis(1);

    /// The defaults with this time to live.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use lock_core::LeaseOptions;
    ///
    /// let nightly = LeaseOptions::new(Duration::from_secs(60)).with_max_hold(Duration::from_secs(3600));
    /// assert_eq!(nightly.renewal_interval(), Duration::from_secs(20));
    /// ```
    #[must_use]
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, ..Self::default() }
    }

    /// Sets the interval of the renewals.
    #[must_use]
    pub fn with_renew_every(mut self, interval: Duration) -> Self {
        self.renew_every = Some(interval);
        self
    }

    /// Sets whether the lease is renewed by itself. If not, the grant ends after `ttl` unless
    /// [`Lease::extend`](crate::Lease::extend) is called. The server is asked all the same whether it still has the grant when it may have
    /// forgotten it, such as after a failover, and when the task that renews has started again.
    #[must_use]
    pub fn with_auto_renew(mut self, auto_renew: bool) -> Self {
        self.auto_renew = auto_renew;
        self
    }

    /// Sets the longest time for which a grant may be held, renewals included.
    #[must_use]
    pub fn with_max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// The interval between two renewals.
    #[must_use]
    pub fn renewal_interval(&self) -> Duration {
        self.renew_every.unwrap_or(self.ttl / 3)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        check_ttl(self.ttl)?;
        if let Some(every) = self.renew_every
            && (every < Self::MIN_INTERVAL || every > self.ttl / 2)
        {
            let (least, ttl) = (Self::MIN_INTERVAL, self.ttl);
            let what =
                format!("renew_every is {every:?}, it must be at least {least:?} and at most half of the TTL {ttl:?}");
            return Err(Error::invalid(Phase::Configure, what));
        }
        if self.max_hold.is_some_and(|max| max.is_zero()) {
            return Err(Error::invalid(Phase::Configure, "max_hold is zero"));
        }
        Ok(())
    }
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(10), renew_every: None, auto_renew: true, max_hold: None }
    }
}

pub(crate) fn check_ttl(ttl: Duration) -> Result<(), Error> {
    let (min, max) = (LeaseOptions::MIN_TTL, LeaseOptions::MAX_TTL);
    if ttl < min || ttl > max {
        return Err(Error::invalid(
            Phase::Configure,
            format!("the TTL is {ttl:?}, it must lie between {min:?} and {max:?}"),
        ));
    }
    Ok(())
}

/// The longest text of a user, in bytes: it goes to the server with requests and into every `inspect`.
pub(crate) const MAX_TEXT: usize = 1024;

/// Refuses a text that is too long.
pub(crate) fn check_text(what: &str, text: &str) -> Result<(), Error> {
    if text.len() > MAX_TEXT {
        let wrong = format!("{what} has {} bytes, it must have {MAX_TEXT} at most", text.len());
        return Err(Error::invalid(Phase::Configure, wrong));
    }
    Ok(())
}

/// The options that all locks of one client have in common. Every backend's configuration contains them.
///
/// Deserialised, a duration is `{ "secs": 2, "nanos": 0 }`, as serde writes it, and what is left out has its default. An unknown field is
/// an error: one that is misspelled would have the default of the right one.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use lock_core::{ClientOptions, LeaseOptions};
///
/// let options = ClientOptions::default()
///     .with_lease(LeaseOptions::new(Duration::from_secs(30)))
///     .with_op_timeout(Duration::from_secs(1))
///     .with_label("billing");
/// assert!(options.check().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The lease of a lock that does not choose its own.
    pub lease: LeaseOptions,
    /// The longest time that one request to the server may take: from 1 ms to 24 h; 2 s by default.
    pub op_timeout: Duration,
    /// The longest time for which a wait goes on without any answer from the server, deadline or not: from 1 ms to 24 h; 10 s by default.
    pub patience: Duration,
    /// A text that `inspect` shows beside host and process; 1 KiB at most.
    pub label: Option<String>,
}

impl ClientOptions {
    /// Sets the lease of a lock that does not choose its own.
    #[must_use]
    pub fn with_lease(mut self, lease: LeaseOptions) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the longest time that one request to the server may take.
    #[must_use]
    pub fn with_op_timeout(mut self, op_timeout: Duration) -> Self {
        self.op_timeout = op_timeout;
        self
    }

    /// Sets the longest time for which a wait goes on without any answer from the server.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the text that `inspect` shows beside host and process.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Checks every value.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument), naming the option that is wrong.
    pub fn check(&self) -> Result<(), Error> {
        self.lease.check()?;
        if let Some(label) = &self.label {
            check_text("the label", label)?;
        }
        for (what, value) in [("op_timeout", self.op_timeout), ("patience", self.patience)] {
            if value < Duration::from_millis(1) || value > LeaseOptions::MAX_TTL {
                return Err(Error::invalid(
                    Phase::Configure,
                    format!("{what} is {value:?}, it must lie between 1ms and 24h"),
                ));
            }
        }
        Ok(())
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            lease: LeaseOptions::default(),
            op_timeout: Duration::from_secs(2),
            patience: Duration::from_secs(10),
            label: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_outside_their_limits_are_refused_by_name() {
        for ttl in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(99), Duration::MAX] {
            let error = LeaseOptions::new(ttl).check().unwrap_err();
            assert!(error.to_string().contains("TTL"), "{error}");
        }
        let busy = LeaseOptions::default().with_renew_every(Duration::from_nanos(1));
        assert!(busy.check().unwrap_err().to_string().contains("renew_every"));
        let slow = LeaseOptions { renew_every: Some(Duration::from_secs(6)), ..LeaseOptions::default() };
        assert!(slow.check().unwrap_err().to_string().contains("renew_every"));
        assert!(LeaseOptions::new(Duration::from_millis(100)).check().is_ok());
    }

    #[test]
    fn a_field_that_is_misspelled_is_refused_by_name_at_every_level() {
        let written = serde_json::to_string(&ClientOptions::default()).unwrap();
        assert_eq!(serde_json::from_str::<ClientOptions>(&written).unwrap(), ClientOptions::default());
        for (right, wrong) in [("ttl", "tll"), ("op_timeout", "op_timout"), ("label", "lable"), ("max_hold", "maxHold")]
        {
            let misspelled = written.replace(&format!("\"{right}\""), &format!("\"{wrong}\""));
            assert_ne!(misspelled, written);
            let error = serde_json::from_str::<ClientOptions>(&misspelled).unwrap_err();
            assert!(error.to_string().contains(wrong), "{error}");
        }
    }
}
