//! The driver against a scripted peer, over real sockets.

mod commands;
mod discovery;
mod faults;
mod peer;
