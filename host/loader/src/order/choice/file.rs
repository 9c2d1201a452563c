//! A file of indices: a text with a whole number in each line, or an array of NumPy (`.npy`) of int64 or int32 with one
//! dimension, in the byte order of x86-64 and aarch64.

use std::fs;
use std::path::Path;

/// Beginning of a file of NumPy.
const NUMPY: &[u8] = b"\x93NUMPY";

/// Reads the indices in a file. The error says in words what is wrong.
pub(crate) fn read_indices(path: &Path) -> Result<Vec<u64>, String> {
    let name = path.display();
    let bytes = fs::read(path).map_err(|error| format!("{name} cannot be read: {error}"))?;
    if bytes.starts_with(NUMPY) {
        return of_numpy(&bytes).map_err(|problem| format!("{name} {problem}"));
    }
    let text = str::from_utf8(&bytes).map_err(|_| format!("{name} is neither a text nor an array of NumPy"))?;
    let lines = (1..).zip(text.lines()).map(|(line, text)| (line, text.trim())).filter(|(_, text)| !text.is_empty());
    let index = |(line, text): (usize, &str)| {
        text.parse().map_err(|_| format!("{name}, line {line}: {text} is no index, a whole number from 0 on"))
    };
    lines.map(index).collect()
}

/// Reads an array of NumPy. The error is the end of a sentence.
fn of_numpy(bytes: &[u8]) -> Result<Vec<u64>, String> {
    let damaged = || "is damaged: write it again by numpy.save".to_string();
    let (length, begin) = match bytes.get(NUMPY.len()).ok_or_else(damaged)? {
        1 => (bytes.get(8..10).map(|length| u16::from_le_bytes([length[0], length[1]]).into()), 10),
        _ => (bytes.get(8..12).map(|length| u32::from_le_bytes(length.try_into().expect("four bytes")) as usize), 12),
    };
    let end = length.and_then(|length: usize| length.checked_add(begin)).ok_or_else(damaged)?;
    let header = bytes.get(begin..end).and_then(|header| str::from_utf8(header).ok()).ok_or_else(damaged)?;
    let values = &bytes[end..];
    let has_one_dimension = header.split_once("'shape': (").is_some_and(|(_, shape)| {
        let shape = shape.split(')').next().unwrap_or_default().trim_end_matches(',');
        !shape.is_empty() && !shape.contains(',')
    });
    let numbers: Vec<i64> = if !has_one_dimension {
        return Err("has not one dimension: save a list of indices".into());
    } else if header.contains("'<i8'") && values.len().is_multiple_of(8) {
        values.chunks_exact(8).map(|value| i64::from_le_bytes(value.try_into().expect("eight bytes"))).collect()
    } else if header.contains("'<i4'") && values.len().is_multiple_of(4) {
        values.chunks_exact(4).map(|value| i32::from_le_bytes(value.try_into().expect("four bytes")).into()).collect()
    } else {
        return Err("has elements of another type than int64 and int32: save array.astype('int64')".into());
    };
    let index = |(at, number): (usize, &i64)| {
        u64::try_from(*number).map_err(|_| format!("has {number} at place {at}, but samples are numbered from 0"))
    };
    numbers.iter().enumerate().map(index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &[u8]) -> Result<Vec<u64>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("indices");
        fs::write(&path, content).unwrap();
        read_indices(&path)
    }

    fn numpy(description: &str, values: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{description}', 'fortran_order': False, 'shape': (3,), }}\n");
        [NUMPY, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), values].concat()
    }

    #[test]
    fn indices_are_lines_or_an_array() {
        assert_eq!(read(b"3\n 0 \n\n12").unwrap(), [3, 0, 12]);
        assert_eq!(read(&numpy("<i8", &[3i64, 0, 12].map(i64::to_le_bytes).concat())).unwrap(), [3, 0, 12]);
        assert_eq!(read(&numpy("<i4", &[3i32, 0, 12].map(i32::to_le_bytes).concat())).unwrap(), [3, 0, 12]);
    }

    #[test]
    fn what_is_no_index_is_named_with_its_place() {
        for (content, part) in [
            (b"3\n-1\n".to_vec(), "line 2: -1 is no index"),
            (b"3\n1.5\n".to_vec(), "line 2: 1.5 is no index"),
            (vec![0xff, 0xfe], "neither a text nor"),
            (numpy("<f8", &[0; 24]), "another type than int64"),
            (numpy("<i8", &[0; 23]), "another type than int64"),
            (numpy("<i8", &[3i64, -4].map(i64::to_le_bytes).concat()), "has -4 at place 1"),
            (NUMPY.to_vec(), "is damaged"),
            ([NUMPY, &[1, 0, 200, 0, 1]].concat(), "is damaged"),
        ] {
            let said = read(&content).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
        assert!(read_indices(Path::new("/no/such/file")).unwrap_err().contains("cannot be read"));
    }
}
