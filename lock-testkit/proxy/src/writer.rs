//! The writing side of the other end of a connection: it delivers frames as their faults say.

use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::WriteHalf;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::active::Active;
use super::ending::Ending;
use super::fault::Toxic;
use super::parcel::Parcel;

/// Delivers parcels in order, each when it is due.
pub(super) async fn write(mut parcels: UnboundedReceiver<Parcel>, to: &mut WriteHalf<'_>) -> Result<(), Ending> {
    let mut free_at = Instant::now();
    while let Some(Parcel { bytes, due, hits }) = parcels.recv().await {
        tokio::time::sleep_until(due).await;
        for hold in hits.iter().filter(|fault| matches!(fault.toxic(), Toxic::Hold | Toxic::Stall)) {
            hold.healed().await;
        }
        let Some(bytes) = bytes else { return Ok(to.shutdown().await?) };
        deliver(&bytes, &hits, to, &mut free_at).await?;
    }
    Ok(())
}

/// Delivers a frame; a slow link is free for the next portion at an instant that is moved on, and slow no more once it is healed.
async fn deliver(
    bytes: &[u8],
    hits: &[Arc<Active>],
    to: &mut WriteHalf<'_>,
    free_at: &mut Instant,
) -> Result<(), Ending> {
    if let Some(cut) = hits.iter().find(|fault| fault.toxic().ends_connections()) {
        return Err(end(cut, bytes, to).await?);
    }
    let copies = if hits.iter().any(|fault| *fault.toxic() == Toxic::Duplicate) { 2 } else { 1 };
    let slow = hits.iter().find_map(|fault| Some((fault, fault.toxic().pace()?)));
    for _ in 0..copies {
        let mut rest = bytes;
        if let Some((fault, (portion, each_byte))) = slow {
            while !rest.is_empty() && !fault.is_healed() {
                let next;
                (next, rest) = rest.split_at(portion.min(rest.len()));
                to.write_all(next).await?;
                *free_at = (*free_at).max(Instant::now()) + each_byte * u32::try_from(next.len()).unwrap_or(u32::MAX);
                tokio::select! {
                    () = tokio::time::sleep_until(*free_at) => {}
                    () = fault.healed() => *free_at = Instant::now(),
                }
            }
        }
        to.write_all(rest).await?;
    }
    Ok(())
}

/// Ends the connection, with a part of the frame before it if the fault says so.
async fn end(cut: &Active, frame: &[u8], to: &mut WriteHalf<'_>) -> Result<Ending, Ending> {
    let ending = match *cut.toxic() {
        Toxic::CutAfter { bytes } => {
            to.write_all(&frame[..bytes.min(frame.len().saturating_sub(1))]).await?;
            // A reset could overtake what was just written.
            Ending::Fin
        }
        Toxic::Fin => Ending::Fin,
        _ => Ending::Reset,
    };
    cut.treated(frame.len());
    cut.stopped_connection();
    Ok(ending)
}
