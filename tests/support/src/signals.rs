//! Signals of the programs that tests start.

use nix::sys::signal::{SigHandler, Signal, signal};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes a program heed SIGINT and SIGHUP. Otherwise it would ignore them if the tests do: they ignore SIGINT in the
/// background of a script, and SIGHUP under nohup.
pub fn heed(command: &mut Command) -> &mut Command {
    let heed = || {
        for number in [Signal::SIGINT, Signal::SIGHUP] {
            // SAFETY: setting a signal's default action is safe between fork and exec.
            unsafe { signal(number, SigHandler::SigDfl) }?;
        }
        Ok(())
    };
    // SAFETY: the function calls only what may be called between fork and exec.
    unsafe { command.pre_exec(heed) }
}
