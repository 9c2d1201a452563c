//! The numbers of an association's I/O queues, and its queues without a user.

use super::exchange::Exchange;
use super::link::lock;
use std::sync::Mutex;

/// I/O queues that were made. Unused queues are kept for the next user, because a controller may take the end of a
/// single connection for the end of the association.
#[derive(Debug, Default)]
pub(super) struct QueuePool(Mutex<MadeQueues>);

#[derive(Debug, Default)]
struct MadeQueues {
    made: u16,
    parked: Vec<(u16, Exchange)>,
}

impl QueuePool {
    /// Takes back an I/O queue that its user no longer needs.
    pub(super) fn park(&self, queue_id: u16, exchange: Exchange) {
        if exchange.link().is_alive() {
            lock(&self.0).parked.push((queue_id, exchange));
        }
    }

    /// Returns a parked queue with room for `commands`.
    pub(super) fn unpark(&self, commands: usize) -> Option<(u16, Exchange)> {
        let mut pool = lock(&self.0);
        let index = pool.parked.iter().position(|(_, exchange)| exchange.free() >= commands)?;
        Some(pool.parked.swap_remove(index))
    }

    /// Returns the number of a queue that has not been made yet; `None` if there are `most` queues.
    pub(super) fn next_queue_id(&self, most: u16) -> Option<u16> {
        let mut pool = lock(&self.0);
        if pool.made >= most {
            return None;
        }
        pool.made += 1;
        Some(pool.made)
    }
}
