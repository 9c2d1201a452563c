//! The data of one Execute Program command: the batch, its samples, and the slot with its generation.
//!
//! The layout is little-endian: a 64-byte header, then one u64 sample id per sample. The header's CRC32C covers header
//! and ids. A request for images of lower [fidelity](Fidelity) has version 2, which older agents refuse; all others
//! have version 1. The command's parameters ([`BatchRequest::parameters`]) repeat batch and slot for people who watch
//! the link; the drive refuses a command whose parameters and data disagree. Memory range sets are not used.
//!
//! The command ends with one of these statuses (status code type and code; DNR is Do Not Retry):
//!
//! - Successful Completion: the slot holds the batch. The result is the number of samples that followed the
//!   corrupt-sample policy.
//! - Command Abort Requested (0/07h): the drive gave the batch up, because the host asked for it
//!   ([`cancel`](crate::cancel), or Abort).
//! - Namespace Not Ready (0/82h) without DNR: the slot still has work of this same host, perhaps from a lost
//!   association that the drive still takes for live. The host should try again later.
//! - Namespace Not Ready (0/82h) with DNR: the drive is about to end and takes no more work.
//! - Insufficient Resources (1/89h): the slot belongs to another host, until that host's last association has ended or
//!   it has to give slots back; or this host has to give the slot back, since another one waits and has less than its
//!   share. Another slot may be free.
//! - Internal Error (0/06h): a defect in the drive; the slot holds no batch.
//! - Invalid Program Data (1/8Eh, DNR): the data is not a valid batch request.
//! - Invalid Field in Command (0/02h, DNR): parameters and request disagree, there is no such slot, the batch does not
//!   fit it, or memory ranges were named.
//! - Invalid Program Index, No Program, Program Not Activated (1/8Fh, 96h, 98h, DNR): no active program at that index.
//! - Command Sequence Error (0/0Ch): the controller is not enabled, or its association is ending.
//! - Data Transfer Error (0/04h) and the SGL errors: the data did not arrive as announced.
//!
//! A slot whose work was given up can be used again at once: one Execute may wait for the slot until the workers have
//! let go of it.

use crate::{BATCH_SAMPLES_MAX, crc32c_without};
use ddlp_pixels::Fidelity;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 4] = *b"DDBR";
const VERSION: u32 = 1;
/// Version of a request with a fidelity.
const FIDELITY_VERSION: u32 = 2;

/// A request to prepare one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRequest {
    /// Identifier of the program to run ([`crate::program::program_id`]). Several runs may be one host to a drive, so
    /// another run may have replaced the program at this index.
    pub program: u64,
    /// Seed of the run.
    pub seed: u64,
    /// Epoch that the draws belong to.
    pub epoch: u32,
    /// How exactly images are read.
    pub fidelity: Fidelity,
    /// Batch number within the epoch.
    pub batch: u32,
    /// Slot of the result namespace to fill.
    pub slot: u32,
    /// Generation of that slot. The finished slot repeats it, so that the host recognises late work.
    pub generation: u64,
    /// Number above all sample ids of the epoch. Sample `i` is stored at `i % len`, so samples may be repeated.
    pub id_limit: u64,
    /// Sample ids in the order of the batch.
    pub sample_ids: Vec<u64>,
}

