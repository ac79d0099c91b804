//! The limits of a name.

use std::str::FromStr;

use super::LockName;
use crate::error::{Error, Phase};

impl LockName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// Checks and wraps a name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if it is empty or too long.
    pub fn new(name: impl Into<String>) -> Result<Self, Error> {
        let name = Self::from(name.into());
        name.check()?;
        Ok(name)
    }

    /// A key (or path) that is shared with clients of other libraries: the backend uses exactly this key.
    ///
    /// Only the kinds whose wire format other libraries share are offered there; a backend says which, and answers
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for the rest. Redis and memcached
    /// refuse a key at which the client keeps its own locks; on ZooKeeper, whose layout is Curator's, it is that lock. A key of
    /// clients with another prefix is not known as theirs: it is one of their locks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the key is empty or too long.
    pub fn from_key(key: impl Into<String>) -> Result<Self, Error> {
        let mut name = Self::new(key)?;
        name.at_key = true;
        Ok(name)
    }

    /// Whether the name may be used; asked once more by every acquisition, because literals are not checked earlier.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bytes = self.text.len();
        if bytes == 0 {
            return Err(Error::invalid(Phase::Configure, "the lock's name is empty"));
        }
        if bytes > Self::MAX_BYTES {
            let what = format!("the lock's name has {bytes} bytes, at most {} are allowed", Self::MAX_BYTES);
            return Err(Error::invalid(Phase::Configure, what).with_name(self));
        }
        Ok(())
    }
}

impl FromStr for LockName {
    type Err = Error;

    /// [`LockName::new`], for `parse` and for command lines.
    fn from_str(name: &str) -> Result<Self, Error> {
        Self::new(name)
    }
}
