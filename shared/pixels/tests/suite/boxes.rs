//! Compares boxes with those of torchvision's own functions (golden/make.py).

use ddlp_pixels::draw::Words;
use ddlp_pixels::ops::{CenterCrop, Operation, Piece, RandomCrop, RandomResizedCrop, Resize};
use ddlp_pixels::{PixelError, Window};

/// splitmix64, as in make.py.
pub struct SplitMix(pub u64);

impl Words for SplitMix {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

struct Line<'a>(std::str::SplitAsciiWhitespace<'a>);

impl Line<'_> {
    fn next<T: std::str::FromStr<Err: std::fmt::Debug>>(&mut self) -> T {
        self.0.next().unwrap().parse().unwrap()
    }

    fn pair<T: std::str::FromStr<Err: std::fmt::Debug>>(&mut self) -> (T, T) {
        (self.next(), self.next())
    }

    fn window(&mut self) -> Window {
        Window { x: self.next(), y: self.next(), width: self.next(), height: self.next() }
    }
}

/// Draws an operation that only cuts something out, and returns its box.
fn window(operation: impl Into<Operation>, size: (u32, u32), words: &mut SplitMix) -> Result<Window, PixelError> {
    let piece = operation.into().effects(size, words)?[0].geometry().unwrap();
    assert_eq!((piece.resize, piece.flip), (None, false));
    Ok(piece.window.unwrap())
}

/// Draws a RandomResizedCrop with a side of 8, and returns the box that it resizes.
fn random_resized_crop(words: &mut SplitMix, size: (u32, u32), scale: [f64; 2], ratio: [f64; 2]) -> Window {
    let piece = Operation::from(RandomResizedCrop::within(8, scale, ratio)).effects(size, words).unwrap()[0]
        .geometry()
        .unwrap();
    assert_eq!((piece.resize, piece.flip), (Some((8, 8)), false));
    piece.window.unwrap()
}

/// Returns the golden lines of a kind.
fn golden(kind: &str) -> impl Iterator<Item = (&'static str, Line<'static>)> {
    let lines = include_str!("../golden/boxes.txt").lines();
    lines.filter_map(move |line| line.strip_prefix(kind).map(|rest| (line, Line(rest.split_ascii_whitespace()))))
}

#[test]
fn random_resized_crop_is_torchvisions() {
    let mut count = 0;
    for (text, mut line) in golden("rrc ") {
        let mut words = SplitMix(line.next());
        let (size, scale, ratio) = (line.pair(), line.pair::<f64>(), line.pair::<f64>());
        let found = random_resized_crop(&mut words, size, [scale.0, scale.1], [ratio.0, ratio.1]);
        let mut expected = line.window();
        if expected.width == 0 || expected.height == 0 {
            // torchvision fails on a box without pixels; our box gets one row or column.
            assert_eq!((found.width.min(found.height), expected.width.min(expected.height)), (1, 0), "{text}");
            expected = found;
        }
        assert_eq!(found, expected, "{text}");
        count += 1;
    }
    assert_eq!(count, 2400);
}

#[test]
fn sides_that_end_on_a_half_are_rounded_to_even_as_python_does() {
    let side = |side: u32| {
        let found = random_resized_crop(&mut SplitMix(1), (side, side), [0.25, 0.25], [1.0, 1.0]);
        (found.width, found.height)
    };
    // The sides are 2.5 and 3.5 before rounding.
    assert_eq!((side(5), side(7)), ((2, 2), (4, 4)));
    // All ten tries fail, because the box is wider than the image. The central box has full width, or height; its other
    // side is 2.5 or 3.5.
    let central = |size, ratio| {
        let found = random_resized_crop(&mut SplitMix(1), size, [3.0, 3.0], [ratio, ratio]);
        (found.width, found.height)
    };
    assert_eq!((central((1, 5), 0.4), central((5, 1), 2.5)), ((1, 2), (2, 1)));
    assert_eq!((central((2, 9), 4.0 / 7.0), central((9, 2), 1.75)), ((2, 4), (4, 2)));
}

#[test]
fn random_crop_is_torchvisions() {
    for (text, mut line) in golden("crop ") {
        let mut words = SplitMix(line.next());
        let size = line.pair();
        let found = window(RandomCrop::padded(line.next(), line.next()), size, &mut words);
        assert_eq!(found, Ok(line.window()), "{text}");
    }
    assert!(window(RandomCrop::padded(33, 1), (30, 32), &mut SplitMix(0)).is_err());
}

#[test]
fn center_crop_is_torchvisions() {
    for (text, mut line) in golden("center ") {
        let size = line.pair();
        let found = window(CenterCrop::to(line.next()), size, &mut SplitMix(0));
        assert_eq!(found, Ok(line.window()), "{text}");
    }
}

#[test]
fn resize_is_torchvisions() {
    let resized = |size, side| {
        let piece = Operation::from(Resize::to(side)).effects(size, &mut SplitMix(0))?[0].geometry().unwrap();
        assert_eq!(piece, Piece { resize: piece.resize, ..Piece::default() });
        Ok::<_, PixelError>(piece.resize.unwrap())
    };
    for (text, mut line) in golden("resize ") {
        assert_eq!(resized(line.pair(), line.next()), Ok(line.pair()), "{text}");
    }
    assert_eq!(resized((1, 60_000), 2), Ok((2, 120_000)), "as torchvision has it");
    assert_eq!(resized((60_000, 7), 65_535), Ok((561_728_571, 65_535)));
    assert!(resized((1, 60_000), 65_535).is_err());
}
