//! The states that a model begins with: the lock is held, and all others wait, in each order.

use super::client::{Client, Waiter};
use super::server::Server;
use super::wire::Link;
use super::{ReplyHandOver, State, TTL};

impl ReplyHandOver {
    /// One state for each order in which the waiters may have come, behind the holder.
    pub(super) fn beginnings(&self) -> Vec<State> {
        let mut left = self.waiters.to_vec();
        // The first client's first one holds the lock.
        left[0] -= 1;
        let mut orders = Vec::new();
        interleave(&mut left, &mut Vec::new(), &mut orders);
        orders.iter().map(|order| self.begins(order)).collect()
    }

    /// The beginning with this order: for each place, the client whose waiter has it.
    fn begins(&self, order: &[usize]) -> State {
        let tickets = |client: usize| {
            let places = order.iter().zip(1..).filter(move |(other, _)| **other == client).map(|(_, ticket)| ticket);
            // The holder has had a place before all of them.
            (client == 0).then_some(0).into_iter().chain(places).collect::<Vec<u8>>()
        };
        let holds_until = |client| (client == 0).then_some(TTL);
        let clients: Vec<_> = (0..self.waiters.len())
            .zip(0..)
            .map(|(client, number)| Client::new(number, &tickets(client), holds_until(client)))
            .collect();
        let mut queue: Vec<_> = clients.iter().flat_map(|client| &client.waiters).map(Waiter::place).collect();
        queue.sort_unstable_by_key(|(ticket, _)| *ticket);
        let (_, holder) = queue.remove(0);
        let Self { cuts, crashes, drops, gone, losses, .. } = *self;
        let (server, links) = (Server::new(clients.len(), holder, queue), vec![Link::default(); clients.len()]);
        State { server, clients, links, cuts, crashes, drops, gone, losses }
    }
}

/// Adds each order of so many waiters of each client behind those that have a place.
fn interleave(left: &mut [u8], order: &mut Vec<usize>, orders: &mut Vec<Vec<usize>>) {
    if left.iter().all(|left| *left == 0) {
        return orders.push(order.clone());
    }
    for client in 0..left.len() {
        if left[client] > 0 {
            left[client] -= 1;
            order.push(client);
            interleave(left, order, orders);
            order.pop();
            left[client] += 1;
        }
    }
}