/// Why bytes are not a batch request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The length is wrong, or disagrees with the sample count.
    #[error("batch request of {actual} bytes, {expected} expected")]
    Length {
        /// Bytes expected.
        expected: usize,
        /// Bytes present.
        actual: usize,
    },
    /// Wrong magic or version.
    #[error("not a batch request of version {VERSION} or {FIDELITY_VERSION} (magic {magic:02x?}, version {version})")]
    Format {
        /// First four bytes.
        magic: [u8; 4],
        /// Version field.
        version: u32,
    },
    /// Checksum mismatch.
    #[error("batch request crc32c {actual:#010x}, {expected:#010x} expected")]
    Checksum {
        /// Checksum in the header.
        expected: u32,
        /// Checksum of the bytes.
        actual: u32,
    },
    /// No samples, or more than [`BATCH_SAMPLES_MAX`].
    #[error("batch request of {0} samples, 1 to {BATCH_SAMPLES_MAX} allowed")]
    Count(u32),
    /// A fidelity that does not exist or belongs to another version.
    #[error("batch request of version {version} with fidelity {fidelity}")]
    Fidelity {
        /// Version field.
        version: u32,
        /// Fidelity field.
        fidelity: u8,
    },
    /// A sample id that is too large.
    #[error("sample {id} at position {position}, ids of the epoch are below {id_limit}")]
    Sample {
        /// Position in the batch.
        position: usize,
        /// The id.
        id: u64,
        /// Number above all ids of the epoch.
        id_limit: u64,
    },
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RequestHeader {
    magic: [u8; 4],
    version: U32,
    seed: U64,
    epoch: U32,
    batch: U32,
    slot: U32,
    count: U32,
    generation: U64,
    id_limit: U64,
    crc: U32,
    program: U64,
    /// Number of the last scan group; 0 for whole images, in version 1.
    fidelity: u8,
    reserved: [u8; 3],
}
/// Bytes of a request without its sample ids.
pub const HEADER_BYTES: usize = 64;
/// Bytes of the largest request.
pub const REQUEST_BYTES_MAX: usize = HEADER_BYTES + BATCH_SAMPLES_MAX * 8;
const _: () = assert!(size_of::<RequestHeader>() == HEADER_BYTES);
const CRC_FIELD: std::ops::Range<usize> = 48..52;
const _: () = assert!(std::mem::offset_of!(RequestHeader, crc) == CRC_FIELD.start);

impl BatchRequest {
    /// Returns the parameters of the command, CPARAM1 (epoch in the upper half, batch in the lower) and CPARAM2 (slot).
    pub fn parameters(&self) -> (u64, u64) {
        (u64::from(self.epoch) << 32 | u64::from(self.batch), u64::from(self.slot))
    }

