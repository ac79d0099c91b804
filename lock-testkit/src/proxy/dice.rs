//! Chance that a seed repeats.

use std::time::Duration;

/// SplitMix64: small, and good enough to scatter delays.
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Up to this long.
    pub(super) fn up_to(&mut self, most: Duration) -> Duration {
        // 16 bits are fine enough for a delay.
        let share = f64::from(u16::try_from(self.roll() >> 48).unwrap_or_default()) / f64::from(u16::MAX);
        most.mul_f64(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_what_it_gave_and_stays_within() {
        let throw = |seed| {
            let mut dice = Dice::new(seed);
            (0..50).map(|_| dice.up_to(Duration::from_millis(10))).collect::<Vec<_>>()
        };
        assert_eq!(throw(1), throw(1));
        assert_ne!(throw(1), throw(2));
        assert!(throw(3).iter().all(|delay| *delay <= Duration::from_millis(10)));
    }
}
