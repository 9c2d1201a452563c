//! Scan groups, and the group to which a scan belongs.

use std::fmt;
use std::str::FromStr;

/// Number of scans in libjpeg's progressive script for YCbCr, by which scan groups are numbered.
pub(super) const SCANS: u8 = 10;

/// The scan groups of a pack: each has the number of its last scan in libjpeg's progressive script for YCbCr, 1 to 10.
///
/// That script sends, of every image:
///
/// | scan | coefficients |
/// |---|---|
/// | 1 | DC of all components, without the last bit |
/// | 2 | AC 1 to 5 of luma, without the last two bits |
/// | 3, 4 | AC of Cr and of Cb, without the last bit |
/// | 5 | AC 6 to 63 of luma, without the last two bits |
/// | 6 | the last bit but one of luma's AC |
/// | 7 | the last bit of DC |
/// | 8, 9 | the last bit of the AC of Cr and of Cb |
/// | 10 | the last bit of luma's AC |
///
/// A file with other scans has its image data in the same groups: a scan belongs to the first group that has some of
/// its bits. Components of other colours than YCbCr count as luma. A scan belongs to a later group if scans of later
/// groups precede it in its file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScanGroups(Vec<u8>);

/// Reason why numbers cannot be scan groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadScanGroups(String);

impl fmt::Display for BadScanGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(found) = self;
        write!(f, "scan groups are rising numbers from 1 to {SCANS}, the last of them {SCANS}, not '{found}'")
    }
}

impl std::error::Error for BadScanGroups {}

impl Default for ScanGroups {
    /// Returns the groups 1, 2, 5 and 10.
    fn default() -> Self {
        Self(vec![1, 2, 5, SCANS])
    }
}

impl ScanGroups {
    /// Makes groups of the numbers of their last scans, which rise and end with 10.
    pub fn new(last_scans: &[u8]) -> Result<Self, BadScanGroups> {
        let rise = last_scans.is_sorted_by(|one, next| one < next);
        if !rise || last_scans.first().is_none_or(|&first| first == 0) || last_scans.last() != Some(&SCANS) {
            let found = last_scans.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
            return Err(BadScanGroups(found));
        }
        Ok(Self(last_scans.to_vec()))
    }

    /// Makes a group of each scan.
    pub fn each_scan() -> Self {
        Self((1..=SCANS).collect())
    }

    /// Returns the number of each group.
    pub fn numbers(&self) -> &[u8] {
        &self.0
    }

    /// Returns the group, counted from 0, that contains this scan of libjpeg's script, 1 to 10.
    pub(super) fn position_of(&self, scan: u8) -> usize {
        self.0.iter().position(|&last| scan <= last).expect("the last group ends with the last scan")
    }
}

impl FromStr for ScanGroups {
    type Err = BadScanGroups;

    /// Reads numbers with commas between them, such as `1,2,5,10`.
    fn from_str(text: &str) -> Result<Self, BadScanGroups> {
        let numbers = text.split(',').map(|number| number.trim().parse()).collect::<Result<Vec<u8>, _>>();
        Self::new(&numbers.map_err(|_| BadScanGroups(text.to_owned()))?)
    }
}

/// Kind of a component, for the scan groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComponentKind {
    Luma,
    Cb,
    Cr,
}

/// The coefficients of a scan: places in a block in zigzag order, and bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScanBits {
    /// First and last coefficient.
    pub first: u8,
    pub last: u8,
    /// Low bits that earlier scans have left out: none of the coefficient if there were no earlier scans.
    pub before: Option<u8>,
}

/// A scan of libjpeg's script, and how many low bits of a coefficient are missing after it.
type Step = (u8, u8);

const DC: &[Step] = &[(1, 1), (7, 0)];
const LUMA_LOW: &[Step] = &[(2, 2), (6, 1), (10, 0)];
const LUMA_HIGH: &[Step] = &[(5, 2), (6, 1), (10, 0)];
const CR: &[Step] = &[(3, 1), (8, 0)];
const CB: &[Step] = &[(4, 1), (9, 0)];
/// First coefficient of luma's high band.
const HIGH: u8 = 6;

impl ScanBits {
    /// Returns the first scan of libjpeg's script, 1 to 10, that has some of these bits.
    pub(super) fn scan(self, kind: ComponentKind) -> u8 {
        let Self { first, last, before } = self;
        let first_of = |steps: &[Step]| {
            let has_more = |&&(_, missing): &&Step| before.is_none_or(|before| missing < before);
            steps.iter().find(has_more).map_or(SCANS, |&(scan, _)| scan)
        };
        match kind {
            _ if first == 0 => first_of(DC),
            ComponentKind::Cb => first_of(CB),
            ComponentKind::Cr => first_of(CR),
            ComponentKind::Luma => {
                let low = if first < HIGH { first_of(LUMA_LOW) } else { SCANS };
                let high = if last >= HIGH { first_of(LUMA_HIGH) } else { SCANS };
                low.min(high)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_and_refused() {
        assert_eq!("1,2,5,10".parse(), Ok(ScanGroups::default()));
        assert_eq!("10".parse::<ScanGroups>().unwrap().numbers(), [10]);
        for text in ["", "1,2", "0,10", "2,1,10", "5,5,10", "1,11", "1,10,x", "-1,10", "300,10"] {
            let error = text.parse::<ScanGroups>().unwrap_err().to_string();
            assert!(error.ends_with(&format!("not '{text}'")), "{error}");
        }
    }

    #[test]
    fn groups_contain_the_scans_up_to_their_numbers() {
        let of = |groups: &ScanGroups| (1..=SCANS).map(|scan| groups.position_of(scan)).collect::<Vec<_>>();
        assert_eq!(of(&ScanGroups::default()), [0, 1, 2, 2, 2, 3, 3, 3, 3, 3]);
        assert_eq!(of(&ScanGroups::new(&[10]).unwrap()), [0; 10]);
    }

    #[test]
    fn scans_of_other_scripts_go_where_their_bits_are() {
        let scan = |kind, first, last, before| ScanBits { first, last, before }.scan(kind);
        use ComponentKind::{Cb, Cr, Luma};
        // Whole coefficients in one scan, as with spectral selection alone.
        assert_eq!([scan(Luma, 1, 63, None), scan(Cb, 1, 63, None), scan(Cr, 1, 63, None)], [2, 4, 3]);
        assert_eq!([scan(Luma, 6, 20, None), scan(Luma, 9, 63, None)], [5, 5]);
        // A bit that libjpeg's script does not send apart.
        assert_eq!([scan(Luma, 1, 63, Some(3)), scan(Cb, 1, 63, Some(2)), scan(Luma, 0, 0, Some(2))], [2, 4, 1]);
    }
}
