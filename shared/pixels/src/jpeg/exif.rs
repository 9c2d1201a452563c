//! The markers in front of a JPEG's image data: EXIF orientation and the kind of frame. The parser accepts any bytes:
//! what it does not understand means "upright" and "not lossless".

use std::borrow::Cow;

/// First bytes of an EXIF segment.
const PREFIX: &[u8] = b"Exif\0\0";

/// The marker segments in front of the image data, each with its code and its payload.
struct Segments<'a> {
    rest: &'a [u8],
}

fn segments(file: &[u8]) -> Segments<'_> {
    Segments { rest: file.strip_prefix(&[0xFF, 0xD8]).unwrap_or_default() }
}

impl<'a> Iterator for Segments<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest;
        // As in libjpeg, other bytes, FF 00 among them, are skipped, and fill bytes may stand in front of a marker.
        let at = rest.windows(2).position(|two| two[0] == 0xFF && !matches!(two[1], 0 | 0xFF))?;
        let code = rest[at + 1];
        // SOS begins the image data.
        if code == 0xDA {
            return None;
        }
        let body = &rest[at + 2..];
        // TEM and RSTn are markers without a segment.
        if matches!(code, 0x01 | 0xD0..=0xD7) {
            self.rest = body;
            return Some((code, &[]));
        }
        let length = usize::from(u16::from_be_bytes([*body.first()?, *body.get(1)?]));
        let payload = body.get(2..length)?;
        self.rest = &body[length..];
        Some((code, payload))
    }
}

/// Returns the bytes from the first scan on, or those behind the last segment that can be read.
pub fn data(file: &[u8]) -> &[u8] {
    let mut segments = segments(file);
    segments.by_ref().for_each(drop);
    segments.rest
}

/// Returns whether the frame is lossless (SOF3, SOF7, SOF11, SOF15).
pub fn is_lossless(file: &[u8]) -> bool {
    segments(file).any(|(code, _)| matches!(code, 0xC3 | 0xC7 | 0xCB | 0xCF))
}

/// Returns the EXIF data, a TIFF. Several EXIF segments continue each other, as in Pillow.
pub fn tiff(file: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut parts = segments(file).filter(|&(code, _)| code == 0xE1).filter_map(|(_, app1)| app1.strip_prefix(PREFIX));
    let first = parts.next()?;
    Some(parts.fold(Cow::Borrowed(first), |tiff, part| Cow::Owned([&tiff, part].concat())))
}

/// Returns an APP1 payload that holds only the orientation.
pub fn app1_of_orientation(orientation: u8) -> Vec<u8> {
    let mut app1 = b"Exif\0\0MM\0\x2A\0\0\0\x08\0\x01".to_vec();
    app1.extend_from_slice(&[0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0]);
    app1.extend_from_slice(&[0; 4]);
    app1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orientation::of as orientation;

    fn file(app1: &[u8]) -> Vec<u8> {
        let mut file = vec![0xFF, 0xD8, 0xFF, 0xE0, 0, 4, 1, 2, 0xFF, 0xFF, 0xE1];
        file.extend_from_slice(&(app1.len() as u16 + 2).to_be_bytes());
        file.extend_from_slice(app1);
        file.extend_from_slice(&[0xFF, 0xC0, 0, 2, 0xFF, 0xDA]);
        file
    }

    #[test]
    fn every_orientation_is_read() {
        for value in 1..=8 {
            assert_eq!(orientation(&file(&app1_of_orientation(value))), value);
        }
    }

    /// Pillow 13 gives the same orientations.
    #[test]
    fn several_segments_continue_each_other() {
        let segment = |payload: &[u8]| {
            let length = (payload.len() as u16 + 2).to_be_bytes();
            [&[0xFF, 0xE1][..], &length, payload].concat()
        };
        let (whole, upright) = (app1_of_orientation(6), app1_of_orientation(1));
        let file = |parts: &[&[u8]]| {
            let parts: Vec<u8> = parts.iter().flat_map(|part| segment(part)).collect();
            [&[0xFF, 0xD8][..], &parts, &[0xFF, 0xDA]].concat()
        };
        let (begun, rest) = whole.split_at(15);
        let rest = [PREFIX, rest].concat();
        for (parts, expected) in [
            (&[PREFIX, &whole][..], 6),
            (&[PREFIX, PREFIX, &whole], 6),
            (&[b"http://ns.adobe.com/xap/1.0/\0", &whole], 6),
            (&[begun, &rest], 6),
            (&[begun, b"XMP", &rest], 6),
            (&[&upright, &whole], 1),
            (&[&whole, &upright], 6),
        ] {
            assert_eq!(orientation(&file(parts)), expected, "{parts:02x?}");
        }
    }

    #[test]
    fn markers_without_a_segment_are_passed_over() {
        for code in [0x01, 0xD0, 0xD7] {
            let mut file = file(&app1_of_orientation(6));
            file.splice(2..2, [0xFF, code]);
            assert_eq!(orientation(&file), 6);
        }
    }

    #[test]
    fn bytes_between_markers_are_passed_over() {
        for between in [&[0][..], &[1, 2, 0xFF, 0, 3], &[0xFF; 9]] {
            let mut file = file(&app1_of_orientation(6));
            file.splice(8..8, between.iter().copied());
            assert_eq!(orientation(&file), 6, "{between:02x?}");
        }
    }

    #[test]
    fn nonsense_is_upright() {
        let good = file(&app1_of_orientation(6));
        assert_eq!(orientation(&[b"BM", &good[2..]].concat()), 1, "another format has no orientation");
        assert_eq!(orientation(&file(&app1_of_orientation(9))), 1);
        for length in 0..good.len() - 16 {
            assert!(matches!(orientation(&good[..length]), 1 | 6));
        }
        for i in 11..good.len() {
            for byte in [0, 0x7F, 0xFF] {
                let mut bad = good.clone();
                bad[i] = byte;
                assert!((1..=8).contains(&orientation(&bad)));
            }
        }
    }

    #[test]
    fn lossless_frames_are_told() {
        let mut lossless = file(&[]);
        assert!(!is_lossless(&lossless));
        let at = lossless.len() - 5;
        assert_eq!(lossless[at], 0xC0);
        lossless[at] = 0xC3;
        assert!(is_lossless(&lossless));
    }
}
