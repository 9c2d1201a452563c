//! Cargo within a program that cargo runs.

use std::process::Command;

/// Takes away from a command the variables with which cargo describes the package whose test it runs. Some build
/// scripts, such as `ring`'s, run again when these change. Cargo would then build everything that depends on them, here
/// and again afterwards.
pub fn without_package(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let described = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_NAME", "CARGO_BIN_"];
        if name.to_str().is_some_and(|name| described.iter().any(|start| name.starts_with(start))) {
            command.env_remove(name);
        }
    }
    command
}
