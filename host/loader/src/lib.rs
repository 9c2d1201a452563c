//! The loader for training code: one epoch, prepared from both ends.
//!
//! ```no_run
//! use ddlp_host::{DriveSpec, Loader, LoaderOptions, LocalDrive};
//!
//! let loader = Loader::open(LoaderOptions {
//!     dataset: Some("photos.ddlp".into()),
//!     batch_size: 256,
//!     epochs: 2,
//!     drives: Some(vec![DriveSpec::Local(LocalDrive::default())]),
//!     ..LoaderOptions::default()
//! })?;
//! for batch in loader {
//!     let batch = batch?;
//!     println!("epoch {} batch {}: {} images", batch.epoch(), batch.index(), batch.len());
//! }
//! # Ok::<(), ddlp_host::LoaderError>(())
//! ```
//!
//! A batch consists of named fields: `image`, and `label` (int64). Images are uint8 in NHWC by default. The options
//! [`dtype`](LoaderOptions::dtype), [`layout`](LoaderOptions::layout) and [`normalize`](LoaderOptions::normalize) ask
//! for floats instead, which the loader's threads compute:
//!
//! ```no_run
//! use ddlp_host::{DType, ImageLayout, Loader, LoaderOptions, Normalize};
//!
//! let loader = Loader::open(LoaderOptions {
//!     dataset: Some("photos.ddlp".into()),
//!     dtype: DType::F32,
//!     layout: ImageLayout::Nchw,
//!     normalize: Some(Normalize::IMAGENET),
//!     ..LoaderOptions::default()
//! })?;
//! for batch in loader {
//!     let batch = batch?;
//!     let (images, labels): (&[f32], &[i64]) = (batch.field("image")?.as_slice()?, batch.labels()?);
//!     assert_eq!(images.len(), labels.len() * 3 * 224 * 224);
//! }
//! # Ok::<(), ddlp_host::LoaderError>(())
//! ```
//!
//! - `schedule`: decides which prong prepares which batch, and which batch is delivered next. No threads, no clock, no
//!   I/O.
//! - `engine`: the state that the threads share. `cpu`: the CPU prong. `drive`: a drive as a prong.
//! - `delivery`: the memory in which the consumer gets batches.
//! - `loader`: the iterator. `opening`: a dataset from files, from a store or server, or from the drive that alone
//!   holds it.
//! - `options`: the options as plain data. `builder`: collects them, and what is not plain data. `setup`: from options
//!   to a run.
//! - `forking`: what a forked process needs. `threads`: divides the cores between the CPU and local drives.
//! - `order`: the order of samples. [`splits`]: parts of a dataset, in a file. `announcing`: read-ahead hints to the
//!   dataset. `plan`, `state`: replay and resume.
//! - `batch`: a batch and its fields. `image_output`: pixels or floats. `mixing`: MixUp and CutMix. `finishing`: what a
//!   delivery target does that makes the elements of images itself.
//! - [`report`]: the figures of a run. `metrics`: the figures for Prometheus. `digest`: digests to compare runs.
//!   `headspace`: what training would gain if loading were free.
//!
//! The crate itself decodes and resizes nothing: `ddlp_csd::prepare` prepares samples, on the host as in the drive.
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

mod announcing;
mod batch;
mod bucket;
mod builder;
mod classes;
mod corrupt;
mod cpu;
mod delivery;
mod digest;
mod drive;
mod engine;
mod error;
mod fetch;
mod fidelity;
mod field_error;
mod finishing;
mod forking;
mod headspace;
mod image_output;
mod loader;
mod max_corrupt;
mod memory_need;
mod metrics;
mod mixing;
mod moved;
mod opening;
pub mod options;
mod order;
mod plan;
mod progress;
mod recorder;
pub mod report;
mod rows;
mod schedule;
mod setup;
mod signal;
pub mod splits;
mod state;
mod threads;
mod usage;

pub use batch::{Batch, FieldView, SharedField};
pub use builder::LoaderBuilder;
pub use ddlp_csd::program::{CorruptPolicy, ProgramError};
pub use ddlp_csd::slot::{Outcome, SampleRecord};
/// Everything that [`Dataset`] leads to.
pub use ddlp_dataset as dataset;
pub use ddlp_dataset::{
    CacheUse, Dataset, FieldTable, FieldsError, Kind, OpenError, OpenOptions, TableOptions, Unavailable,
};
pub use ddlp_driver::host::{Host, HostError, HostIdentity};
pub use ddlp_driver::sysfs::{ControllerState, KernelController, KernelNamespace};
/// Everything that [`Pipeline`] leads to, such as its operations.
pub use ddlp_pixels as pixels;
pub use ddlp_pixels::{
    AbilityNumber, CorruptReason, DType, Element, Fidelity, Field, FieldKind, ImageLayout, Limits, Normalize,
    NormalizeError, Pipeline, PipelineError,
};
pub use ddlp_stores::CacheOptions;
pub use delivery::{
    BUFFER_ALIGNMENT, BatchBuffer, BatchMemory, BufferNeed, BufferReturned, DeliveryError, DeliveryTarget,
    FIELD_ALIGNMENT, Filled, MakeReady,
};
pub use digest::Digest;
pub use drive::{DriveSpec, LocalDrive, LocalResults, is_drive};
pub use error::{DriveError, LoaderError, LoaderErrorKind};
pub use fetch::FetchOrder;
pub use fidelity::{Fidelities, FidelityOfEpoch};
pub use field_error::FieldError;
pub use finishing::Finishing;
pub use forking::{Forking, Home};
pub use half::{bf16, f16};
pub use headspace::{Bound, DriveStage, Headspace, Spread, Stages};
pub use loader::{Loader, Stopper, Waiting};
pub use max_corrupt::MaxCorrupt;
pub use mixing::BatchMix;
pub use moved::MovedSamples;
pub use opening::{drive_address, open_dataset, open_dataset_with, open_pack, remote_address};
pub use options::{BUFFERS_MAX, LoaderOptions};
pub use order::{Choice, ChoiceRecord, Indices, IndicesOfEpoch, LastBatch, Portion, Weights, split, split_evenly};
pub use plan::{PLAN_BYTES_MAX, Plan, PlanError};
pub use progress::{Progress, ProgressHandle, ProngProgress};
pub use report::Report;
pub use schedule::{PlanEpoch, Strategy, UnknownStrategy};
pub use setup::{note_of_classes, note_of_rejected};
pub use state::{Difference, LoaderState, StateError};

/// The Rust code of the documentation, which has to compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Documentation;
