//! ZooKeeper's frames: a length, and so many bytes. The first one of each side is the session's greeting; all others begin
//! with the number of their request.

use super::{Garbled, MOST, Speaker, Ticket};

/// The xid of a message that the server sends by itself.
const NEWS: i32 = -1;
/// No request has this number; it stands for the greeting.
const GREETING: Ticket = Ticket::Number(i32::MIN);

/// Returns the length of the first frame in the buffer, if all of it is there.
pub(super) fn length(buffer: &[u8]) -> Result<Option<usize>, Garbled> {
    let Some(length) = int(buffer, 0) else { return Ok(None) };
    let length = usize::try_from(length).ok().filter(|length| *length <= MOST).ok_or(Garbled)?;
    Ok((buffer.len() >= 4 + length).then_some(4 + length))
}

/// The reply that a request gets, or that a frame of the server is.
pub(super) fn ticket(frame: &[u8], speaker: Speaker, first: bool) -> Option<Ticket> {
    if first {
        return Some(GREETING);
    }
    let number = int(frame, 4)?;
    (speaker == Speaker::Client || number != NEWS).then_some(Ticket::Number(number))
}

/// A reply with this error code and nothing else.
pub(super) fn refusal(request: &[u8], code: &str) -> Option<Vec<u8>> {
    const NO_TRANSACTION: i64 = 0;
    let (number, code) = (int(request, 4)?, code.parse::<i32>().ok()?);
    let mut frame = 16_i32.to_be_bytes().to_vec();
    frame.extend(number.to_be_bytes());
    frame.extend(NO_TRANSACTION.to_be_bytes());
    frame.extend(code.to_be_bytes());
    Some(frame)
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..at + 4)?.try_into().ok().map(i32::from_be_bytes)
}
