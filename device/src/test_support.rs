//! Helpers for several test modules.

use crate::job::LoadedProgram;
use ddlp_csd::abilities::AgreedDecoders;
use ddlp_csd::program::{CorruptPolicy, Program};
use ddlp_pixels::{Limits, Pipeline};
use std::sync::Arc;

/// Makes a program of a built-in pipeline.
pub fn program(pipeline: &str, policy: CorruptPolicy) -> Program {
    let pipeline = Pipeline::named(pipeline).expect("a built-in pipeline");
    Program { pipeline, limits: Limits::default(), policy }
}

/// Makes a program of a built-in pipeline as a host loads it.
pub fn loaded(pipeline: &str, policy: CorruptPolicy) -> Arc<LoadedProgram> {
    Arc::new(LoadedProgram { program: program(pipeline, policy), agreed: AgreedDecoders::ALL, id: 7 })
}
