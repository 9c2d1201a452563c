//! Batches that end in the memory of an NVIDIA GPU.
//!
//! A batch travels as bytes, a quarter of its size as floats, on a stream of its own and straight from the memory that
//! a prong or a drive filled, while the consumer computes. When the consumer takes the batch, one kernel on the
//! consumer's own stream makes the elements in the consumer's own memory: it normalises, mixes and orders them. The
//! elements equal the ones that the loader's threads make, to the bit. Afterwards a batch is an ordinary tensor of the
//! consumer, and holds none of the loader's memory.
//!
//! ```no_run
//! use ddlp_cuda::{CudaTarget, Device, Output};
//! use ddlp_host::{DType, ImageLayout, Loader, LoaderOptions, Normalize};
//!
//! let device = Device::open("cuda:0".parse()?)?;
//! let options = LoaderOptions {
//!     dataset: Some("photos.ddlp".into()),
//!     dtype: DType::F16,
//!     layout: ImageLayout::Nchw,
//!     normalize: Some(Normalize::IMAGENET),
//!     ..LoaderOptions::default()
//! };
//! let loader = Loader::builder().options(options).deliver_prepared_to(CudaTarget::on(&device)).build()?;
//! // Training code implements `Consumer` for its own stream and memory, and calls `finish`.
//! let mut output = Output::new(&device)?;
//! for batch in loader {
//!     output.finish(&batch?)?;
//! }
//! output.wait()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - `driver`: the driver's library, loaded when a device is first opened; nothing of CUDA is needed to build this
//!   crate. `device`: an opened device. `queue`: streams and events. `pinned`: memory from which the device copies.
//! - `delivery`: the delivery target. `kernels`: the kernels. `finish`: hand-over to a consumer. `output`: a consumer
//!   of this crate's own. `finished`: batches that stay in memory of this crate's own, for DLPack.
//! - `meter`: how fast copies and kernels are.
//! - `error`: why something cannot be done, in a sentence that says what to do.
//!
//! One loader delivers to one device. A process that was forked after the loader was built cannot use it.
#![warn(missing_debug_implementations)]

mod delivery;
mod device;
mod driver;
mod error;
mod finish;
mod finished;
mod kernels;
mod meter;
mod output;
mod pinned;
mod queue;

pub use delivery::CudaTarget;
pub use device::{Device, DeviceName};
pub use error::{CudaError, DriverCode};
pub use finish::{Consumer, finish};
pub use finished::{FinishedBatch, LEGACY_STREAM};
pub use meter::{Meter, Work};
pub use output::Output;
