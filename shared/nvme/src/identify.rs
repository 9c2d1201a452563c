//! Identify data structures. Base 2.1, section "Identify command"; for a single command set, NVM 1.1 and CP.
//!
//! - [`controller`]: Identify Controller (CNS 01h) and its NVM part (CNS 06h).
//! - [`namespace`]: Identify Namespace of the NVM set (CNS 00h, 05h) and the independent one (CNS 08h). The CP one is
//!   in [`crate::cp`].
//! - [`list`]: namespace lists, identification descriptors and the I/O command set vector.

pub mod controller;
pub mod list;
pub mod namespace;

pub use controller::{IdentifyController, NvmIdentifyController};
pub use list::{Descriptor, DescriptorError, Descriptors, command_set_vector, namespace_list};
pub use namespace::{IdentifyNamespace, IndependentIdentifyNamespace, LbaFormat, NvmIdentifyNamespace};
