//! Tests of the driver against a scripted peer, over real sockets.

mod commands;
mod faults;
mod peer;
