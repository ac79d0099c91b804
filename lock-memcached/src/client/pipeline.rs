//! The commands that are under way on one connection, in their order: the client crate has the words, what goes out and comes in
//! is kept here.
//!
//! Decided without a socket or a clock. Requests of several callers may be under way at once; each is answered as a whole, when
//! the last of its commands is.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use lock_core::clock::BootInstant;

use super::cas::CasNumber;
use super::exchange::Answer;
use super::protocol::{Command, CommandAnswer, Reply};
use crate::error::Failure;

/// The longest line of a reply, which has a key of 250 bytes at most.
const LONGEST_LINE: usize = 4096;

/// Least room for what comes in.
const ROOM: usize = 4096;

/// Most bytes that are kept of what is over.
const MOST_KEPT: usize = 64 << 10;

/// The commands that are under way on one connection; each request goes by a `T`, which is given back with its answers.
#[derive(Debug)]
pub(crate) struct Pipeline<T> {
    /// The connection's number.
    number: u64,
    /// The instant of its first answer.
    answered: Option<BootInstant>,
    /// The next command's mark.
    mark: u64,
    outgoing: Vec<u8>,
    /// Number of outgoing bytes that are written.
    written: usize,
    /// Number of bytes that were outgoing before those.
    written_before: u64,
    incoming: Vec<u8>,
    /// The part of it that was received and not read yet.
    received: std::ops::Range<usize>,
    /// The reply whose value has not come in yet.
    begun: Option<(Reply, usize)>,
    under_way: VecDeque<Request<T>>,
    done: Vec<(T, Answer)>,
    is_in_doubt: bool,
}

/// A request.
#[derive(Debug)]
struct Request<T> {
    asked: BootInstant,
    until: BootInstant,
    /// Its first command's mark.
    first: u64,
    commands: Vec<Command>,
    /// The beginning of the first command among all bytes that ever go out.
    begin: u64,
    /// The end of each command among them.
    ends: Vec<u64>,
    /// Number of commands that were replied to.
    replied: usize,
    answers: Vec<CommandAnswer>,
    /// Nothing once it was answered: its replies only have to be read.
    from: Option<T>,
}

impl<T> Pipeline<T> {
    pub(crate) fn new(number: u64) -> Self {
        Self {
            number,
            answered: None,
            mark: 0,
            outgoing: Vec::new(),
            written: 0,
            written_before: 0,
            incoming: Vec::new(),
            received: 0..0,
            begun: None,
            under_way: VecDeque::new(),
            done: Vec::new(),
            is_in_doubt: false,
        }
    }

    /// For requests of others, once nothing is under way.
    pub(crate) fn reused<U>(self) -> Pipeline<U> {
        let Self { number, answered, mark, outgoing, written, written_before, incoming, is_in_doubt, .. } = self;
        let from = Pipeline::new(number);
        Pipeline { answered, mark, outgoing, written, written_before, incoming, is_in_doubt, ..from }
    }

