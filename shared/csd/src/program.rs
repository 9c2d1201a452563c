//! The preprocessing program: the host loads it into the drive, which then prepares every sample as it says.
//!
//! On the wire: magic, version, body length, CRC32C of the body, then the bincode body. Trailing bytes are refused.

use blake3::Hasher;
use ddlp_pixels::{Limits, Pipeline};
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Largest program in bytes, framing included.
pub const PROGRAM_BYTES_MAX: usize = 64 * 1024;

const MAGIC: [u8; 4] = *b"DDPG";
const VERSION: u32 = 1;

/// What happens to a corrupt sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CorruptPolicy {
    /// The run ends with an error that names the sample.
    Fail,
    /// The sample is left out of its batch and counted.
    Skip,
    /// The next sample in the dataset's order that is not corrupt replaces it, with its own label, and the corrupt
    /// sample is counted.
    Replace,
}

/// Everything that the drive must know to prepare a batch, apart from the samples.
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
    #[error("program format version {0}, version {VERSION} understood")]
    Version(u32),
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
    /// Encodes the program as Load Program carries it.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ProgramError> {
        let body = bincode::serde::encode_to_vec(self, codec()).map_err(ProgramError::Encode)?;
        let total = FRAME_BYTES + body.len();
        if total > PROGRAM_BYTES_MAX {
            return Err(ProgramError::TooLong(total));
        }
        let frame = ProgramFrame {
            magic: MAGIC,
            version: VERSION.into(),
            body_bytes: (body.len() as u32).into(),
            body_crc: crc32c::crc32c(&body).into(),
        };
        let mut bytes = Vec::with_capacity(total);
        bytes.extend_from_slice(frame.as_bytes());
        bytes.extend_from_slice(&body);
        Ok(bytes)
    }

    /// Computes the program's identifier for a dataset and a pixel path: the first eight bytes, little-endian, of the
    /// BLAKE3 hash over both and [`Self::to_bytes`]. Load Program carries it as PUID, and each batch request names the
    /// program that it is for. So a drive that comes back with another dataset, unnoticed by the host, refuses the
    /// batch.
    pub fn id(&self, dataset: &[u8; 32], fingerprint: &[u8; 32]) -> Result<u64, ProgramError> {
        let digest = *Hasher::new().update(dataset).update(fingerprint).update(&self.to_bytes()?).finalize().as_bytes();
        let (first, _) = digest.split_first_chunk::<8>().expect("a digest has 32 bytes");
        Ok(u64::from_le_bytes(*first))
    }

    /// Parses and validates a program.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ProgramError> {
        if bytes.len() > PROGRAM_BYTES_MAX {
            return Err(ProgramError::TooLong(bytes.len()));
        }
        let (frame, body) = ProgramFrame::ref_from_prefix(bytes)
            .map_err(|_| ProgramError::Length { expected: FRAME_BYTES, actual: bytes.len() })?;
        if frame.magic != MAGIC {
            return Err(ProgramError::Magic(frame.magic));
        }
        if frame.version.get() != VERSION {
            return Err(ProgramError::Version(frame.version.get()));
        }
        let expected = frame.body_bytes.get() as usize;
        if body.len() != expected {
            return Err(ProgramError::Length { expected: FRAME_BYTES.saturating_add(expected), actual: bytes.len() });
        }
        let actual = crc32c::crc32c(body);
        if actual != frame.body_crc.get() {
            return Err(ProgramError::Checksum { expected: frame.body_crc.get(), actual });
        }
        let (program, used): (Program, usize) =
            bincode::serde::decode_from_slice(body, codec()).map_err(ProgramError::Body)?;
        if used != body.len() {
            return Err(ProgramError::Trailing(body.len() - used));
        }
        program.pipeline.validate().map_err(ProgramError::Pipeline)?;
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Program {
        Program { pipeline: Pipeline::imagenet_train(), limits: Limits::default(), policy: CorruptPolicy::Skip }
    }

    #[test]
    fn round_trip() {
        let bytes = program().to_bytes().unwrap();
        assert_eq!(Program::from_bytes(&bytes).unwrap(), program());
    }

    #[test]
    fn every_truncation_and_every_flipped_byte_is_an_error() {
        let bytes = program().to_bytes().unwrap();
        for end in 0..bytes.len() {
            assert!(Program::from_bytes(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(Program::from_bytes(&damaged).is_err(), "flipped byte {at}");
        }
    }

    #[test]
    fn trailing_bytes_are_refused() {
        let mut bytes = program().to_bytes().unwrap();
        bytes.push(0);
        assert!(matches!(Program::from_bytes(&bytes), Err(ProgramError::Length { .. })));
    }
}
