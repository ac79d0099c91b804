//! The reading side of one end of a connection: its bytes are cut into frames, and judged.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::tcp::ReadHalf;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::active::Active;
use super::connection::Connection;
use super::ending::Ending;
use super::fault::{Direction, Toxic};
use super::frames::{Frame, Frames, Speaker, Ticket};
use super::parcel::Parcel;
use super::replies::ReplyFate;

#[derive(Debug)]
pub(super) struct FrameReader<'a> {
    connection: &'a Connection,
    way: Direction,
    frames: Frames,
    onward: UnboundedSender<Parcel>,
    /// The writer to which it sends refusals.
    back: Option<UnboundedSender<Parcel>>,
    /// The time at which the last parcel is due: the next one comes behind it.
    due: Instant,
}

impl<'a> FrameReader<'a> {
    pub(super) fn of_requests(
        connection: &'a Connection,
        onward: UnboundedSender<Parcel>,
        back: UnboundedSender<Parcel>,
    ) -> Self {
        Self::new(connection, Direction::ToServer, Speaker::Client, onward, Some(back))
    }

    pub(super) fn of_replies(connection: &'a Connection, onward: UnboundedSender<Parcel>) -> Self {
        Self::new(connection, Direction::ToClient, Speaker::Server, onward, None)
    }

    fn new(
        connection: &'a Connection,
        way: Direction,
        speaker: Speaker,
        onward: UnboundedSender<Parcel>,
        back: Option<UnboundedSender<Parcel>>,
    ) -> Self {
        let frames = Frames::new(connection.link.protocol, speaker);
        Self { connection, way, frames, onward, back, due: Instant::now() }
    }

    pub(super) async fn read(mut self, from: &mut ReadHalf<'_>) -> Result<(), Ending> {
        let mut buffer = vec![0; 1 << 16];
        let mut changes = self.connection.link.changes();
        loop {
            self.stall(from).await?;
            let length = tokio::select! {
                biased;
                // A stall may have begun.
                _ = changes.changed() => continue,
                length = from.read(&mut buffer) => length?,
            };
            self.frames.feed(&buffer[..length]);
            while let Some(frame) = self.frames.next() {
                self.judge(frame, from).await?;
            }
            if length == 0 {
                return self.end(from).await;
            }
        }
    }

    /// The faults that hit so many bytes.
    fn hits(&self, bytes: usize) -> Vec<Arc<Active>> {
        let hit = |fault: &Arc<Active>| fault.hits(self.way, self.connection.number, bytes);
        self.connection.link.faults().into_iter().filter(hit).collect()
    }

    /// While there is a stall, nothing is read.
    async fn stall(&self, from: &ReadHalf<'_>) -> Result<(), Ending> {
        while let Some(stall) = self.hits(0).into_iter().find(|fault| *fault.toxic() == Toxic::Stall) {
            tokio::select! {
                ready = from.readable() => {
                    ready?;
                    stall.stopped_connection();
                    stall.healed().await;
                }
                () = stall.healed() => {}
            }
        }
        Ok(())
    }

    async fn judge(&mut self, frame: Frame, from: &mut ReadHalf<'_>) -> Result<(), Ending> {
        let mut hits = self.hits(frame.bytes.len());
        if self.way == Direction::ToServer {
            self.connection.link.count_request();
            let (at_once, later) = self.triggered_by(&frame);
            hits.extend(at_once);
            self.expect(&frame, &hits, &later);
        } else {
            for ticket in &frame.tickets {
                match self.connection.replies.take(*ticket) {
                    ReplyFate::Passes(triggered) => hits.extend(triggered),
                    ReplyFate::Swallowed => return Ok(()),
                    // Said by us, never taken for the server's.
                    ReplyFate::Said(_) => {}
                }
            }
            if frame.tickets.is_empty() {
                let faults = self.connection.link.faults().into_iter();
                hits.extend(faults.filter(|fault| fault.is_triggered_by_push(&frame)));
            }
        }
        for fault in &hits {
            if fault.toxic().lasts() {
                fault.strike(self.connection.number);
            }
            if !fault.toxic().ends_connections() {
                fault.treated(frame.bytes.len());
            }
        }
        if let Some(blackhole) = hits.iter().find(|fault| *fault.toxic() == Toxic::Blackhole) {
            return swallow(from, blackhole).await;
        }
        let is_answered = self.answer(&frame, &hits);
        if !is_answered && !is_swallowed(&hits) {
            self.pass(Some(frame.bytes), hits);
        }
        self.say_what_is_due();
        Ok(())
    }

