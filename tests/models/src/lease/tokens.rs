//! Tokens by their order: only that is ever compared, and so the states are finitely many.

use super::wire::Reply;
use super::{Link, State};

/// Replaces every token by its rank among all that are known anywhere.
pub(super) fn by_order(state: &mut State) {
    let mut known = Vec::new();
    each(state, |token| known.push(*token));
    known.push(0);
    known.sort_unstable();
    known.dedup();
    // Every token was found above; one that was not would stay as it is.
    each(state, |token| {
        if let Ok(rank) = known.binary_search(token) {
            *token = u8::try_from(rank).unwrap_or(u8::MAX);
        }
    });
}

fn each(state: &mut State, mut see: impl FnMut(&mut u8)) {
    see(&mut state.server.last_token);
    if let Some(grant) = &mut state.server.lock {
        see(&mut grant.token);
    }
    state.clients.iter_mut().for_each(|client| client.each_token(&mut see));
    state.links.iter_mut().flat_map(of_link).for_each(see);
}

fn of_link(link: &mut Link) -> impl Iterator<Item = &mut u8> {
    let replies = link.replies.iter_mut().flat_map(|reply| match reply {
        Reply::Granted { token, .. } | Reply::Queued { last: token, .. } => [Some(token), None],
        Reply::Heartbeat { last, grant, .. } => [Some(last), grant.as_mut().map(|(token, _)| token)],
        _ => [None, None],
    });
    let replies = replies.flatten();
    replies.chain(link.pushes.iter_mut().map(|push| &mut push.token))
}
