//! Compares operations on values with torchvision's (golden/values.py).

use ddlp_pixels::ops::{
    Area, ColorJitter, Effect, Factor, Filling, GaussianBlur, Grayscale, HueTurn, Kernel, Operation,
    RandomAdjustSharpness, RandomAutocontrast, RandomCrop, RandomEqualize, RandomErasing, RandomGrayscale,
    RandomInvert, RandomPosterize, RandomSolarize,
};
use ddlp_pixels::{Draw, Limits, Pipeline, Preparer, Source, Window};
use std::fmt::Debug;
use std::str::FromStr;

use crate::boxes::SplitMix;

const SIDE: u32 = 20;

/// Returns the pixels of a golden line, as rows of RGB.
fn pixels(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap())
        .collect()
}

fn apply(mut operations: Vec<Operation>, image: &[u8]) -> Vec<u8> {
    let planes: Vec<u8> = (0..3).flat_map(|channel| image.iter().copied().skip(channel).step_by(3)).collect();
    let source = Source::Planar { width: SIDE, height: SIDE, bytes: &planes };
    operations.push(RandomCrop::to(SIDE).into());
    let pipeline = Pipeline::of(operations);
    let mut out = vec![0; pipeline.output().bytes()];
    Preparer::new(Limits::default()).prepare(source, &pipeline, Draw::default(), &mut out).unwrap();
    out
}

/// Returns the largest difference of two values.
fn difference(found: &[u8], expected: &[u8]) -> u8 {
    found.iter().zip(expected).map(|(found, expected)| found.abs_diff(*expected)).max().unwrap()
}

fn number<'w, T: FromStr<Err: Debug>>(words: &mut impl Iterator<Item = &'w str>) -> T {
    words.next().unwrap().parse().unwrap()
}

/// Returns the operation that changes one property by this amount.
fn jitter(name: &str, by: f64) -> ColorJitter {
    let (factor, none) = (Factor([by, by]), ColorJitter::default());
    match name {
        "brightness" => ColorJitter { brightness: factor, ..none },
        "contrast" => ColorJitter { contrast: factor, ..none },
        "saturation" => ColorJitter { saturation: factor, ..none },
        "hue" => ColorJitter { hue: HueTurn([by, by]), ..none },
        _ => panic!("{name}"),
    }
}

#[test]
fn values_are_torchvisions() {
    let mut lines = include_str!("../golden/values.txt").lines().map(|line| line.split_once(' ').unwrap());
    let image = pixels(lines.next().unwrap().1);
    let mut kinds = 0;
    let of_others = ["erase:", "apply:", "magnitudes:"];
    for (name, expected) in lines.filter(|(name, _)| !of_others.iter().any(|other| name.starts_with(other))) {
        let mut words = name.split(':');
        let (operation, tolerance): (Operation, u8) = match words.next().unwrap() {
            "invert" => (RandomInvert { p: 1.0 }.into(), 0),
            "posterize" => (RandomPosterize { bits: number(&mut words), p: 1.0 }.into(), 0),
            "equalize" => (RandomEqualize { p: 1.0 }.into(), 0),
            "sharpness" => (RandomAdjustSharpness { sharpness_factor: number(&mut words), p: 1.0 }.into(), 1),
            "autocontrast" => (RandomAutocontrast { p: 1.0 }.into(), 1),
            "blur" => {
                let (lengths, sigma) = (words.next().unwrap(), number(&mut words));
                let mut lengths = lengths.split('x').cycle();
                let kernel_size = [number(&mut lengths), number(&mut lengths)];
                (GaussianBlur { kernel_size: Kernel(kernel_size), sigma: [sigma, sigma] }.into(), 1)
            }
            "gray" => (RandomGrayscale { p: 1.0 }.into(), 0),
            "solarize" => (RandomSolarize { threshold: number(&mut words), p: 1.0 }.into(), 0),
            name => (jitter(name, number(&mut words)).into(), u8::from(name == "hue")),
        };
        let found = apply(vec![operation], &image);
        let difference = difference(&found, &pixels(expected));
        assert!(difference <= tolerance, "{name}: {difference}");
        if name == "gray" {
            assert_eq!(apply(vec![Grayscale { num_output_channels: 3 }.into()], &image), found);
        }
        kinds += 1;
    }
    assert_eq!(kinds, 46);
}

#[test]
fn erased_rectangles_are_torchvisions() {
    let mut count = 0;
    for line in include_str!("../golden/values.txt").lines().filter(|line| line.starts_with("erase:")) {
        let (parameters, expected) = line.split_once(' ').unwrap();
        let words = &mut parameters.split(':').skip(1);
        let (mut seed, size) = (SplitMix(number(words)), (number(words), number(words)));
        let (scale, ratio) = ([number(words), number(words)], [number(words), number(words)]);
        let operation = Operation::from(RandomErasing { p: 1.0, scale, ratio, value: Filling::default() });
        let found = match operation.effects(size, &mut seed).unwrap()[..] {
            [] => String::new(),
            [Effect::Area(Area::Erase(erase))] => {
                let Window { x, y, width, height } = erase.window;
                format!("{x}:{y}:{width}:{height}")
            }
            ref other => panic!("{other:?}"),
        };
        assert_eq!(found, expected, "{line}");
        count += 1;
    }
    assert_eq!(count, 60);
}
