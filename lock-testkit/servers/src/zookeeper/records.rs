//! A server's records about a node.

use std::io;

use super::jute::{JuteReader, Writer};

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeKind {
    /// Stays until it is deleted.
    Persistent,
    /// As before, and the server appends a number to its name.
    PersistentSequential,
    /// Ends with the session.
    Ephemeral,
    /// As before, and the server appends a number to its name.
    EphemeralSequential,
    /// The server deletes it some time after its last child is gone.
    Container,
}

impl NodeKind {
    pub(super) fn flags(self) -> i32 {
        match self {
            Self::Persistent => 0,
            Self::Ephemeral => 1,
            Self::PersistentSequential => 2,
            Self::EphemeralSequential => 3,
            Self::Container => 4,
        }
    }
}

/// The figures of a node, as far as a test may ask for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// The transaction that made it.
    pub czxid: i64,
    /// The transaction that changed its data last.
    pub mzxid: i64,
    /// The number of changes of its data.
    pub version: i32,
    /// The number of changes of its children.
    pub cversion: i32,
    /// The id of the session that it ends with; 0 unless it is ephemeral.
    pub ephemeral_owner: i64,
    /// The number of its children.
    pub num_children: i32,
}

impl Stat {
    pub(super) fn read(reader: &mut JuteReader<'_>) -> io::Result<Self> {
        let (czxid, mzxid) = (reader.long()?, reader.long()?);
        let (_ctime, _mtime) = (reader.long()?, reader.long()?);
        let (version, cversion, _aversion) = (reader.int()?, reader.int()?, reader.int()?);
        let ephemeral_owner = reader.long()?;
        let (_length, num_children, _pzxid) = (reader.int()?, reader.int()?, reader.long()?);
        Ok(Self { czxid, mzxid, version, cversion, ephemeral_owner, num_children })
    }
}

/// One line of a node's access control list: who, and what he may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    /// The sum of read (1), write (2), create (4), delete (8) and admin (16).
    pub permissions: i32,
    /// The way in which the identity is proven, such as `world`, `digest`, `sasl`.
    pub scheme: String,
    /// The identity, such as `anyone`.
    pub id: String,
}

impl Acl {
    /// Returns the list by which anybody may do everything.
    #[must_use]
    pub fn open() -> Self {
        Self { permissions: 31, scheme: "world".to_owned(), id: "anyone".to_owned() }
    }

    pub(super) fn write(&self, writer: Writer) -> Writer {
        writer.int(self.permissions).text(&self.scheme).text(&self.id)
    }

    pub(super) fn read(reader: &mut JuteReader<'_>) -> io::Result<Self> {
        Ok(Self { permissions: reader.int()?, scheme: reader.text()?, id: reader.text()? })
    }
}
