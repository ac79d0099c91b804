//! Redis' frames.
//!
//! Wire format: <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

use super::{Garbled, decimal, line_end};

/// Returns the length of the first value in the buffer, if all of it is there.
pub(super) fn length(buffer: &[u8]) -> Result<Option<usize>, Garbled> {
    let (mut at, mut values) = (0, 1);
    while values > 0 {
        let Some(end) = line_end(buffer, at) else { return Ok(None) };
        values -= 1;
        let count = || number(&buffer[at + 1..end - 2]);
        match buffer[at] {
            b'$' | b'!' | b'=' => at = end + count()?.map_or(0, |length| length + 2),
            b'*' | b'~' | b'>' => (at, values) = (end, values + count()?.unwrap_or(0)),
            b'%' => (at, values) = (end, values + 2 * count()?.unwrap_or(0)),
            // Attributes stand before the value that they are about.
            b'|' => (at, values) = (end, values + 2 * count()?.unwrap_or(0) + 1),
            // One line: a status, an error, a number, or an inline command.
            _ => at = end,
        }
    }
    Ok((at <= buffer.len()).then_some(at))
}

/// A length; `None` if there is nothing (-1).
fn number(text: &[u8]) -> Result<Option<usize>, Garbled> {
    if text == b"-1" { Ok(None) } else { decimal(text).map(Some) }
}

/// Returns the number of replies that this request gets: a subscription's are one for each channel.
pub(super) fn replies_to(request: &[u8]) -> usize {
    match first_element(request) {
        Some(word) if is_subscription(word) => {
            let channels = line_end(request, 0).and_then(|end| number(&request[1..end - 2]).ok().flatten());
            channels.unwrap_or(1).saturating_sub(1).max(1)
        }
        _ => 1,
    }
}

/// Whether this answers a request: messages do not, and of RESP 3's pushes only what is about subscriptions does.
pub(super) fn is_reply(value: &[u8]) -> bool {
    match (value.first(), first_element(value)) {
        (Some(b'*' | b'>'), Some(b"message" | b"pmessage" | b"smessage")) => false,
        (Some(b'>'), word) => word.is_some_and(is_subscription),
        _ => true,
    }
}

fn is_subscription(word: &[u8]) -> bool {
    let word = word.to_ascii_lowercase();
    matches!(&*word, b"subscribe" | b"psubscribe" | b"ssubscribe" | b"unsubscribe" | b"punsubscribe" | b"sunsubscribe")
}

/// The first element of an array of strings.
fn first_element(array: &[u8]) -> Option<&[u8]> {
    if !matches!(array.first(), Some(b'*' | b'>')) {
        return None;
    }
    let at = line_end(array, 0)?;
    let end = line_end(array, at)?;
    let length = number(array[at..end - 2].strip_prefix(b"$")?).ok().flatten()?;
    array.get(end..end + length)
}
