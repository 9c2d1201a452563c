//! Tells the program which revision it is built from, where the source is a checkout.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) {
        let is_changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some();
        println!("cargo::rustc-env=DDLP_REVISION={commit}{}", if is_changed { ", changed" } else { "" });
    }
    for part in ["Cargo.lock", "device", "host", "shared"] {
        println!("cargo::rerun-if-changed=../../{part}");
    }
    // The log of HEAD grows with every commit and checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_string();
    (!text.is_empty()).then_some(text)
}
