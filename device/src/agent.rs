//! The running agent: takes settings, and serves until it is told to stop.
//!
//! - [`settings`]: command line and configuration file, with [`discovery`] and `hosts`. `gauges`: live numbers and
//!   sensors.
//! - `metrics`: the live numbers for Prometheus. `opening`: opens the dataset.
//! - `run`: the agent's life: start, serve, drain. `notify`: messages about it to a service manager.

pub mod discovery;
pub(crate) mod gauges;
mod hosts;
mod metrics;
mod notify;
pub(crate) mod opening;
mod run;
pub mod settings;

pub use run::{Agent, serve};
pub use settings::{ServeArgs, Settings};
