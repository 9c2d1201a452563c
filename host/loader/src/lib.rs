//! The loader for training code: one epoch, prepared from both ends.
//!
//! ```no_run
//! use ddlp_host::{DriveSpec, Loader, LocalDrive, Strategy};
//!
//! let loader = Loader::builder()
//!     .dataset_path("photos.ddlp")
//!     .batch_size(256)
//!     .epochs(2)
//!     .strategy(Strategy::Ordered)
//!     .drive(DriveSpec::Local(LocalDrive::default()))
//!     .build()?;
//! for batch in loader {
//!     let batch = batch?;
//!     println!("epoch {} batch {}: {} images", batch.epoch(), batch.index(), batch.len());
//! }
//! # Ok::<(), ddlp_host::LoaderError>(())
//! ```
//!
//! Batches have rows of u8 pixels. With [`build_f32`](LoaderBuilder::build_f32) or [`build_f16`](LoaderBuilder::build_f16) in place of `build`, they
//! have planes of normalised floats, which the loader's threads make.
//!
//! - `schedule`: which prong prepares which batch, and what is delivered next. No threads, no clock, no I/O.
//! - `engine`: what the threads share. `cpu`: the CPU prong. `drive`: a drive as a prong.
//! - `threads`: how cores are divided between the CPU and local drives.
//! - `order`: the order of samples. `announcing`: which of them the dataset is told of ahead. `plan`, `state`: replay and resume.
//! - `value`: pixels or floats. [`report`]: what happened. `digest`: to compare runs.
//!
//! It does not decode, resize or checksum anything itself: samples are prepared by `ddlp_csd::prepare`, on the host as in
//! the drive.
#![deny(unsafe_code)]

mod announcing;
mod batch;
mod buffers;
mod config;
mod corrupt;
mod cpu;
mod digest;
mod drive;
mod engine;
mod error;
mod loader;
mod memory_need;
mod order;
mod plan;
mod progress;
mod recorder;
pub mod report;
mod rows;
mod schedule;
mod setup;
mod state;
mod threads;
mod usage;
mod value;

pub use batch::Batch;
pub use config::LoaderBuilder;
pub use corrupt::MaxCorrupt;
pub use ddlp_csd::program::CorruptPolicy;
pub use ddlp_driver::Host;
pub use ddlp_pixels::{Normalize, Pipeline, Shape};
pub use digest::Digest;
pub use drive::{DriveSpec, LocalDrive, LocalResults, is_drive};
pub use error::LoaderError;
pub use half::f16;
pub use loader::{Loader, Stopper};
pub use order::LastBatch;
pub use plan::{PLAN_BYTES_MAX, Plan, PlanEpoch, PlanError, PlannedRun};
pub use progress::{Progress, ProgressHandle, ProngProgress};
pub use report::Report;
pub use schedule::{Strategy, UnknownStrategy};
pub use state::{Difference, LoaderState, StateError};
pub use value::{Float, Value};
