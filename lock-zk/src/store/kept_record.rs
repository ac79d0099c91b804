//! A record as its node has it, with the time for which it is kept.

use std::time::Duration;

use lock_core::driver::Record;

/// The digits of the seconds before a record.
const DIGITS: usize = 8;

/// A record, and how long it is kept after its node was last changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptRecord {
    pub(crate) record: Record,
    pub(crate) seconds: u32,
}

impl KeptRecord {
    /// A record that is kept for so long, and no shorter than it was before.
    pub(crate) fn new(record: Record, retention: Duration, before: Option<u32>) -> Self {
        let longest = Record::LONGEST_RETENTION.as_secs();
        let asked = retention.as_secs().saturating_add(u64::from(retention.subsec_nanos() > 0));
        let seconds = asked.max(before.unwrap_or_default().into()).clamp(1, longest);
        // 30 days are 2,592,000 s.
        Self { record, seconds: u32::try_from(seconds).unwrap_or(u32::MAX) }
    }

    /// The form in the node: the seconds with 8 digits, a colon, and the record.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{:0DIGITS$}:", self.seconds).into_bytes();
        bytes.extend_from_slice(&self.record.to_bytes());
        bytes
    }

    /// Reads [that form](KeptRecord::to_bytes); `None` if it is something else.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (digits, rest) = (bytes.get(..DIGITS)?, bytes.get(DIGITS..)?);
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let seconds: u32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let record = Record::from_bytes(rest.strip_prefix(b":")?)?;
        (1..=Record::LONGEST_RETENTION.as_secs()).contains(&seconds.into()).then_some(Self { record, seconds })
    }

    /// Whether it has ended at `now`, if its node was last changed at `changed_at`: both in ms since 1970, each by the clock of the server
    /// that led. One that steps ahead ends records early.
    pub(crate) fn has_ended(&self, changed_at: i64, now: i64) -> bool {
        now.saturating_sub(changed_at) > i64::from(self.seconds) * 1000
    }
}

#[cfg(test)]
mod tests {
    use lock_core::FencingToken;

    use super::*;

    fn record() -> Record {
        Record::new(FencingToken::new(7).unwrap())
    }

    #[test]
    fn it_survives_being_stored_and_is_kept_as_long_as_ever_was_asked_for() {
        let kept = KeptRecord::new(record(), Duration::from_millis(61_001), None);
        assert_eq!(kept.seconds, 62);
        assert_eq!(KeptRecord::from_bytes(&kept.to_bytes()), Some(kept));
        assert_eq!(KeptRecord::new(record(), Duration::from_secs(60), Some(90)).seconds, 90);
        assert_eq!(KeptRecord::new(record(), Duration::MAX, None).seconds, 2_592_000);
    }

    #[test]
    fn what_is_not_of_that_form_is_refused() {
        let good = KeptRecord::new(record(), Duration::from_secs(60), None).to_bytes();
        for end in 0..good.len() - record().data.len() {
            assert_eq!(KeptRecord::from_bytes(&good[..end]), None, "{end}");
        }
        for seconds in ["00000000", "99999999", "+0000060", "0000 060"] {
            let bytes = [seconds.as_bytes(), &good[8..]].concat();
            assert_eq!(KeptRecord::from_bytes(&bytes), None, "{seconds}");
        }
        assert_eq!(KeptRecord::from_bytes(&record().to_bytes()), None);
    }

    #[test]
    fn a_kept_record_from_outside_is_one_of_ours_or_refused() {
        let (short, mut long) = (record(), record());
        long.data = vec![0xff; Record::MAX_BYTES];
        let samples = [short, long].map(|record| KeptRecord::new(record, Duration::from_secs(60), None).to_bytes());
        lock_testkit::fuzz::bytes("kept records", &[&samples[0], &samples[1]], |bytes| {
            let Some(kept) = KeptRecord::from_bytes(bytes) else { return };
            assert!((1..=2_592_000).contains(&kept.seconds) && kept.record.data.len() <= Record::MAX_BYTES);
            assert_eq!(KeptRecord::from_bytes(&kept.to_bytes()), Some(kept));
        });
    }

    #[test]
    fn it_has_ended_when_its_time_is_over() {
        let kept = KeptRecord::new(record(), Duration::from_secs(60), None);
        assert!(!kept.has_ended(1_000_000, 1_060_000) && kept.has_ended(1_000_000, 1_060_001));
        assert!(!kept.has_ended(1_060_001, 1_000_000), "changed after the instant that counts as now");
    }
}
