//! Real loaders against real agents. A test that measures or counts its own process is a program of its own beside this
//! one.

mod absence;
mod alone;
mod asked;
mod batches;
mod bench;
mod contract;
mod corrupt;
mod digests;
mod discovery;
mod drives;
mod endings;
mod faults;
mod fetching;
mod first_version;
mod headspace;
mod hosts;
mod limits;
mod local;
mod mixes;
mod mixing;
mod positions;
mod reading;
mod stalls;
mod versions;
