//! What a program sees of the stand-in, through the driver's functions.

mod assumptions;
mod copies;
mod driver;
mod faults;
mod kernels;
mod launches;
mod pipeline;
