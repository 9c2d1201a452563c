//! Cuts a progressive JPEG at its markers. Takes any bytes: `None` is the answer to what a progressive file with
//! Huffman codes does not have.

use super::groups::{ComponentKind, ScanBits, ScanGroups};

/// Most components of a scan, and of an image whose colours are known.
const COMPONENTS_MAX: usize = 4;

/// The bytes of a file, divided.
pub(super) struct Cut {
    /// Bytes of each group, in the order of the file.
    pub pieces: Vec<Vec<u8>>,
    /// Application markers and comments that no decoder needs for pixels.
    pub markers: Vec<u8>,
}

/// Cuts a file: each scan, with the tables in front of it, goes to its group.
pub(super) fn cut(file: &[u8], groups: &ScanGroups, is_ycbcr: bool) -> Option<Cut> {
    let mut cut = Cut { pieces: vec![Vec::new(); groups.numbers().len()], markers: Vec::new() };
    // The first scan and everything in front of it make the first piece: no image is possible without them.
    let mut group = 0;
    let mut pending = file.get(..2)?.to_vec();
    let mut components = None;
    let (mut at, mut scans) = (2, 0);
    loop {
        let (code, segment) = segment(file, at)?;
        at += segment.len();
        match code {
            0xD9 if scans > 0 => return Some(cut),
            0xC2 if components.is_none() => {
                components = Some(Components::parse(payload(segment)?, is_ycbcr)?);
                pending.extend_from_slice(segment);
            }
            // Tables: of quantisation, of Huffman codes; and the restart interval.
            0xDB | 0xC4 | 0xDD => pending.extend_from_slice(segment),
            0xE0 | 0xEE if is_of_colors(payload(segment)?) => match scans {
                0 => pending.extend_from_slice(segment),
                // There it has no effect. In the joined file, in front of all scans, it would have one.
                _ => return None,
            },
            0xE0..=0xEF | 0xFE => cut.markers.extend_from_slice(segment),
            0xDA => {
                let scan = components.as_ref()?.scan(payload(segment)?)?;
                if scans > 0 {
                    // Scans stay in their order, because each continues the ones before it.
                    group = group.max(groups.position_of(scan));
                }
                scans += 1;
                let data = entropy_coded(&file[at..])?;
                at += data.len();
                let piece = &mut cut.pieces[group];
                piece.append(&mut pending);
                piece.extend_from_slice(segment);
                piece.extend_from_slice(data);
            }
            _ => return None,
        }
    }
}

/// Returns the marker that begins at `at`, and its whole segment, with fill bytes in front. An end marker has no more
/// than its two bytes.
fn segment(file: &[u8], at: usize) -> Option<(u8, &[u8])> {
    let rest = file.get(at..)?;
    let fill = rest.iter().take_while(|&&byte| byte == 0xFF).count();
    let code = *rest.get(fill)?;
    if fill == 0 || code == 0 {
        return None;
    }
    if code == 0xD9 {
        return Some((code, &rest[..=fill]));
    }
    let length = rest.get(fill + 1..fill + 3)?;
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    (length >= 2).then(|| rest.get(..fill + 1 + length)).flatten().map(|segment| (code, segment))
}

/// Returns whether an APP0 or APP14 segment with this payload decides about colours.
fn is_of_colors(payload: &[u8]) -> bool {
    payload.starts_with(b"JFIF") || payload.starts_with(b"Adobe")
}

/// Returns what follows a segment's length.
fn payload(segment: &[u8]) -> Option<&[u8]> {
    let fill = segment.iter().take_while(|&&byte| byte == 0xFF).count();
    segment.get(fill + 3..)
}

/// Returns the bytes of a scan in front of the next marker. Stuffed zeros and restart markers belong to the scan.
fn entropy_coded(bytes: &[u8]) -> Option<&[u8]> {
    let is_marker = |pair: &[u8]| pair[0] == 0xFF && !matches!(pair[1], 0 | 0xD0..=0xD7 | 0xFF);
    let mut end = bytes.windows(2).position(is_marker)?;
    // Fill bytes belong to the marker behind them.
    while end > 0 && bytes[end - 1] == 0xFF {
        end -= 1;
    }
    Some(&bytes[..end])
}

/// The components of a frame, in its order: identifier and kind.
struct Components(Vec<(u8, ComponentKind)>);

impl Components {
    /// Reads the payload of a frame header: precision, height, width, then three bytes for each component.
    fn parse(frame: &[u8], is_ycbcr: bool) -> Option<Self> {
        let count = usize::from(*frame.get(5)?);
        let described = frame.get(6..)?;
        if count == 0 || count > COMPONENTS_MAX || described.len() != 3 * count {
            return None;
        }
        let kind = |number| match number {
            1 if is_ycbcr => ComponentKind::Cb,
            2 if is_ycbcr => ComponentKind::Cr,
            _ => ComponentKind::Luma,
        };
        Some(Self(described.chunks_exact(3).enumerate().map(|(number, bytes)| (bytes[0], kind(number))).collect()))
    }

    /// Returns the number that a scan has in libjpeg's script, 1 to 10, from the payload of a scan header: the
    /// components with two bytes each, first and last coefficient, and the low bits that are missing before and after.
    fn scan(&self, header: &[u8]) -> Option<u8> {
        let (&count, rest) = header.split_first()?;
        let (chosen, &[first, last, bits]) = rest.split_last_chunk::<3>()?;
        if count == 0 || chosen.len() != 2 * usize::from(count) || first > last || last > 63 {
            return None;
        }
        let before = bits >> 4;
        let bits = ScanBits { first, last, before: (before > 0).then_some(before) };
        chosen.chunks_exact(2).try_fold(u8::MAX, |scan, chosen| {
            let (_, kind) = self.0.iter().find(|(identifier, _)| *identifier == chosen[0])?;
            Some(scan.min(bits.scan(*kind)))
        })
    }
}