    /// The faults that this request triggers: those that hit itself, and those that hit its reply.
    fn triggered_by(&self, request: &Frame) -> (Vec<Arc<Active>>, Vec<Arc<Active>>) {
        let faults = self.connection.link.faults().into_iter();
        let triggered = faults.filter(|fault| fault.is_triggered_by(request));
        triggered.partition(|fault| !fault.is_about_replies())
    }

    /// Notes the replies that this request will get, and what becomes of them.
    fn expect(&self, request: &Frame, hits: &[Arc<Active>], later: &[Arc<Active>]) {
        if is_swallowed(hits) || hits.iter().any(|fault| self.refusal(request, fault).is_some()) {
            return;
        }
        let twice = hits.iter().any(|fault| *fault.toxic() == Toxic::Duplicate);
        for ticket in &request.tickets {
            self.connection.replies.expect(*ticket, ReplyFate::Passes(later.to_vec()));
        }
        for ticket in request.tickets.iter().filter(|_| twice) {
            self.connection.replies.expect(*ticket, ReplyFate::Swallowed);
        }
    }

    /// Returns the refusal to send instead of the server's reply, if this fault answers the request.
    fn refusal(&self, request: &Frame, fault: &Active) -> Option<Vec<u8>> {
        match fault.toxic() {
            Toxic::Answer { text } => self.connection.link.protocol.refusal(request, text),
            _ => None,
        }
    }

    /// Whether this request is answered here, and goes no further.
    fn answer(&self, request: &Frame, hits: &[Arc<Active>]) -> bool {
        let refusal = hits.iter().find_map(|fault| self.refusal(request, fault));
        let ticket = request.tickets.first().copied().unwrap_or(Ticket::InTurn);
        refusal.map(|refusal| self.connection.replies.expect(ticket, ReplyFate::Said(refusal))).is_some()
    }

    /// Says the refusals whose turn it is.
    fn say_what_is_due(&self) {
        let to_client = self.back.as_ref().unwrap_or(&self.onward);
        for bytes in self.connection.replies.due() {
            // A client that is gone needs no answer.
            let _ = to_client.send(Parcel { bytes: Some(bytes), due: Instant::now(), hits: Vec::new() });
        }
    }

    fn pass(&mut self, bytes: Option<Vec<u8>>, hits: Vec<Arc<Active>>) {
        let delay: Duration = hits.iter().map(|fault| fault.delay()).sum();
        self.due = self.due.max(Instant::now() + delay);
        // The writer is gone only when the connection is.
        let _ = self.onward.send(Parcel { bytes, due: self.due, hits });
    }

    /// The end of what is sent goes the same way as what was sent.
    async fn end(mut self, from: &mut ReadHalf<'_>) -> Result<(), Ending> {
        let hits: Vec<_> = self.hits(0).into_iter().filter(|fault| fault.toxic().lasts()).collect();
        if let Some(blackhole) = hits.iter().find(|fault| *fault.toxic() == Toxic::Blackhole) {
            return swallow(from, blackhole).await;
        }
        if let Some(rest) = self.frames.rest() {
            self.pass(Some(rest.bytes), hits.clone());
        }
        self.pass(None, hits);
        Ok(())
    }
}

/// Whether this one frame disappears.
fn is_swallowed(hits: &[Arc<Active>]) -> bool {
    hits.iter().any(|fault| *fault.toxic() == Toxic::Swallow)
}

/// Lets everything disappear until it is healed. What comes then could not be understood any more.
async fn swallow(from: &mut ReadHalf<'_>, blackhole: &Active) -> Result<(), Ending> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        tokio::select! {
            () = blackhole.healed() => {
                blackhole.stopped_connection();
                return Err(Ending::Reset);
            }
            length = from.read(&mut buffer) => match length {
                Ok(length @ 1..) => blackhole.treated(length),
                // Nobody hears of this end either.
                Ok(0) | Err(_) => {
                    blackhole.healed().await;
                    return Err(Ending::Reset);
                }
            }
        }
    }
}
