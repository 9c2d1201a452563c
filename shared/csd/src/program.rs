//! The preprocessing program: what both prongs do to every sample.
//!
//! [`DriveProgram`] is a program as the host loads it into a drive. States and plans identify a program by
//! [`Program::state_bytes`], which have not changed since the first version.

mod drive;

pub use drive::{DriveProgram, program_id};

use ddlp_dataset::ability_name;
use ddlp_pixels::{AbilityNumber, Limits, Pipeline};
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Largest program in bytes, framing included.
pub const PROGRAM_BYTES_MAX: usize = 64 * 1024;

const MAGIC: [u8; 4] = *b"DDPG";
/// Version of the bytes by which states and plans identify a program.
const STATE_VERSION: u32 = 1;

/// What happens to a corrupt sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CorruptPolicy {
    /// The run ends with an error that names the sample.
    #[default]
    Fail,
    /// The sample is left out of its batch and counted.
    Skip,
    /// The next sample in the dataset's order that is not corrupt replaces it, with its own label, and the corrupt
    /// sample is counted.
    Replace,
}

/// Everything that a prong must know to prepare a batch, apart from the samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Geometry and augmentation; determines the shape of a row.
    pub pipeline: Pipeline,
    /// Bounds on what one decode may cost.
    pub limits: Limits,
    /// What happens to a corrupt sample.
    pub policy: CorruptPolicy,
}

/// Why bytes are not a program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// Shorter than its framing, or the body is not as long as the framing says.
    #[error("program of {actual} bytes, {expected} expected")]
    Length {
        /// Bytes according to the framing.
        expected: usize,
        /// Bytes present.
        actual: usize,
    },
    /// Longer than [`PROGRAM_BYTES_MAX`].
    #[error("program of {0} bytes, {PROGRAM_BYTES_MAX} allowed")]
    TooLong(usize),
    /// Does not start with the program's magic.
    #[error("not a preprocessing program (magic {0:02x?})")]
    Magic([u8; 4]),
    /// Another version of the format.
    #[error(
        "the host is of {} version of DDLP: its programs have version {found}, not {known}",
        if found < known { "an older" } else { "a newer" }
    )]
    Version {
        /// The program's version.
        found: u32,
        /// The version that this program reads.
        known: u32,
    },
    /// The body's checksum does not match.
    #[error("program body crc32c {actual:#010x}, {expected:#010x} expected")]
    Checksum {
        /// Checksum in the framing.
        expected: u32,
        /// Checksum of the bytes.
        actual: u32,
    },
    /// The body does not decode.
    #[error("program body does not decode")]
    Body(#[source] bincode::error::DecodeError),
    /// The lists of abilities are invalid.
    #[error("the program's lists of abilities: {0}")]
    Lists(&'static str),
    /// The program needs an ability that this version does not know.
    #[error("the program needs {}, which this ddlp-device lacks: update ddlp-device", ability_name(*.0))]
    Unknown(AbilityNumber),
    /// The pipeline needs an ability that the program does not list.
    #[error("the program's pipeline needs {}, which its list of needed abilities lacks", ability_name(*.0))]
    Undeclared(AbilityNumber),
    /// Bytes remain behind the decoded body.
    #[error("{0} bytes behind the program body")]
    Trailing(usize),
    /// The program does not encode.
    #[error("program does not encode")]
    Encode(#[source] bincode::error::EncodeError),
    /// The pipeline is inconsistent.
    #[error("program's pipeline cannot run")]
    Pipeline(#[source] ddlp_pixels::PipelineError),
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ProgramFrame {
    magic: [u8; 4],
    version: U32,
    body_bytes: U32,
    body_crc: U32,
}
const FRAME_BYTES: usize = 16;
const _: () = assert!(size_of::<ProgramFrame>() == FRAME_BYTES);

fn codec() -> impl bincode::config::Config {
    bincode::config::standard().with_little_endian().with_fixed_int_encoding().with_limit::<PROGRAM_BYTES_MAX>()
}

impl Program {
    /// Returns the bytes by which states and plans identify the program: those that drives of the first version loaded.
    pub fn state_bytes(&self) -> Result<Vec<u8>, ProgramError> {
        framed(STATE_VERSION, &self.encode()?)
    }

    fn encode(&self) -> Result<Vec<u8>, ProgramError> {
        bincode::serde::encode_to_vec(self, codec()).map_err(ProgramError::Encode)
    }

    /// Decodes and validates a program.
    fn decode(bytes: &[u8]) -> Result<Self, ProgramError> {
        let (program, used): (Self, usize) =
            bincode::serde::decode_from_slice(bytes, codec()).map_err(ProgramError::Body)?;
        if used != bytes.len() {
            return Err(ProgramError::Trailing(bytes.len() - used));
        }
        program.pipeline.validate().map_err(ProgramError::Pipeline)?;
        Ok(program)
    }
}

/// Puts magic, version, length and checksum in front of a body.
fn framed(version: u32, body: &[u8]) -> Result<Vec<u8>, ProgramError> {
    let total = FRAME_BYTES + body.len();
    if total > PROGRAM_BYTES_MAX {
        return Err(ProgramError::TooLong(total));
    }
    let frame = ProgramFrame {
        magic: MAGIC,
        version: version.into(),
        body_bytes: (body.len() as u32).into(),
        body_crc: crc32c::crc32c(body).into(),
    };
    Ok([frame.as_bytes(), body].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state of a run that began with the first version names its program by the hash of these bytes.
    #[test]
    fn states_identify_a_program_by_the_bytes_of_the_first_version() {
        let program =
            Program { pipeline: Pipeline::imagenet_train(), limits: Limits::default(), policy: CorruptPolicy::Skip };
        let bytes = program.state_bytes().unwrap();
        assert_eq!((&bytes[..8], bytes.len()), (&b"DDPG\x01\0\0\0"[..], 101));
        assert_eq!(Program::decode(&bytes[FRAME_BYTES..]).unwrap(), program);
    }
}
