//! A stand-in for NVIDIA's driver: a library `libcuda.so.1` that computes on the CPU.
//!
//! It simulates a GPU, as the agent simulates a drive. Tests run the product's own code on it: the same calls, and the
//! kernels' own sources, compiled for the CPU. It is at least as strict as the real driver, and it is slow.
//!
//! - Work that is queued runs when a seeded scheduler chooses its stream: some while other functions are called, the
//!   rest when somebody waits. A copy reads its source when it runs, maybe in pieces. So a buffer that is used again
//!   too early gives other bytes.
//! - Memory that a copy reads must stay as it is until the program has waited for the copy, or asked for it.
//! - Two operations of different streams that access the same device memory need an event between them, or a host that
//!   waits. Where it is missing, the bytes may be wrong, and a sentence says so with every seed.
//! - Device addresses cannot be touched by the host, and none is used twice. New memory is full of bytes that nobody
//!   wrote, as is shared memory at the beginning of each block.
//! - Every address, length, handle and argument is checked. A mistake has the real driver's result, and a sentence
//!   (`fakeCudaDefect`). Errors of execution stay: all later calls in the context fail.
//! - A block's threads run one after the other, in a seeded order, each until the next barrier.
//! - Settings and faults come from the environment or from a test ([`StandIn::set`]).
//!
//! What it cannot find: races on the device that need threads at the same time, and anything about speed.
//!
//! Modules: `api` (the driver's functions), `session` (what each of them does first), `driver` (state), `scheduler`,
//! `stream`, `order` and `sources` (queued work), `memory`, `module`, `ptx` and `twin` (kernels), `settings` and
//! `statistics`, and [`StandIn`], which tests use. The folder `twin` has the C++ code that runs kernels.
//!
//! Limits: one device per primary context, no other contexts; no pools, graphs or textures; only kernels whose sources
//! it was built with.

mod api;
mod code;
mod driver;
mod memory;
mod module;
mod order;
mod ptx;
mod random;
mod scheduler;
mod session;
mod settings;
mod sources;
mod stand_in;
mod statistics;
mod stream;
mod twin;

pub use stand_in::{StandIn, folder};
pub use statistics::Statistics;