    /// The connection's number: later ones have higher ones.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The instant of the connection's first answer.
    pub(crate) fn answered(&self) -> Option<BootInstant> {
        self.answered
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Number of requests that are under way.
    pub(crate) fn len(&self) -> usize {
        self.under_way.len()
    }

    /// Whether something went wrong: what comes next goes over another connection.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// Whether nothing went wrong, nothing is under way, and nothing is left of what was received.
    pub(crate) fn is_in_order(&self) -> bool {
        !self.is_in_doubt && self.is_idle() && self.received.is_empty() && self.begun.is_none()
    }

    /// Puts a request behind the others. If one of its commands cannot be put into words, nothing is sent of any, and it is
    /// answered so.
    pub(crate) fn send(&mut self, commands: Vec<Command>, asked: BootInstant, until: BootInstant, from: T) {
        let (first, begin) = (self.mark, self.outgoing.len());
        let mut ends = Vec::with_capacity(commands.len());
        for (mark, command) in (first..).zip(&commands) {
            let encoded = command.words(mark).and_then(|words| words.encode_into(&mut self.outgoing));
            if let Err(error) = encoded {
                self.outgoing.truncate(begin);
                let failure = Failure::unsendable(error);
                let answers = commands.iter().map(|_| CommandAnswer::Failed(failure.clone())).collect();
                self.done.push((from, Ok(answers)));
                return;
            }
            ends.push(self.written_before + self.outgoing.len() as u64);
        }
        self.mark += ends.len() as u64;
        let answers = Vec::with_capacity(commands.len());
        let (begin, from) = (self.written_before + begin as u64, Some(from));
        self.under_way.push_back(Request { asked, until, first, commands, begin, ends, replied: 0, answers, from });
    }

    /// The bytes that are to be written yet.
    pub(crate) fn outgoing(&self) -> &[u8] {
        &self.outgoing[self.written..]
    }

    /// So much of that was written.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written == self.outgoing.len() || self.written >= MOST_KEPT {
            self.outgoing.drain(..self.written);
            self.outgoing.shrink_to(MOST_KEPT);
            self.written_before += self.written as u64;
            self.written = 0;
        }
    }

    /// Room for what comes in.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.received.is_empty() {
            self.received = 0..0;
        }
        if self.incoming.len() - self.received.end < ROOM {
            self.incoming.copy_within(self.received.clone(), 0);
            self.received = 0..self.received.len();
            // It grows with what was received: a length that was only claimed takes no memory.
            let enough = (self.received.len() * 2).max(2 * ROOM);
            self.incoming.resize(enough, 0);
        }
        &mut self.incoming[self.received.end..]
    }

    /// So much of the room was filled.
    ///
    /// # Errors
    /// If it makes no sense, or nobody has asked for it: nothing that follows on the connection can be told apart any more.
    pub(crate) fn received(&mut self, bytes: usize, now: BootInstant) -> io::Result<()> {
        self.received.end += bytes;
        while !self.received.is_empty() {
            let Some((reply, value)) = self.next_reply()? else { break };
            self.replied(reply, value, now)?;
        }
        if self.received.is_empty() {
            self.incoming.truncate(MOST_KEPT);
            self.incoming.shrink_to(MOST_KEPT);
            self.received = 0..0;
        }
        Ok(())
    }

    /// The next reply with its value, if all of it is there.
    fn next_reply(&mut self) -> io::Result<Option<(Reply, Vec<u8>)>> {
        let (reply, follows) = match self.begun.take() {
            Some(begun) => begun,
            None => {
                let there = &self.incoming[self.received.clone()];
                let Some(end) = there.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') else {
                    return if there.len() < LONGEST_LINE { Ok(None) } else { Err(io::ErrorKind::InvalidData.into()) };
                };
                let line = &there[..end];
                let reply = Reply::parse(line.strip_suffix(b"\r").unwrap_or(line))?;
                self.received.start += end + 1;
                match reply.follows() {
                    Some(bytes) => (reply, bytes),
                    None => return Ok(Some((reply, Vec::new()))),
                }
            }
        };
        // Its end is a line's end.
        if self.received.len() < follows + 2 {
            self.begun = Some((reply, follows));
            return Ok(None);
        }
        let value = self.incoming[self.received.start..][..follows].to_vec();
        self.received.start += follows + 2;
        Ok(Some((reply, value)))
    }

    /// The reply to the first command that has none yet.
    fn replied(&mut self, reply: Reply, value: Vec<u8>, now: BootInstant) -> io::Result<()> {
        let request = self.under_way.front_mut().ok_or(io::ErrorKind::InvalidData)?;
        let command = request.commands.get(request.replied).ok_or(io::ErrorKind::InvalidData)?;
        if !reply.is_to(request.first + request.replied as u64) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.answered.get_or_insert(now);
        let (over, asked) = (self.number, request.asked);
        let answer = reply.means(command, value, |cas| CasNumber { cas, over, asked });
        self.is_in_doubt |= answer.failure().is_some();
        request.answers.push(answer);
        request.replied += 1;
        if request.replied == request.commands.len() {
            let request = self.under_way.pop_front();
            let done = request.and_then(|request| Some((request.from?, Ok(request.answers))));
            self.done.extend(done);
        }
        Ok(())
    }

    /// The requests that are over, with an answer to each of their commands, or the commands if nothing of them was written.
    pub(crate) fn done(&mut self) -> impl Iterator<Item = (T, Answer)> {
        self.done.drain(..)
    }

    /// Whether the time of the first request is over, if somebody waits for it.
    pub(crate) fn is_late(&self, now: BootInstant) -> bool {
        self.under_way.front().is_some_and(|request| request.is_late(now))
    }

    /// Requests whose time is over are told so; their replies may come yet. Nothing more is written then, for whomever: what was
    /// told to have failed must not be carried out. Those of which nothing was written are given back.
    pub(crate) fn tell_late(&mut self, now: BootInstant) {
        if !self.under_way.iter().any(|request| request.is_late(now)) {
            return;
        }
        self.is_in_doubt = true;
        self.outgoing.truncate(self.written);
        let written = self.written();
        let late = Arc::new(io::Error::from(io::ErrorKind::TimedOut));
        let sent = self.under_way.partition_point(|request| request.begin < written);
        for request in self.under_way.split_off(sent) {
            self.done.extend(request.from.map(|from| (from, Err(request.commands))));
        }
        for request in &mut self.under_way {
            if request.is_late(now) || request.ends.last().is_some_and(|end| *end > written) {
                self.done.extend(request.failed(&late, written));
            }
        }
    }

    /// The connection failed: every request that is under way is told so.
    pub(crate) fn fail(&mut self, error: io::Error) {
        self.is_in_doubt = true;
        let (written, error) = (self.written(), Arc::new(error));
        for mut request in std::mem::take(&mut self.under_way) {
            self.done.extend(request.failed(&error, written));
        }
    }

    /// Whether somebody waits for an answer.
    pub(crate) fn is_awaited(&self) -> bool {
        self.under_way.iter().any(|request| request.from.is_some())
    }

    /// Number of bytes that were ever written.
    fn written(&self) -> u64 {
        self.written_before + self.written as u64
    }
}

