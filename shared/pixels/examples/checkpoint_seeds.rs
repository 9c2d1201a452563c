//! Writes what the fuzz target of checkpoints begins with: `cargo run -p ddlp-pixels --example checkpoint_seeds -- fuzz/seeds/checkpoints`.
//!
//! They are to be written again when the form of checkpoints or an image of the fingerprint changes: a test says so.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("a directory is missing")?);
    for (name, seed) in ddlp_pixels::fuzz::checkpoint_seeds() {
        std::fs::write(directory.join(name), seed)?;
    }
    Ok(())
}
