//! The classes of ImageNet's ground truth: `meta.mat` of the ILSVRC2012 development kit.
//!
//! The file is a MAT-file of level 5 (The MathWorks, «MAT-File Format»): data elements with a tag that gives type and
//! length, here one array of structs, `synsets`, which may be compressed. Only what that array needs is read: structs,
//! texts and numbers. Each struct is a synset; those without children are the classes, and `ILSVRC2012_ID` numbers them
//! from 1.

use super::FieldsError;
use crate::CLASSES_MAX;
use ddlp_cause::Cause;
use flate2::read::ZlibDecoder;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Name of the file.
pub(super) const NAME: &str = "meta.mat";
/// Most bytes of the file, and of its array when it is not compressed.
const BYTES_MAX: u64 = 64 << 20;
const HEADER_BYTES: usize = 128;
/// Version and byte order at the end of the header: level 5, little endian.
const LEVEL_5: [u8; 4] = [0x00, 0x01, b'I', b'M'];

/// Types of data elements.
const INT8: u32 = 1;
const UINT8: u32 = 2;
const INT16: u32 = 3;
const UINT16: u32 = 4;
const INT32: u32 = 5;
const UINT32: u32 = 6;
const DOUBLE: u32 = 9;
const MATRIX: u32 = 14;
const COMPRESSED: u32 = 15;
const UTF8: u32 = 16;
/// Class of arrays of structs.
const STRUCTS: u8 = 2;

/// Returns the names of the classes, which the numbers of the ground truth count from 1.
pub(super) fn synsets(path: &Path) -> Result<Vec<String>, FieldsError> {
    let bytes = File::open(path).and_then(read_bounded);
    let names = bytes.map_err(Cause::from).and_then(|bytes| {
        synsets_in(&bytes).ok_or_else(|| "it is not the file of the ILSVRC2012 development kit".into())
    });
    names.map_err(|source| FieldsError::Synsets { path: path.into(), source })
}

