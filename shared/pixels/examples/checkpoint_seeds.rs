//! Writes the seeds of the fuzz target `checkpoints`:
//! `cargo run -p ddlp-pixels --example checkpoint_seeds -- fuzz/seeds/checkpoints`.
//!
//! A test fails when the format of checkpoints or an image of the fingerprint has changed: then run this again.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("a folder is missing")?);
    for (name, seed) in ddlp_pixels::fuzz::checkpoint_seeds() {
        std::fs::write(directory.join(name), seed)?;
    }
    Ok(())
}
