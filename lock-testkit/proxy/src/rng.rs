//! Random numbers that a seed repeats.

use std::time::Duration;

/// Random numbers for tests: the same sequence from the same seed, on every machine and in every version. Nothing to keep a secret
/// with.
///
/// (SplitMix64: Steele, Lea, Flood 2014.)
#[derive(Debug, Clone)]
pub struct SeededRng(u64);

impl SeededRng {
    /// The generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn next_u64(&mut self) -> u64 {
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
        self.next_u64() % end
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

    /// Chooses one of several.
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
        let draw = |seed| {
            let mut rng = SeededRng::new(seed);
            (0..50).map(|_| rng.up_to(Duration::from_millis(10))).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(3).iter().all(|delay| *delay <= Duration::from_millis(10)));
        assert_eq!(SeededRng::new(4).up_to(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn its_numbers_are_those_of_the_paper() {
        let mut rng = SeededRng::new(1_234_567);
        assert_eq!([rng.next_u64(), rng.next_u64()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }
}
