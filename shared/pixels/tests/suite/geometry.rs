//! Compares operations that move pixels with torchvision's (golden/geometry.py).

use ddlp_pixels::ops::{CenterCrop, Operation, Size};
use ddlp_pixels::{Draw, Limits, Pipeline, Preparer, Source};

/// Returns the pixels of a golden line, as rows of RGB.
fn pixels(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).map(|digits| std::str::from_utf8(digits).unwrap());
    digits.map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect()
}

/// Reads an operation in TOML.
fn operation(text: &str) -> Operation {
    // A pipeline with a crop behind the operation is valid for any operation.
    let text = format!("operations = [{text}, {{ center_crop = {{ size = 1 }} }}]");
    Pipeline::from_toml(&text).unwrap().operations.remove(0)
}

#[test]
fn pixels_are_torchvisions() {
    let mut lines = include_str!("../golden/geometry.txt").lines().map(|line| {
        let [name, width, height, hex] = *line.split('\t').collect::<Vec<_>>().as_array().unwrap();
        (name, Size { height: height.parse().unwrap(), width: width.parse().unwrap() }, pixels(hex))
    });
    let (_, Size { height, width }, image) = lines.next().unwrap();
    let planes: Vec<u8> = (0..3).flat_map(|channel| image.iter().copied().skip(channel).step_by(3)).collect();
    let mut count = 0;
    for (name, size, expected) in lines {
        let pipeline = Pipeline::of([operation(name), CenterCrop { size }.into()]);
        let mut out = vec![0; pipeline.output().bytes()];
        let source = Source::Planar { width, height, bytes: &planes };
        Preparer::new(Limits::default()).prepare(source, &pipeline, Draw::default(), &mut out).unwrap();
        // Pillow's weights for a resize have other last bits.
        let tolerance = u8::from(name.contains("bilinear") || name.contains("max_size"));
        let difference = out.iter().zip(&expected).map(|(found, expected)| found.abs_diff(*expected)).max().unwrap();
        assert!(difference <= tolerance, "{name}: {difference}");
        count += 1;
    }
    assert_eq!(count, 28);
}
