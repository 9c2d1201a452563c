//! Helpers for several test modules.

use ddlp_csd::program::{CorruptPolicy, Program};
use ddlp_pixels::{Limits, Pipeline};

/// Makes a program of a built-in pipeline.
pub fn program(pipeline: &str, policy: CorruptPolicy) -> Program {
    let pipeline = Pipeline::named(pipeline).expect("a built-in pipeline");
    Program { pipeline, limits: Limits::default(), policy }
}