fn read_bounded(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// Returns the names of the classes by their numbers; `None` if the bytes are no such file.
fn synsets_in(file: &[u8]) -> Option<Vec<String>> {
    let (header, body) = file.split_at_checked(HEADER_BYTES)?;
    if !header.ends_with(&LEVEL_5) {
        return None;
    }
    let mut elements = Elements(body);
    while !elements.0.is_empty() {
        let (kind, data) = elements.next()?;
        let found = if kind == COMPRESSED {
            let data = read_bounded(ZlibDecoder::new(data)).ok()?;
            Elements(&data).of(MATRIX).and_then(classes)
        } else {
            (kind == MATRIX).then_some(data).and_then(classes)
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Returns the names of the classes in the array `synsets`; `None` for any other array.
fn classes(array: &[u8]) -> Option<Vec<String>> {
    let mut array = Elements(array);
    let class = *array.of(UINT32)?.first()?;
    let count =
        array.of(INT32)?.chunks_exact(4).try_fold(1u64, |count, size| count.checked_mul(number(INT32, size)?))?;
    if class != STRUCTS || array.of(INT8)? != b"synsets" || count > CLASSES_MAX as u64 {
        return None;
    }
    let name_bytes = usize::try_from(number(INT32, array.of(INT32)?)?).ok().filter(|&bytes| bytes > 0)?;
    let names = array.of(INT8)?.chunks_exact(name_bytes).map(|name| name.split(|&byte| byte == 0).next());
    let names: Vec<&[u8]> = names.collect::<Option<_>>()?;
    let mut found = Vec::new();
    for _ in 0..count {
        let (mut id, mut synset, mut children) = (None, None, None);
        for &name in &names {
            let value = array.of(MATRIX)?;
            match name {
                b"ILSVRC2012_ID" => id = value_of(value).and_then(|(kind, value)| number(kind, value)),
                b"WNID" => synset = value_of(value).and_then(|(kind, value)| text(kind, value)),
                b"num_children" => children = value_of(value).and_then(|(kind, value)| number(kind, value)),
                _ => {}
            }
        }
        if children? == 0 {
            found.push((id?, synset?));
        }
    }
    found.sort_unstable();
    let are_counted = found.iter().zip(1..).all(|((id, _), number)| *id == number);
    (are_counted && !found.is_empty()).then(|| found.into_iter().map(|(_, synset)| synset).collect())
}

/// Returns type and bytes of the numbers or letters of an array.
fn value_of(array: &[u8]) -> Option<(u32, &[u8])> {
    let mut array = Elements(array);
    for header in [UINT32, INT32, INT8] {
        array.of(header)?;
    }
    array.next()
}

/// Returns the first number of an element, if it is a whole number of 0 or more.
fn number(kind: u32, bytes: &[u8]) -> Option<u64> {
    match kind {
        UINT8 => bytes.first().map(|&byte| byte.into()),
        INT8 => bytes.first().and_then(|&byte| u64::try_from(byte as i8).ok()),
        UINT16 => Some(u16::from_le_bytes(*bytes.first_chunk()?).into()),
        INT16 => i16::from_le_bytes(*bytes.first_chunk()?).try_into().ok(),
        UINT32 => Some(u32::from_le_bytes(*bytes.first_chunk()?).into()),
        INT32 => i32::from_le_bytes(*bytes.first_chunk()?).try_into().ok(),
        DOUBLE => {
            let number = f64::from_le_bytes(*bytes.first_chunk()?);
            (number >= 0.0 && number.fract() == 0.0).then_some(number as u64)
        }
        _ => None,
    }
}

/// Returns the letters of an element, which are ASCII in the names of synsets.
fn text(kind: u32, bytes: &[u8]) -> Option<String> {
    let letters: Vec<u8> = match kind {
        INT8 | UINT8 | UTF8 => bytes.to_vec(),
        UINT16 => bytes.chunks_exact(2).map(|letter| if letter[1] == 0 { letter[0] } else { b'?' }).collect(),
        _ => return None,
    };
    letters.is_ascii().then(|| String::from_utf8(letters).ok()).flatten()
}

/// The data elements in some bytes.
struct Elements<'b>(&'b [u8]);

impl<'b> Elements<'b> {
    /// Returns type and data of the next element.
    fn next(&mut self) -> Option<(u32, &'b [u8])> {
        let (tag, rest) = self.0.split_at_checked(4)?;
        let tag = u32::from_le_bytes(*tag.first_chunk()?);
        let (kind, (data, rest)) = if tag >> 16 > 0 {
            // A small element: its type and length lie in one word, its data in the next.
            let (word, rest) = rest.split_at_checked(4)?;
            (tag & 0xffff, (word.get(..tag as usize >> 16)?, rest))
        } else {
            let (length, rest) = rest.split_at_checked(4)?;
            let (data, rest) = rest.split_at_checked(u32::from_le_bytes(*length.first_chunk()?) as usize)?;
            let padding = if tag == COMPRESSED { 0 } else { data.len().next_multiple_of(8) - data.len() };
            (tag, (data, rest.get(padding..).unwrap_or_default()))
        };
        self.0 = rest;
        Some((kind, data))
    }

    /// Returns the data of the next element, which has to be of this type.
    fn of(&mut self, kind: u32) -> Option<&'b [u8]> {
        self.next().filter(|element| element.0 == kind).map(|element| element.1)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What scipy.io.savemat of SciPy 1.17 makes of the synsets 1: n02119789, 2: n02100735, 3: n01440764, and 4:
    /// n02083346 with two children, whose fields and types are those of the development kit.
    pub(in super::super) const SYNSETS: &[u8] = include_bytes!("devkit/synsets.mat");
    const COMPRESSED_SYNSETS: &[u8] = include_bytes!("devkit/synsets-compressed.mat");

    #[test]
    fn classes_come_in_the_order_of_their_numbers_and_only_those_without_children() {
        for file in [SYNSETS, COMPRESSED_SYNSETS] {
            assert_eq!(synsets_in(file).unwrap(), ["n02119789", "n02100735", "n01440764"]);
        }
        assert_eq!(synsets_in(b"no MAT-file"), None);
        assert_eq!(synsets_in(&[&[0; 124][..], &LEVEL_5].concat()), None);
    }

    #[test]
    fn a_missing_or_other_file_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let said = || ddlp_cause::with_causes(&synsets(&folder.path().join(NAME)).unwrap_err());
        assert!(said().contains("meta.mat") && said().contains("LOC_val_solution.csv"), "{}", said());
        std::fs::write(folder.path().join("meta.mat"), "x").unwrap();
        assert!(said().contains("not the file of the ILSVRC2012 development kit"), "{}", said());
    }

    proptest! {
        /// Whatever is done to a file, reading it ends with names or without.
        #[test]
        fn damaged_files_do_no_harm(
            changes in prop::collection::vec((0usize..4096, any::<u8>()), 1..8),
            length in 0usize..4096,
        ) {
            let mut bytes = SYNSETS.to_vec();
            for (at, value) in changes {
                let at = at % bytes.len();
                bytes[at] = value;
            }
            bytes.truncate(length);
            synsets_in(&bytes);
        }
    }
}
