//! The name of a lock.

mod check;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Characters.
const SHOWN_OF_AN_OVERLONG_NAME: usize = 64;

/// The name of a lock: any non-empty UTF-8 text of at most 1,024 bytes, case-sensitive.
///
/// Every backend maps names to keys or paths without collisions; each documents how. Two kinds of locks with one name
/// never collide: the mutex `"a"` and the semaphore `"a"` are independent.
///
/// A literal converts with `into()`, as `String`, `&String`, `Cow<str>` and `Arc<str>` do, and is checked when the lock is
/// first used, so that a handle can be made without a `Result`; text from outside goes through [`LockName::new`] or
/// `parse`, which check at once.
///
/// Serialised, a name is a string, and a key that is shared an object, so that a message can carry either. A key is not confined to the
/// client's prefix: read names of senders that are not trusted as a `String`, and check them with `parse`.
///
/// # Examples
/// ```
/// use lock_core::LockName;
///
/// assert!(LockName::new("orders/42").is_ok());
/// assert!(LockName::new("").is_err());
/// assert!(LockName::new("x".repeat(1025)).is_err());
///
/// let parsed: LockName = "orders/42".parse()?;
/// assert_eq!(parsed, LockName::from("orders/42"));
/// # Ok::<(), lock_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "Repr", from = "Repr")]
pub struct LockName {
    text: Arc<str>,
    at_key: bool,
}

impl LockName {
    /// The text of the name, or of the key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether this is a key shared with clients of other libraries, from [`LockName::from_key`].
    #[must_use]
    pub const fn is_key(&self) -> bool {
        self.at_key
    }

    /// The name as an error tells it: one that is too long by its beginning only.
    pub(crate) fn for_an_error(&self) -> String {
        if self.text.len() <= Self::MAX_BYTES {
            return self.text.to_string();
        }
        let beginning: String = self.text.chars().take(SHOWN_OF_AN_OVERLONG_NAME).collect();
        format!("{beginning}…")
    }
}

impl From<&str> for LockName {
    fn from(name: &str) -> Self {
        Self { text: name.into(), at_key: false }
    }
}

impl From<String> for LockName {
    fn from(name: String) -> Self {
        Self { text: name.into(), at_key: false }
    }
}

impl From<&String> for LockName {
    fn from(name: &String) -> Self {
        name.as_str().into()
    }
}

impl From<Cow<'_, str>> for LockName {
    fn from(name: Cow<'_, str>) -> Self {
        Self { text: name.into(), at_key: false }
    }
}

impl From<Arc<str>> for LockName {
    /// Shares the text: nothing is copied.
    fn from(text: Arc<str>) -> Self {
        Self { text, at_key: false }
    }
}

impl From<&LockName> for LockName {
    fn from(name: &LockName) -> Self {
        name.clone()
    }
}

impl AsRef<str> for LockName {
    /// The text of the name, or of the key.
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Repr {
    Name(String),
    Key { at_key: String },
}

impl From<LockName> for Repr {
    fn from(name: LockName) -> Self {
        let text = name.text.to_string();
        if name.at_key { Self::Key { at_key: text } } else { Self::Name(text) }
    }
}

impl From<Repr> for LockName {
    fn from(repr: Repr) -> Self {
        match repr {
            Repr::Name(text) => Self::from(text),
            Repr::Key { at_key } => Self { text: at_key.into(), at_key: true },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_survives_serde_with_its_door() {
        for name in [LockName::new("a/ü").unwrap(), LockName::from_key("raw").unwrap()] {
            let json = serde_json::to_string(&name).unwrap();
            assert_eq!(serde_json::from_str::<LockName>(&json).unwrap(), name);
        }
    }

    #[test]
    fn every_string_converts_unchecked_and_parses_checked() {
        let text = "a/ü".to_owned();
        let names = [
            LockName::from(&text),
            Cow::from(&text).into(),
            Cow::<str>::Owned(text.clone()).into(),
            Arc::<str>::from(text.as_str()).into(),
            text.parse().unwrap(),
        ];
        assert!(names.iter().all(|name| *name == LockName::from(text.as_str()) && !name.is_key()));
        for (wrong, said) in [(String::new(), "empty"), ("x".repeat(1025), "1025 bytes")] {
            assert_eq!(LockName::from(&wrong).as_str(), wrong);
            let error = wrong.parse::<LockName>().unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn a_name_is_taken_for_a_text() {
        let length = |text: &dyn AsRef<str>| text.as_ref().len();
        assert_eq!((length(&LockName::from("a/ü")), length(&LockName::from_key("raw").unwrap())), (4, 3));
    }

    #[test]
    fn the_limits_are_counted_in_bytes() {
        assert!(LockName::new("ü".repeat(512)).is_ok());
        let error = LockName::new("ü".repeat(513)).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument);
    }

    #[test]
    fn an_error_tells_the_beginning_of_an_overlong_name() {
        let told = LockName::new("ü".repeat(1_000_000)).unwrap_err().to_string();
        assert!(told.contains(&format!("{}…", "ü".repeat(64))) && told.len() < 1_000, "{told}");
        assert!(told.contains("2000000 bytes"), "{told}");
    }
}
