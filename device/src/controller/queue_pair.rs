//! One queue pair, as the connection that carries it.

/// Submission queue head that completions report when flow control is off.
const HEAD_RESERVED: u16 = 0xFFFF;

/// One queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QueuePair {
    /// Identifier of its controller.
    pub controller_id: u16,
    /// Queue identifier, 0 for the admin queue.
    pub id: u16,
    /// Entries of the submission queue.
    pub entries: u16,
    /// Whether submission queue flow control is on.
    pub flow_control: bool,
    /// Next entry to take.
    pub head: u16,
}

impl QueuePair {
    /// Moves the head on by one entry.
    pub fn advance(&mut self) {
        self.head = if self.head + 1 < self.entries { self.head + 1 } else { 0 };
    }

    /// Returns the head as completions report it.
    pub fn head_reported(&self) -> u16 {
        if self.flow_control { self.head } else { HEAD_RESERVED }
    }
}
