//! The identities of a lock's holders: grant ids and owners.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Phase};
use crate::options::check_text;

/// 128 random bits, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct GrantId([u8; 16]);

impl GrantId {
    /// A new random id from the system's random source. None is kept in stock: two virtual machines that go on from one
    /// snapshot, and a forked child, would give out the same ones.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the system has no randomness to give.
    pub fn random() -> Result<Self, Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|e| Error::unavailable(Phase::Configure, "the system gave no random bytes").with_source(e))?;
        Ok(Self(bytes))
    }

    /// The raw bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The id of these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The number of digits of an id that is written.
    pub const LENGTH: usize = 32;

    /// Writes the id's hexadecimal digits into `buffer`, as [`Display`](fmt::Display) would, and returns them. Nothing is allocated.
    ///
    /// # Examples
    /// ```
    /// use lock_core::GrantId;
    ///
    /// let id = GrantId::from_bytes([0xa7; 16]);
    /// assert_eq!(id.encode(&mut [0; GrantId::LENGTH]), id.to_string());
    /// ```
    pub fn encode(self, buffer: &mut [u8; Self::LENGTH]) -> &str {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        for (byte, digits) in self.0.iter().zip(buffer.chunks_exact_mut(2)) {
            digits[0] = HEX[usize::from(byte >> 4)];
            digits[1] = HEX[usize::from(byte & 15)];
        }
        // Only ASCII digits were written.
        std::str::from_utf8(buffer).unwrap_or_default()
    }
}

impl Hash for GrantId {
    /// Hashes both halves as one number: they are random, and a number costs a hasher less than a text does.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let all = u128::from_ne_bytes(self.0);
        state.write_u64((all ^ (all >> 64)) as u64);
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.encode(&mut [0; Self::LENGTH]))
    }
}

impl fmt::Debug for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for GrantId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::invalid(Phase::Configure, "a grant id has 32 hexadecimal digits");
        if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 16];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl From<GrantId> for String {
    fn from(id: GrantId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for GrantId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

/// The identity of whoever asks for a lock: a random id, and a text for operators beside it.
///
/// A [`ReentrantMutex`](crate::ReentrantMutex) excludes owners from each other: a request by the same `Owner` is let in again. A
/// [`RwLock`](crate::RwLock::with_owner) refuses its second request. Otherwise an owner is only what
/// [`inspect`](crate::Mutex::inspect) shows. An owner serialises, so that a job can carry it to another process.
///
/// Two owners are equal, and have one hash, if their ids are equal: locks go by the id alone. Host, process and label are for operators.
///
/// # Examples
/// ```
/// use lock_core::Owner;
///
/// let import = Owner::new().with_label("nightly import");
/// assert_eq!((import.label(), import.pid()), (Some("nightly import"), std::process::id()));
/// assert_ne!(import, Owner::new());
/// assert_eq!(import, import.clone().with_label("the same job")); // by its id
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Owner(Arc<OwnerRecord>);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct OwnerRecord {
    id: GrantId,
    host: String,
    pid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
}

impl Owner {
    /// A new owner with a random id, of this host and process.
    #[must_use]
    pub fn new() -> Self {
        // Without randomness two owners could be taken for one. Every acquisition needs randomness too and reports
        // the lack of it as an error, so an owner of all zeroes never reaches a server.
        let id = GrantId::random().unwrap_or(GrantId([0; 16]));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self(Arc::new(OwnerRecord { id, host, pid: std::process::id(), label: None }))
    }

    /// Sets a text that operators recognise, such as the job's name. One of more than 1 KiB is refused by every
    /// acquisition, with [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument). The id stays, and with it what
    /// the owner holds.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.0).label = Some(label.into());
        self
    }

    /// Refuses an owner whose texts are too long; they may come from outside, by serde.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_text("the owner's host", &self.0.host)?;
        self.0.label.as_deref().map_or(Ok(()), |label| check_text("the owner's label", label))
    }

    /// The owner's random id.
    #[must_use]
    pub fn id(&self) -> GrantId {
        self.0.id
    }

    /// The name of the host on which the owner was made.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// The process in which the owner was made.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.pid
    }

    /// The text given by the application, if any.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.0.label.as_deref()
    }
}

impl PartialEq for Owner {
    /// Compares the ids.
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Owner {}

impl Hash for Owner {
    /// Hashes the id.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}", self.label().unwrap_or("owner"), self.host(), self.pid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_distinct_and_survive_their_text() {
        let ids: std::collections::HashSet<_> = (0..10_000).map(|_| GrantId::random().unwrap()).collect();
        assert_eq!(ids.len(), 10_000);
        for id in ids.iter().take(100) {
            assert_eq!(id.to_string().parse::<GrantId>().unwrap(), *id);
        }
        for wrong in
            ["", "12", "zz000000000000000000000000000000", "üüüüüüüüüüüüüüüü", "+0+0+0+0+0+0+0+0+0+0+0+0+0+0+0+0"]
        {
            assert!(wrong.parse::<GrantId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_id_is_written_as_its_digits() {
        let id = GrantId::from_bytes([0x0f; 16]);
        assert_eq!((id.to_string(), format!("{id:?}")), ("0f".repeat(16), "0f".repeat(16)));
        assert_eq!(String::from(id), "0f".repeat(16));
    }

    #[test]
    fn an_owner_says_who_it_is() {
        let (named, other) = (Owner::new().with_label("nightly import"), Owner::new());
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert_eq!((named.host(), named.pid()), (&*host, std::process::id()));
        assert_eq!((named.label(), other.label()), (Some("nightly import"), None));
        assert_eq!(named.to_string(), format!("nightly import@{host}:{}", std::process::id()));
        assert_eq!(other.to_string(), format!("owner@{host}:{}", std::process::id()));
        assert_ne!(named.id(), other.id());
        assert_ne!(Owner::default().id(), Owner::default().id());
    }

    #[test]
    fn an_owner_survives_serde() {
        let owner = Owner::new().with_label("nightly import");
        let json = serde_json::to_string(&owner).unwrap();
        let read = serde_json::from_str::<Owner>(&json).unwrap();
        assert_eq!((read.id(), read.to_string()), (owner.id(), owner.to_string()));
    }

    #[test]
    fn two_owners_are_equal_if_their_ids_are() {
        let (job, other) = (Owner::new(), Owner::new());
        let mut elsewhere = serde_json::to_value(&job).unwrap();
        (elsewhere["host"], elsewhere["pid"]) = ("elsewhere".into(), 7.into());
        let elsewhere: Owner = serde_json::from_value(elsewhere).unwrap();
        let same = [job.clone(), job.clone().with_label("nightly import"), elsewhere];
        assert!(same.iter().all(|owner| *owner == job && *owner != other));
        assert_eq!(same.into_iter().chain([other]).collect::<std::collections::HashSet<_>>().len(), 2);
    }
}
