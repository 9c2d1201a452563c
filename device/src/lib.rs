//! The drive's agent: an NVMe/TCP controller whose compute namespace preprocesses images.
//!
//! - [`controller`]: the NVMe subsystem, sans I/O. [`tcp`]: the network under it.
//! - [`workers`]: the pool that decodes and augments. [`slots`]: memory for finished batches. [`job`]: one batch's
//!   work, from the controller to the workers and back. [`host`]: who asked for it.
//! - [`identity`]: the agent's identity, kept over restarts. [`agent`]: settings, sensors, and the agent's life.
//!   `inherit`: descriptors from a parent process. [`replace`]: files that are written as a whole. [`doctor`]: whether
//!   a board can serve, and how fast.
//!
//! Data flows one way: `tcp` → `controller` → `workers` → `slots`; completions come back as events. `controller` knows
//! neither sockets nor pixels, `tcp` knows no pixels, `workers` know no commands. Unsafe code is in `slots::memory` and
//! `inherit` only.
#![deny(unsafe_code)]

pub mod agent;
pub mod controller;
pub mod doctor;
pub mod host;
pub mod identity;
mod inherit;
pub mod job;
mod lock;
mod log_limit;
pub mod replace;
pub mod slots;
pub mod tcp;
pub mod workers;

#[cfg(test)]
mod test_support;
