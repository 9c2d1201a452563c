//! A program as a drive loads it.
//!
//! On the wire (little-endian): magic, version, body length and CRC32C of the body (16 bytes); in the body the numbers
//! of needed abilities and of decoders (u16 each), the length of the rest (u32), both lists
//! ([`abilities`](crate::abilities)), and the program in the bincode encoding. Trailing bytes are refused.

use super::{MAGIC, PROGRAM_BYTES_MAX, Program, ProgramError, ProgramFrame, framed};
use crate::abilities::{self, ABILITY_BYTES, AgreedDecoders, Disagreement, disagreement};
use blake3::Hasher;
use ddlp_dataset::{Decoder, Decoders, ability};
use ddlp_pixels::{Ability, AbilityNumber};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const VERSION: u32 = 2;

/// A program with the abilities on which host and drive have to agree.
#[derive(Clone, Debug, PartialEq)]
pub struct DriveProgram {
    /// What the drive does to each sample.
    pub program: Program,
    /// The abilities that the pipeline and the dataset need, as the host has them, in the order of their numbers. A
    /// drive that differs in one of them refuses the program.
    pub needs: Vec<Ability>,
    /// All decoders of the host, in the order of their numbers. The drive uses those that it has too, and leaves other
    /// samples to the host.
    pub decoders: Vec<Ability>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct BodyHead {
    needs: U16,
    decoders: U16,
    program_bytes: U32,
}
const HEAD_BYTES: usize = 8;
const _: () = assert!(size_of::<BodyHead>() == HEAD_BYTES);

impl DriveProgram {
    /// Makes a program for drives, for a dataset that needs these decoders, with the abilities of this machine.
    pub fn new(program: Program, decoders: Decoders) -> Self {
        let own = |number: AbilityNumber| ability(number).expect("this machine has what its own pipelines need");
        let mut numbers = program.pipeline.needs();
        numbers.extend(decoders.iter().map(Decoder::ability));
        numbers.sort();
        let needs = numbers.into_iter().map(own).collect();
        Self { program, needs, decoders: Decoder::all().map(|decoder| own(decoder.ability())).collect() }
    }

    /// Compares the program with a drive's abilities. Returns the decoders that the drive may use.
    ///
    /// # Errors
    /// The first ability that the program needs, and that the drive lacks or has with another digest.
    pub fn agree(&self, abilities: &[Ability]) -> Result<AgreedDecoders, Disagreement> {
        disagreement(&self.needs, abilities).map_or(Ok(AgreedDecoders::of(&self.decoders, abilities)), Err)
    }

    /// Encodes the program as Load Program carries it.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ProgramError> {
        let program = self.program.encode()?;
        let head = BodyHead {
            needs: (self.needs.len() as u16).into(),
            decoders: (self.decoders.len() as u16).into(),
            program_bytes: (program.len() as u32).into(),
        };
        let lists = [abilities::to_bytes(&self.needs), abilities::to_bytes(&self.decoders)].concat();
        framed(VERSION, &[head.as_bytes(), &lists, &program].concat())
    }

    /// Parses and validates a program.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ProgramError> {
        let body = body_of(bytes)?;
        let short = || ProgramError::Lists("they are cut short");
        let (head, lists) = BodyHead::ref_from_prefix(body).map_err(|_| short())?;
        let list = |rest, count: U16| split(rest, usize::from(count.get()) * ABILITY_BYTES).ok_or_else(short);
        let (needs, rest) = list(lists, head.needs)?;
        let (decoders, encoded) = list(rest, head.decoders)?;
        if encoded.len() as u64 != u64::from(head.program_bytes.get()) {
            return Err(ProgramError::Lists("the program after them is not as long as its header says"));
        }
        let parsed = |bytes| abilities::parse(bytes).ok_or(ProgramError::Lists("they are too long or out of order"));
        let (needs, decoders) = (parsed(needs)?, parsed(decoders)?);
        // Checked first: a program with an operation that this version does not know cannot be decoded.
        let unknown = needs.iter().find(|need| ability(need.number).is_none());
        if let Some(need) = unknown {
            return Err(ProgramError::Unknown(need.number));
        }
        let program = Program::decode(encoded)?;
        let is_declared = |number: &AbilityNumber| needs.iter().any(|need| need.number == *number);
        if let Some(number) = program.pipeline.needs().into_iter().find(|number| !is_declared(number)) {
            return Err(ProgramError::Undeclared(number));
        }
        Ok(Self { program, needs, decoders })
    }
}

/// Computes the identifier of an encoded program for a dataset: the first eight bytes, little-endian, of the BLAKE3
/// hash over both. Load Program carries the identifier as PUID, and each batch request repeats it. So a drive that
/// comes back with another dataset, unnoticed by the host, refuses the batch.
pub fn program_id(dataset: &[u8; 32], bytes: &[u8]) -> u64 {
    let digest = *Hasher::new().update(dataset).update(bytes).finalize().as_bytes();
    let (first, _) = digest.split_first_chunk::<8>().expect("a digest has 32 bytes");
    u64::from_le_bytes(*first)
}

fn split(bytes: &[u8], at: usize) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(at)
}

