//! The agent from outside: as a subsystem by itself, over sockets, and as a program.

mod controller;
mod discovery;
mod doctor;
mod execute;
mod host;
mod hosts;
mod limits;
mod process;
mod replay;
mod transport;