impl<T> Request<T> {
    fn is_late(&self, now: BootInstant) -> bool {
        self.until <= now && self.from.is_some()
    }

    /// Ends the request: what was not answered may have been carried out if it was written in full.
    fn failed(&mut self, error: &Arc<io::Error>, written: u64) -> Option<(T, Answer)> {
        let from = self.from.take()?;
        let mut answers = std::mem::take(&mut self.answers);
        for (command, end) in self.commands.iter().zip(&self.ends).skip(answers.len()) {
            let sent = *end <= written && command.changes();
            answers.push(CommandAnswer::Failed(Failure::of_shared(error, sent)));
        }
        Some((from, Ok(answers)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(ms))
    }

    fn claim() -> Command {
        Command::Claim { key: "a".into(), value: 7, seconds: 9 }
    }

    fn look() -> Command {
        Command::Look { key: "b".into() }
    }

    /// A pipeline with a claim, by 1 s, and a claim and a look, by 2 s.
    fn pipeline() -> Pipeline<u8> {
        let mut pipeline = Pipeline::new(3);
        pipeline.send(vec![claim()], at(0), at(1000), 1);
        pipeline.send(vec![claim(), look()], at(1), at(2000), 2);
        pipeline
    }

    fn receive(pipeline: &mut Pipeline<u8>, bytes: &[u8]) -> io::Result<()> {
        pipeline.room()[..bytes.len()].copy_from_slice(bytes);
        pipeline.received(bytes.len(), at(5))
    }

    fn done(pipeline: &mut Pipeline<u8>) -> Vec<(u8, String)> {
        let letter = |answer: &CommandAnswer| match answer {
            CommandAnswer::Done(seen) => format!("done {}", seen.cas),
            CommandAnswer::Item(item) => format!("item {}", String::from_utf8_lossy(&item.value)),
            CommandAnswer::Missing => "missing".to_owned(),
            CommandAnswer::Other => "other".to_owned(),
            CommandAnswer::Failed(failure) if failure.is_unknown => "unknown".to_owned(),
            CommandAnswer::Failed(_) => "failed".to_owned(),
        };
        let told = |answers: Vec<_>| answers.iter().map(letter).collect::<Vec<_>>().join(", ");
        pipeline.done().map(|(from, answer)| (from, answer.map_or("unsent".to_owned(), told))).collect()
    }

    #[test]
    fn a_request_is_answered_as_a_whole_however_its_replies_come_in() {
        let replies = b"HD c8 O0\r\nHD c9 O1\r\nVA 5 c10 t3 O2\r\nhello\r\n";
        for size in 1..replies.len() {
            let mut pipeline = pipeline();
            let mut told = Vec::new();
            for piece in replies.chunks(size) {
                receive(&mut pipeline, piece).unwrap();
                told.extend(done(&mut pipeline));
            }
            assert_eq!(told, [(1, "done 8".to_owned()), (2, "done 9, item hello".to_owned())]);
            assert!(pipeline.is_idle() && pipeline.is_in_order());
            assert_eq!(pipeline.answered(), Some(at(5)));
        }
    }

    #[test]
    fn what_fails_is_unknown_as_far_as_it_was_written_in_full_and_changes_something() {
        let mut pipeline = pipeline();
        let all = pipeline.outgoing().len();
        pipeline.wrote(all);
        receive(&mut pipeline, b"HD c8 O0\r\nHD c9 O1\r\n").unwrap();
        pipeline.send(vec![claim(), claim()], at(6), at(2000), 3);
        let first = pipeline.outgoing().len() / 2;
        pipeline.wrote(first + 1);
        pipeline.fail(io::ErrorKind::ConnectionReset.into());
        let told = [(1, "done 8"), (2, "done 9, failed"), (3, "unknown, failed")];
        assert_eq!(done(&mut pipeline), told.map(|(from, told)| (from, told.to_owned())));
        assert!(pipeline.is_idle() && pipeline.is_in_doubt());
    }

    #[test]
    fn whoever_is_told_that_its_time_is_over_does_not_put_the_others_out_of_step() {
        let mut pipeline = pipeline();
        let all = pipeline.outgoing().len();
        pipeline.wrote(all);
        pipeline.tell_late(at(999));
        assert!(!pipeline.is_in_doubt());
        pipeline.tell_late(at(1000));
        assert_eq!(done(&mut pipeline), [(1, "unknown".to_owned())]);
        assert!(pipeline.is_in_doubt() && pipeline.is_awaited());
        receive(&mut pipeline, b"HD c8 O0\r\nHD c9 O1\r\nEN O2\r\n").unwrap();
        assert_eq!(done(&mut pipeline), [(2, "done 9, missing".to_owned())]);
        assert!(pipeline.is_idle() && !pipeline.is_awaited());
    }

    #[test]
    fn nothing_is_written_any_more_once_somebody_was_told_that_its_time_is_over() {
        let mut pipeline = pipeline();
        let first = pipeline.outgoing().len();
        pipeline.send(vec![claim(), claim()], at(2), at(3000), 3);
        let third = pipeline.outgoing().len();
        pipeline.send(vec![claim()], at(3), at(3000), 4);
        // The first of the third request's commands in full, and a part of its second one.
        pipeline.wrote(first + (third - first) / 2 + 1);
        assert!(pipeline.is_late(at(1000)) && !pipeline.is_late(at(999)));
        pipeline.tell_late(at(1000));
        assert_eq!(pipeline.outgoing(), b"");
        let told = [(4, "unsent"), (1, "unknown"), (3, "unknown, failed")];
        assert_eq!(done(&mut pipeline), told.map(|(from, told)| (from, told.to_owned())));
        receive(&mut pipeline, b"HD c8 O0\r\nHD c9 O1\r\nEN O2\r\nHD c9 O3\r\n").unwrap();
        assert_eq!(done(&mut pipeline), [(2, "done 9, missing".to_owned())]);
    }

    #[test]
    fn what_was_written_is_not_kept() {
        let mut pipeline = Pipeline::new(1);
        for number in 0..10_000 {
            pipeline.send(vec![claim()], at(0), at(1000), number);
            // A byte is always left.
            pipeline.wrote(pipeline.outgoing().len() - 1);
        }
        assert!(pipeline.outgoing.capacity() <= 2 * MOST_KEPT, "{}", pipeline.outgoing.capacity());
    }

    #[test]
    fn a_reply_to_something_else_or_to_nobody_makes_no_sense() {
        for wrong in ["HD c8 O1\r\n", "EN\r\n", "what?\r\n", "VA x c8 O0\r\n"] {
            assert!(receive(&mut pipeline(), wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(receive(&mut Pipeline::new(1), b"HD c8 O0\r\n").is_err());
        assert!(receive(&mut pipeline(), &[b'x'; LONGEST_LINE]).is_err(), "a line without an end");
    }

    #[test]
    fn a_refusal_is_told_and_has_what_comes_next_go_over_another_connection() {
        let mut pipeline = pipeline();
        receive(&mut pipeline, b"SERVER_ERROR out of memory\r\nHD c9 O1\r\nEN O2\r\n").unwrap();
        let told = [(1, "failed"), (2, "done 9, missing")];
        assert_eq!(done(&mut pipeline), told.map(|(from, told)| (from, told.to_owned())));
        assert!(pipeline.is_in_doubt());
    }

    #[test]
    fn what_cannot_be_put_into_words_leaves_the_others_alone() {
        let mut pipeline = pipeline();
        let outgoing = pipeline.outgoing().to_vec();
        let endless = Command::Look { key: "x".repeat(300).into() };
        pipeline.send(vec![claim(), endless], at(2), at(2000), 3);
        assert_eq!(done(&mut pipeline), [(3, "failed, failed".to_owned())]);
        assert_eq!(pipeline.outgoing(), outgoing);
    }

    #[test]
    fn a_long_value_comes_in_and_its_room_is_given_back() {
        let mut pipeline = Pipeline::new(1);
        pipeline.send(vec![look()], at(0), at(1000), 1);
        let value = "x".repeat(1 << 20);
        let reply = format!("VA {} c8 t3 O0\r\n{value}\r\n", value.len());
        for piece in reply.as_bytes().chunks(1000) {
            receive(&mut pipeline, piece).unwrap();
        }
        assert_eq!(done(&mut pipeline), [(1, format!("item {value}"))]);
        assert!(pipeline.incoming.capacity() <= MOST_KEPT);
    }
}
