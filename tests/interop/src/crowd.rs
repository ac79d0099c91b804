//! A run that asks for shares: so many of ours beside so many of theirs, who all do the same all the time.

use std::str::FromStr;
use std::time::Duration;

use crate::scene::{Cast, Scene};

/// The numbers of those who take part, of three and three at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crowd {
    ours: usize,
    theirs: usize,
}

impl Crowd {
    pub(crate) fn cast(self, scene: Scene) -> Cast {
        let part = |ours, count| scene.members().iter().filter(move |member| is_ours(member.0) == ours).take(count);
        part(true, self.ours).chain(part(false, self.theirs)).copied().collect()
    }
}

impl FromStr for Crowd {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let counts = text.split_once('+').and_then(|(ours, theirs)| Some((ours.parse().ok()?, theirs.parse().ok()?)));
        match counts {
            // None of ours shows what theirs do among themselves.
            Some((ours @ 0..=3, theirs @ 1..=3)) => Ok(Self { ours, theirs }),
            _ => Err("not up to 3 of ours + 1 to 3 of theirs, such as 3+1".to_owned()),
        }
    }
}

/// Whether a member of this name is one of ours.
pub(crate) fn is_ours(name: &str) -> bool {
    name.starts_with("ours-")
}

/// The bars by which a crowd is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bars {
    /// The longest time from a member's grant to its next.
    pub(crate) gap: Duration,
    /// The median from a release of theirs to a grant of ours that waited.
    pub(crate) heard: Option<Duration>,
}

impl Bars {
    pub(crate) fn of(scene: Scene, members: usize, hold: Duration) -> Self {
        let turns = u32::try_from(members).unwrap_or(u32::MAX).saturating_mul(2);
        let gap = hold.saturating_mul(turns) + Duration::from_secs(1);
        match scene {
            Scene::Redisson => Self { gap: gap.max(Duration::from_secs(2)), heard: Some(Duration::from_millis(2)) },
            _ => Self { gap, heard: None },
        }
    }
}
