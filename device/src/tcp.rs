//! NVMe/TCP: from sockets to commands and back. NVMe/TCP Transport 1.1.
//!
//! - [`session`]: sans-IO protocol of one connection: PDUs in, commands with their data out; R2T, digests, violations.
//! - `hub`: where connections, the subsystem and the workers meet.
//! - `connection`: one socket: reads, time limits, orderly ends. `writer`: what goes out, and how with few copies.
//! - `media`: bytes of the block namespaces. `server`: accepting. [`places`]: which connections there are.
//!
//! One thread runs all of it. It waits for sockets only: samples are prepared by the workers, and files on a storage
//! device are read on a blocking thread.

mod connection;
pub(crate) mod hub;
pub(crate) mod media;
pub mod places;
pub(crate) mod server;
pub mod session;
mod writer;

use std::time::Duration;

/// MAXH2CDATA: most data in one H2CData.
pub const H2C_DATA_BYTES_MAX: u32 = 128 * 1024;
/// Most data in one C2HData.
pub const C2H_DATA_BYTES_MAX: usize = 512 * 1024;
/// Host data of one connection that has been asked for by R2T and not arrived; further commands wait for their R2T.
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;
/// Blocks of one connection that are in memory on their way to its host: 64 MiB over all connections.
pub const READ_BYTES_MAX: usize = 512 * 1024;
const _: () = assert!(READ_BYTES_MAX <= C2H_DATA_BYTES_MAX);
/// Bytes taken from a socket at once.
pub const RECEIVE_BYTES: usize = 32 * 1024;

/// From the first byte of a PDU to its last one. The longest ([`H2C_DATA_BYTES_MAX`]) take it at 4 KB/s.
pub const PDU_TIME: Duration = Duration::from_secs(30);
/// Longest time in which a host takes nothing of what it is sent.
pub const SEND_TIME: Duration = Duration::from_secs(60);
/// How long a closed connection is listened to for the peer's end, so that what was sent last is not cut off.
pub const LINGER_TIME: Duration = Duration::from_secs(2);
