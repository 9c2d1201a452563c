//! Helpers of the tests across crates: photographs, agents as processes, and a proxy that injects faults.
//!
//! - [`contract`]: checks that all drivers behave alike.
//! - [`photos`]: an ImageFolder of JPEG files of every kind, and its pack.
//! - [`finishing`]: a delivery target that finishes batches itself.
//! - [`gpu`]: the stand-in for NVIDIA's driver, and programs that find it.
//! - [`hooked`]: a dataset with hooks at its reads, and a gate at which the CPU waits for drives.
//! - [`agent`]: `ddlp-device` as a child process that a test can kill, stop and start again.
//! - [`proxy`]: a relay between loader and agent that follows a fault plan, PDU by PDU.
//! - [`stand_in`]: programs that a loader starts in place of its own agent.
//! - [`redis`], [`nginx`], [`cassandra`]: real servers. [`redis_relay`]: a relay between loader and Redis that follows
//!   a fault plan. [`certificates`]: certificates for servers with TLS.
//! - [`runs`]: a run of the loader, reduced to the results that tests compare.
//! - [`web`]: a web server that serves a file by ranges and follows a fault plan.

pub mod agent;
pub mod cassandra;
pub mod certificates;
pub mod contract;
pub mod finishing;
pub mod gpu;
pub mod hooked;
pub mod nginx;
pub mod photos;
pub mod proxy;
pub mod redis;
pub mod redis_relay;
pub mod runs;
pub mod stand_in;
pub mod web;