    /// Encodes the request as Execute Program carries it.
    pub fn to_bytes(&self) -> Vec<u8> {
        assert!(
            (1..=BATCH_SAMPLES_MAX).contains(&self.sample_ids.len()),
            "a batch has 1 to {BATCH_SAMPLES_MAX} samples"
        );
        let header = RequestHeader {
            magic: MAGIC,
            version: if self.fidelity.is_whole() { VERSION } else { FIDELITY_VERSION }.into(),
            seed: self.seed.into(),
            epoch: self.epoch.into(),
            batch: self.batch.into(),
            slot: self.slot.into(),
            count: (self.sample_ids.len() as u32).into(),
            generation: self.generation.into(),
            id_limit: self.id_limit.into(),
            crc: 0.into(),
            program: self.program.into(),
            fidelity: if self.fidelity.is_whole() { 0 } else { self.fidelity.number() },
            reserved: [0; 3],
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.sample_ids.len() * 8);
        bytes.extend_from_slice(header.as_bytes());
        for id in &self.sample_ids {
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        let crc = crc32c_without(&bytes, CRC_FIELD);
        bytes[CRC_FIELD].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Parses and checks a request.
    pub fn parse(bytes: &[u8]) -> Result<Self, RequestError> {
        let (header, ids) = RequestHeader::ref_from_prefix(bytes)
            .map_err(|_| RequestError::Length { expected: HEADER_BYTES, actual: bytes.len() })?;
        let version = header.version.get();
        if header.magic != MAGIC || ![VERSION, FIDELITY_VERSION].contains(&version) {
            return Err(RequestError::Format { magic: header.magic, version });
        }
        let count = header.count.get();
        if count == 0 || count as usize > BATCH_SAMPLES_MAX {
            return Err(RequestError::Count(count));
        }
        let expected = HEADER_BYTES + count as usize * 8;
        if bytes.len() != expected {
            return Err(RequestError::Length { expected, actual: bytes.len() });
        }
        let actual = crc32c_without(bytes, CRC_FIELD);
        if actual != header.crc.get() {
            return Err(RequestError::Checksum { expected: header.crc.get(), actual });
        }
        let fidelity = match (version, header.fidelity) {
            (VERSION, 0) => Fidelity::WHOLE,
            (FIDELITY_VERSION, number) => Fidelity::new(number)
                .filter(|fidelity| !fidelity.is_whole())
                .ok_or(RequestError::Fidelity { version, fidelity: number })?,
            (_, fidelity) => return Err(RequestError::Fidelity { version, fidelity }),
        };
        let id_limit = header.id_limit.get();
        let mut sample_ids = Vec::with_capacity(count as usize);
        for (position, id) in ids.chunks_exact(8).enumerate() {
            let id = u64::from_le_bytes(id.try_into().expect("chunks of eight bytes"));
            if id >= id_limit {
                return Err(RequestError::Sample { position, id, id_limit });
            }
            sample_ids.push(id);
        }
        Ok(Self {
            program: header.program.get(),
            seed: header.seed.get(),
            epoch: header.epoch.get(),
            fidelity,
            batch: header.batch.get(),
            slot: header.slot.get(),
            generation: header.generation.get(),
            id_limit,
            sample_ids,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request() -> impl Strategy<Value = BatchRequest> {
        (any::<u64>(), any::<u64>(), any::<u32>(), 1u8..=10, any::<u32>(), any::<u32>(), any::<u64>(), 1u64..1 << 40)
            .prop_flat_map(|(program, seed, epoch, fidelity, batch, slot, generation, id_limit)| {
                proptest::collection::vec(0..id_limit, 1..40).prop_map(move |sample_ids| BatchRequest {
                    program,
                    seed,
                    epoch,
                    fidelity: Fidelity::new(fidelity).unwrap(),
                    batch,
                    slot,
                    generation,
                    id_limit,
                    sample_ids,
                })
            })
    }

    proptest! {
        #[test]
        fn round_trip(request in request()) {
            prop_assert_eq!(BatchRequest::parse(&request.to_bytes()), Ok(request));
        }

        #[test]
        fn truncation_is_an_error(request in request(), cut in 0.0f64..1.0) {
            let bytes = request.to_bytes();
            let end = (bytes.len() as f64 * cut) as usize;
            prop_assert!(BatchRequest::parse(&bytes[..end]).is_err());
        }

        #[test]
        fn a_flipped_bit_is_an_error(request in request(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut bytes = request.to_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(BatchRequest::parse(&bytes).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = BatchRequest::parse(&bytes);
        }
    }

    fn one_sample() -> BatchRequest {
        BatchRequest {
            program: 8,
            seed: 1,
            epoch: 2,
            fidelity: Fidelity::WHOLE,
            batch: 3,
            slot: 4,
            generation: 5,
            id_limit: 10,
            sample_ids: vec![9],
        }
    }

    #[test]
    fn ids_outside_the_epoch_are_refused() {
        let mut request = one_sample();
        assert!(BatchRequest::parse(&request.to_bytes()).is_ok());
        assert_eq!(request.parameters(), (0x2_0000_0003, 4));
        request.sample_ids = vec![1, 10];
        assert_eq!(
            BatchRequest::parse(&request.to_bytes()),
            Err(RequestError::Sample { position: 1, id: 10, id_limit: 10 })
        );
    }

    #[test]
    fn a_fidelity_makes_another_version() {
        let lower = BatchRequest { fidelity: Fidelity::new(5).unwrap(), ..one_sample() };
        let [whole, lower] = [one_sample(), lower].map(|request| request.to_bytes());
        assert_eq!([whole[4], lower[4]], [1, 2], "an older agent refuses version 2");
        assert_eq!(whole[60..], [&[0; 4][..], &9u64.to_le_bytes()].concat()[..], "as in earlier builds");
        // Versions and fidelities that do not belong together.
        for (version, fidelity) in [(1, 5), (1, 10), (2, 0), (2, 10), (2, 11)] {
            let mut bytes = lower.clone();
            (bytes[4], bytes[60]) = (version, fidelity);
            let crc = crc32c_without(&bytes, CRC_FIELD);
            bytes[CRC_FIELD].copy_from_slice(&crc.to_le_bytes());
            let refused = RequestError::Fidelity { version: version.into(), fidelity };
            assert_eq!(BatchRequest::parse(&bytes), Err(refused));
        }
    }
}
