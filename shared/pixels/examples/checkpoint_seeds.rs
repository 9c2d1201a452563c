//! Writes the seeds of the fuzz targets `checkpoints` and `row_index`:
//! `cargo run -p ddlp-pixels --example checkpoint_seeds -- fuzz/seeds`.
//!
//! A test fails when the format of checkpoints or row indices, or a built-in image, has changed: then run
//! this again.

use std::path::PathBuf;

use ddlp_pixels::fuzz;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("a folder is missing")?);
    for (target, seeds) in [("checkpoints", fuzz::checkpoint_seeds()), ("row_index", fuzz::row_index_seeds())] {
        std::fs::create_dir_all(directory.join(target))?;
        for (name, seed) in seeds {
            std::fs::write(directory.join(target).join(name), seed)?;
        }
    }
    Ok(())
}
