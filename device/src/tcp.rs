//! NVMe/TCP: from sockets to commands and back. NVMe/TCP Transport 1.1.
//!
//! - [`session`]: sans-IO protocol of one connection: PDUs in, commands with their data out; R2T, digests, violations.
//! - `hub`: connects connections, subsystem and workers.
//! - `connection`: one socket: reads, time limits, orderly ends. `writer`: sending, with few copies.
//! - `media`: bytes of the block namespaces. `server`: accepting connections. [`places`]: limits on connections.
//!
//! One thread runs the whole transport, and waits for sockets only: workers prepare samples, and blocking threads read
//! files on storage. Reads of a store are futures.

mod connection;
pub(crate) mod hub;
pub(crate) mod media;
pub mod places;
pub(crate) mod server;
pub mod session;
mod writer;

use std::time::Duration;

/// Most data in one H2CData (MAXH2CDATA).
pub const H2C_DATA_BYTES_MAX: u32 = 128 * 1024;
/// Most data in one C2HData.
pub const C2H_DATA_BYTES_MAX: usize = 512 * 1024;
/// Most data of one connection that R2Ts have asked for and that has not arrived. Further commands wait for their R2T.
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;
/// Most bytes of blocks that one connection has in memory on their way to its host: 64 MiB over all connections.
pub const READ_BYTES_MAX: usize = 512 * 1024;
const _: () = assert!(READ_BYTES_MAX <= C2H_DATA_BYTES_MAX);
/// Bytes taken from a socket at once.
pub const RECEIVE_BYTES: usize = 32 * 1024;

/// Longest time from the first byte of a PDU to its last one. The longest PDU ([`H2C_DATA_BYTES_MAX`]) arrives in time
/// at 4.4 KB/s.
pub const PDU_TIME: Duration = Duration::from_secs(30);
/// Longest time for which a host may take nothing of what the agent sends.
pub const SEND_TIME: Duration = Duration::from_secs(60);
/// Longest time from the decision to end a connection to its reset. Until then the agent sends what is queued, and
/// waits for the peer to close too, so that the peer gets the last bytes.
pub const CLOSE_TIME: Duration = Duration::from_secs(2);
