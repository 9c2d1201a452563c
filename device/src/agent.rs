//! The running agent: settings in, a drive that serves until it is told to stop.
//!
//! - [`settings`]: command line and configuration file, with [`discovery`] and `hosts`. `gauges`: live numbers and
//!   sensors.
//! - `run`: the agent's life: start, serve, drain. `notify`: telling a service manager about it.

pub mod discovery;
pub(crate) mod gauges;
mod hosts;
mod notify;
mod run;
pub mod settings;

pub use run::{Agent, serve};
pub use settings::{ServeArgs, Settings};
