//! Items as the server describes them.

use std::time::{SystemTime, UNIX_EPOCH};

/// An item, as `lru_crawler metadump` and `stats cachedump` tell of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Item {
    /// The item's key.
    pub key: String,
    /// The end of the item, in whole seconds since 1970 by the server's clock; `None` if it has none.
    pub ends_at: Option<u64>,
}

impl Item {
    /// Out of `key=a%20b exp=1795247659 la=1795247659 cas=1 ...`.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let field = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        Some(Self { key: unescaped(field("key")?)?, ends_at: field("exp")?.parse().ok() })
    }

    /// Out of `ITEM a [19 b; 1795247659 s]`, where 0 is no end.
    pub(super) fn parse_cold(line: &str) -> Option<Self> {
        let (key, rest) = line.strip_prefix("ITEM ")?.split_once(" [")?;
        let end = rest.strip_suffix(" s]")?.rsplit_once("; ")?.1.parse().ok()?;
        Some(Self { key: key.to_owned(), ends_at: (end > 0).then_some(end) })
    }

    /// Whether it has not ended: the server forgets lazily.
    pub(super) fn is_alive(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.ends_at.is_none_or(|end| end > now)
    }
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read() {
        let item = Item::parse("key=a%3Ab%2Fc exp=-1 la=1795247659 cas=4 fetch=yes cls=1 size=80").unwrap();
        assert_eq!(item, Item { key: "a:b/c".to_owned(), ends_at: None });
        assert!(item.is_alive());
        assert!(!Item::parse("key=a exp=17 la=1").unwrap().is_alive());
        assert_eq!(Item::parse("END"), None);
        let cold = Item::parse_cold("ITEM a:b%2Fc [19 b; 1795247659 s]").unwrap();
        assert_eq!(cold, Item { key: "a:b%2Fc".to_owned(), ends_at: Some(1_795_247_659) });
        assert_eq!(Item::parse_cold("ITEM a [0 b; 0 s]").unwrap().ends_at, None);
        assert_eq!(Item::parse_cold("END"), None);
    }

    #[test]
    fn no_line_breaks_the_parser() {
        let samples = ["key=a%3Ab%2Fc exp=-1 la=1795247659 cas=4 size=80", "key=%c3%bc exp=17", "key=%4", "END"];
        lock_testkit::fuzz::texts("descriptions of items", &samples, |line| {
            let Some(item) = Item::parse(line) else { return };
            assert!(item.key.len() <= line.len() && (item.ends_at.is_some() || item.is_alive()));
            if !line.contains('%') {
                assert!(line.contains(&format!("key={}", item.key)));
            }
        });
        lock_testkit::fuzz::texts("descriptions of cold items", &["ITEM a:b [19 b; 1795247659 s]"], |line| {
            let Some(item) = Item::parse_cold(line) else { return };
            assert!(line.starts_with(&format!("ITEM {} [", item.key)));
        });
    }
}
