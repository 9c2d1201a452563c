//! Helpers for several test modules.

use crate::host::ConnectedHost;
use crate::job::LoadedProgram;
use ddlp_csd::abilities::AgreedDecoders;
use ddlp_csd::program::{CorruptPolicy, Program};
use ddlp_pixels::{Limits, Pipeline};
use std::sync::Arc;

/// Makes a host of its own for each number.
pub fn host(number: u8) -> Arc<ConnectedHost> {
    Arc::new(ConnectedHost { nqn: "nqn.2014-08.org.example:host".to_owned(), id: [number; 16] })
}

/// Makes a program of a built-in pipeline.
pub fn program(pipeline: &str, policy: CorruptPolicy) -> Program {
    let pipeline = Pipeline::named(pipeline).expect("a built-in pipeline");
    Program { pipeline, limits: Limits::default(), policy }
}

/// Makes a program of a built-in pipeline as a host loads it.
pub fn loaded(pipeline: &str, policy: CorruptPolicy) -> Arc<LoadedProgram> {
    Arc::new(LoadedProgram { program: program(pipeline, policy), agreed: AgreedDecoders::ALL, id: 7 })
}
