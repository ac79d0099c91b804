//! The slot of a key.

use std::sync::LazyLock;

/// The number of slots of a cluster.
pub(crate) const SLOTS: u16 = 16384;

/// The slot of a key: CRC16 of its hash tag, which is what stands between the first `{` and the next `}` if that is not
/// empty, or of the whole key.
pub(crate) fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|byte| *byte == b'}').filter(|length| *length > 0).map(|length| &rest[..length])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC16 of the polynomial x¹⁶ + x¹² + x⁵ + 1, from 0, most significant bit first (XMODEM).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc: u16, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
            },
        )
    })
}

/// The first number whose digits have this slot. A slot is less than [`SLOTS`].
pub(super) fn number_of(slot: u16) -> u32 {
    FIRST[usize::from(slot)]
}

/// Finds out the number of each slot, unless that was done before: it takes a moment.
pub(super) fn find_numbers() {
    LazyLock::force(&FIRST);
}

/// Among so many numbers there is one of every slot.
const NUMBERS: u32 = 200_000;

/// The first number of each slot. Found out once, when it is first needed: it takes some 100,000 looks.
static FIRST: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut first = vec![u32::MAX; usize::from(SLOTS)];
    let mut missing = first.len();
    for number in 0..NUMBERS {
        let of_slot = &mut first[usize::from(slot(number.to_string().as_bytes()))];
        if *of_slot == u32::MAX {
            (*of_slot, missing) = (number, missing - 1);
        }
        if missing == 0 {
            break;
        }
    }
    first
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_specification_comes_out() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
    }

    #[test]
    fn only_the_first_tag_that_is_not_empty_counts() {
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
    }

    #[test]
    fn every_slot_has_a_number() {
        for its in 0..SLOTS {
            assert_eq!(slot(number_of(its).to_string().as_bytes()), its);
        }
    }
}