/// Checks the framing and returns the body.
fn body_of(bytes: &[u8]) -> Result<&[u8], ProgramError> {
    if bytes.len() > PROGRAM_BYTES_MAX {
        return Err(ProgramError::TooLong(bytes.len()));
    }
    let (frame, body) = ProgramFrame::ref_from_prefix(bytes)
        .map_err(|_| ProgramError::Length { expected: size_of::<ProgramFrame>(), actual: bytes.len() })?;
    if frame.magic != MAGIC {
        return Err(ProgramError::Magic(frame.magic));
    }
    if frame.version.get() != VERSION {
        return Err(ProgramError::Version { found: frame.version.get(), known: VERSION });
    }
    let expected = frame.body_bytes.get() as usize;
    if body.len() != expected {
        let expected = size_of::<ProgramFrame>().saturating_add(expected);
        return Err(ProgramError::Length { expected, actual: bytes.len() });
    }
    let actual = crc32c::crc32c(body);
    if actual != frame.body_crc.get() {
        return Err(ProgramError::Checksum { expected: frame.body_crc.get(), actual });
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::CorruptPolicy;
    use ddlp_dataset::pack::StoredForm;
    use ddlp_dataset::{abilities, ability_name};
    use ddlp_pixels::{Limits, Pipeline};
    use proptest::prelude::*;

    fn program() -> DriveProgram {
        let pipeline = Pipeline::imagenet_train();
        let program = Program { pipeline, limits: Limits::default(), policy: CorruptPolicy::Skip };
        DriveProgram::new(program, StoredForm::Rows.decoder().into_iter().collect())
    }

    #[test]
    fn a_program_names_what_it_needs_and_nothing_else() {
        let program = program();
        let names: Vec<String> = program.needs.iter().map(|need| ability_name(need.number)).collect();
        let expected = [
            "cropping and resizing",
            "the operation RandomResizedCrop",
            "the operation RandomHorizontalFlip",
            "the decoder of the form rows",
        ];
        assert_eq!(names, expected);
        let bytes = program.to_bytes().unwrap();
        assert_eq!(DriveProgram::from_bytes(&bytes).unwrap(), program);
        assert_eq!(program.agree(abilities()), Ok(AgreedDecoders::ALL));
        let without = |number: u16| {
            let list: Vec<Ability> = abilities().iter().copied().filter(|a| a.number.0 != number).collect();
            program.agree(&list)
        };
        assert_eq!(without(0x0104).unwrap_err().needed.number, AbilityNumber(0x0104));
        assert!(without(0x0106).is_ok(), "nothing is blurred");
        assert!(without(0x0304).is_err());
        assert!(!without(0x0201).unwrap().include_all_formats);
    }

    #[test]
    fn a_program_that_needs_more_than_it_says_is_refused() {
        let program = program();
        let undeclared = DriveProgram { needs: program.needs[..2].to_vec(), ..program.clone() };
        let refused = DriveProgram::from_bytes(&undeclared.to_bytes().unwrap());
        assert!(matches!(refused, Err(ProgramError::Undeclared(AbilityNumber(0x0104)))), "{refused:?}");
    }

    #[test]
    fn an_operation_of_another_version_is_named() {
        let mut program = program();
        program.needs.insert(3, Ability { number: AbilityNumber(0x01FE), digest: [0; 16] });
        let refused = DriveProgram::from_bytes(&program.to_bytes().unwrap()).unwrap_err();
        assert!(refused.to_string().contains("ability 0x01fe of another version"), "{refused}");
    }

    #[test]
    fn programs_of_other_versions_are_refused_with_both_versions() {
        let first = framed(1, &program().program.encode().unwrap()).unwrap();
        let refused = DriveProgram::from_bytes(&first).unwrap_err();
        assert_eq!(refused.to_string(), "the host is of an older version of DDLP: its programs have version 1, not 2");
        let newer = framed(3, b"something else").unwrap();
        let refused = DriveProgram::from_bytes(&newer).unwrap_err();
        assert_eq!(refused.to_string(), "the host is of a newer version of DDLP: its programs have version 3, not 2");
    }

    #[test]
    fn the_identifier_is_that_of_program_and_dataset() {
        let bytes = program().to_bytes().unwrap();
        let id = program_id(&[7; 32], &bytes);
        assert_eq!(id, program_id(&[7; 32], &bytes));
        assert_ne!(id, program_id(&[8; 32], &bytes));
        let other = DriveProgram::new(program().program, Decoders::NONE).to_bytes().unwrap();
        assert_ne!(id, program_id(&[7; 32], &other));
    }

    #[test]
    fn every_truncation_and_every_flipped_byte_is_an_error() {
        let bytes = program().to_bytes().unwrap();
        for end in 0..bytes.len() {
            assert!(DriveProgram::from_bytes(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(DriveProgram::from_bytes(&damaged).is_err(), "flipped byte {at}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(matches!(DriveProgram::from_bytes(&longer), Err(ProgramError::Length { .. })));
    }

    proptest! {
        /// Bodies with a correct checksum, so that the parser sees them.
        #[test]
        fn arbitrary_bodies_never_panic(
            body in proptest::collection::vec(any::<u8>(), 0..200),
            needs in 0u16..5,
            decoders in 0u16..5,
        ) {
            let length = body.len().saturating_sub(usize::from(needs + decoders) * ABILITY_BYTES) as u32;
            let head = BodyHead { needs: needs.into(), decoders: decoders.into(), program_bytes: length.into() };
            let _ = DriveProgram::from_bytes(&framed(VERSION, &[head.as_bytes(), &body].concat()).unwrap());
            let _ = DriveProgram::from_bytes(&framed(VERSION, &body).unwrap());
        }

        #[test]
        fn changed_bodies_parse_to_what_they_encode(at in any::<prop::sample::Index>(), value: u8) {
            let mut body = body_of(&program().to_bytes().unwrap()).unwrap().to_vec();
            let at = at.index(body.len());
            body[at] = value;
            let bytes = framed(VERSION, &body).unwrap();
            if let Ok(program) = DriveProgram::from_bytes(&bytes) {
                prop_assert_eq!(DriveProgram::from_bytes(&program.to_bytes().unwrap()).ok(), Some(program));
            }
        }
    }
}
