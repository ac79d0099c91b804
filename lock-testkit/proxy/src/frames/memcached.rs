//! memcached's frames: lines, some followed by a value and another end of line.
//!
//! Wire format: <https://github.com/memcached/memcached/blob/master/doc/protocol.txt>.

use super::{Garbled, decimal, line_end};

/// Returns the length of the first request in the buffer, if all of it is there.
pub(super) fn request_length(buffer: &[u8]) -> Result<Option<usize>, Garbled> {
    let Some(end) = line_end(buffer, 0) else { return Ok(None) };
    let words = words(&buffer[..end - 2]);
    let value = match words.first().copied().unwrap_or_default() {
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => Some(number(words.get(4))?),
        // Before its flags the length may have an S in front, as early versions wanted it.
        b"ms" => Some(number(words.get(2).map(|word| word.strip_prefix(b"S").unwrap_or(word)).as_ref())?),
        _ => None,
    };
    Ok(whole(buffer, with_value(end, value)))
}

/// Returns the length of the first reply in the buffer, if all of it is there.
pub(super) fn reply_length(buffer: &[u8]) -> Result<Option<usize>, Garbled> {
    let mut at = 0;
    loop {
        let Some(end) = line_end(buffer, at) else { return Ok(None) };
        let words = words(&buffer[at..end - 2]);
        match words.first().copied().unwrap_or_default() {
            // Until END.
            b"VALUE" => at = with_value(end, Some(number(words.get(3))?)),
            b"STAT" => at = end,
            b"VA" => return Ok(whole(buffer, with_value(end, Some(number(words.get(1))?)))),
            _ => return Ok(whole(buffer, end)),
        }
    }
}

/// Whether this request is always answered.
pub(super) fn has_reply(request: &[u8]) -> bool {
    let line = line_end(request, 0).map_or(request, |end| &request[..end - 2]);
    let words = words(line);
    let is_meta = matches!(words.first(), Some([b'm', _]));
    let quiet = is_meta && words.iter().skip(2).any(|word| *word == b"q");
    !quiet && words.last() != Some(&&b"noreply"[..]) && words.first() != Some(&&b"quit"[..])
}

fn with_value(end: usize, value: Option<usize>) -> usize {
    end + value.map_or(0, |length| length + 2)
}

fn whole(buffer: &[u8], length: usize) -> Option<usize> {
    (length <= buffer.len()).then_some(length)
}

fn words(line: &[u8]) -> Vec<&[u8]> {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect()
}

fn number(word: Option<&&[u8]>) -> Result<usize, Garbled> {
    decimal(word.ok_or(Garbled)?)
}
