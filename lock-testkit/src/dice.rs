//! Chance that a seed repeats.

use std::time::Duration;

/// Chance for tests: the same throws from the same seed, on every machine and in every version. Nothing to keep a secret
/// with.
///
/// (SplitMix64: Steele, Lea, Flood 2014.)
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The dice of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    ///
    /// # Panics
    /// If `end` is zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    /// `true` once in so many times.
    ///
    /// # Panics
    /// If `times` is zero.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A duration of up to this long, in whole microseconds.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.below(most.saturating_add(1)))
    }

    /// One of several.
    ///
    /// # Panics
    /// If there are none.
    pub fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap_or(0)].clone()
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
        assert_eq!(Dice::new(4).up_to(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn its_numbers_are_those_of_the_paper() {
        let mut dice = Dice::new(1_234_567);
        assert_eq!([dice.roll(), dice.roll()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }
}
