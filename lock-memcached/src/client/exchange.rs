//! Sending commands that name CAS numbers.
//!
//! A command that names a CAS number which was learned elsewhere is not sent as it is unless the connection is older than
//! that: the item is read first, over this connection, and the command is sent with its number of now if it is still the one
//! that is meant. So whatever the network holds back, nothing that belongs to somebody else is changed.

use lock_core::clock::BootInstant;

use super::cas::CasNumber;
use super::protocol::{Command, CommandAnswer};
use crate::error::Failure;

/// Answers to each of some commands, in order; or the commands, if none was sent and another connection may be tried.
pub(crate) type Answer = Result<Vec<CommandAnswer>, Vec<Command>>;

/// A connection that sends commands as they are.
pub(super) trait Sends {
    /// Whether a number means the same here.
    fn knows(&self, seen: CasNumber) -> bool;

    /// Sends commands, and answers each. Everything is over by `until`.
    fn send(&mut self, commands: Vec<Command>, until: BootInstant) -> impl Future<Output = Answer> + Send;
}

/// Sends commands, each in a way in which it cannot change what is not meant, and answers each. Everything is over by `until`.
pub(super) async fn exchange(connection: &mut impl Sends, commands: Vec<Command>, until: BootInstant) -> Answer {
    let is_from_elsewhere = |command: &Command| command.own().is_some_and(|(_, own)| !connection.knows(own.seen));
    if !commands.iter().any(is_from_elsewhere) {
        return connection.send(commands, until).await;
    }
    let asked: Vec<_> = commands.iter().map(is_from_elsewhere).collect();
    let reads = commands.iter().zip(&asked).filter(|(_, asked)| **asked);
    let reads = reads.filter_map(|(command, _)| command.own()).map(|(key, _)| Command::Read { key: key.clone() });
    let reads = reads.collect();
    let Ok(found) = connection.send(reads, until).await else { return Err(commands) };
    let (unsent, mut found) = (commands.clone(), found.into_iter());
    let (mut to_send, mut answers) = (Vec::new(), Vec::new());
    for (command, asked) in commands.into_iter().zip(asked) {
        let verified = if asked { verified(command, found.next()) } else { Ok(command) };
        match verified {
            Ok(command) => {
                to_send.push(command);
                answers.push(None);
            }
            Err(answer) => answers.push(Some(answer)),
        }
    }
    let sent =
        if to_send.is_empty() { Vec::new() } else { connection.send(to_send, until).await.map_err(|_| unsent)? };
    let mut sent = sent.into_iter();
    let missing = || CommandAnswer::Failed(Failure::senseless());
    Ok(answers.into_iter().map(|answer| answer.or_else(|| sent.next()).unwrap_or_else(missing)).collect())
}

/// A command about an item whose number was learned elsewhere, once the item was read here; or what it comes to at once.
fn verified(command: Command, found: Option<CommandAnswer>) -> Result<Command, CommandAnswer> {
    match found {
        Some(CommandAnswer::Item(item)) if command.own().is_some_and(|(_, own)| own.is(&item.value)) => {
            Ok(command.of(&item))
        }
        Some(CommandAnswer::Item(_) | CommandAnswer::Other | CommandAnswer::Done(_)) => Err(CommandAnswer::Other),
        Some(CommandAnswer::Missing) => Err(CommandAnswer::Missing),
        Some(CommandAnswer::Failed(failure)) => Err(CommandAnswer::Failed(failure)),
        None => Err(CommandAnswer::Failed(Failure::senseless())),
    }
}
