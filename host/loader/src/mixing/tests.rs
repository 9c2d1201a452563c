use super::*;
use ddlp_pixels::ImageLayout;
use std::collections::BTreeSet;

const SHAPE: Shape = Shape { height: 5, width: 7, channels: 3 };
/// Classes and labels of the golden batch.
const CLASSES: u32 = 3;
const LABELS: [u32; 4] = [2, 0, 0, 1];

fn mixing(options: &LoaderOptions) -> Mixing {
    let names = [(); CLASSES as usize].map(|()| String::new());
    Mixing::new(options, &names).unwrap().expect("the batches are mixed")
}

fn output(dtype: DType, layout: ImageLayout) -> ImageOutput {
    ImageOutput::new(&LoaderOptions { dtype, layout, ..LoaderOptions::default() }, SHAPE, false)
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn floats(hex: &str) -> Vec<f32> {
    unhex(hex).as_chunks::<4>().0.iter().map(|&bits| f32::from_le_bytes(bits)).collect()
}

/// Returns rows as they are delivered.
fn delivered(images: &ImageOutput, pixels: &[u8]) -> Vec<u64> {
    let bytes = pixels.len() / SHAPE.bytes() * images.row_bytes();
    let mut words = vec![0u64; bytes.div_ceil(8)];
    images.write(pixels, &mut words.as_mut_bytes()[..bytes]);
    words
}

/// Returns the elements of mixed rows.
fn mixed<T: ddlp_pixels::Element>(mix: BatchMix, images: &ImageOutput, pixels: &[u8]) -> Vec<T> {
    let mut words = delivered(images, pixels);
    let bytes = pixels.len() / SHAPE.bytes() * images.row_bytes();
    let rows = &mut words.as_mut_bytes()[..bytes];
    mix.mix_images(images, rows).unwrap();
    <[T] as zerocopy::FromBytes>::ref_from_bytes(rows).unwrap().to_vec()
}

fn labels(mix: BatchMix) -> Vec<f32> {
    let of_row = |row| {
        let mut out = vec![0; CLASSES as usize * 4];
        mix.mix_labels(&LABELS, row, &mut out);
        out.as_chunks::<4>().0.iter().map(|&bits| f32::from_ne_bytes(bits)).collect::<Vec<_>>()
    };
    (0..LABELS.len()).flat_map(of_row).collect()
}

#[test]
fn mixed_images_and_labels_are_torchvisions() {
    let mut lines = include_str!("../../tests/golden/mixing.txt").lines().map(|line| line.split_once(' ').unwrap());
    let pixels = unhex(lines.next().unwrap().1);
    let mut mix = BatchMix::Unmixed;
    let mut count = 0;
    for (name, expected) in lines {
        let words: Vec<&str> = name.split(':').collect();
        let weight: f64 = words[1].parse().unwrap();
        match words[0] {
            "mixup" => {
                mix = BatchMix::Blend { weight };
                let found: Vec<f32> = mixed(mix, &output(DType::F32, ImageLayout::Nchw), &pixels);
                assert!(found == floats(expected), "{name}");
            }
            "cutmix" => {
                let center = [words[2], words[3]].map(|word| word.parse().unwrap());
                mix = BatchMix::paste(SHAPE, weight, center);
                assert_eq!(mix.weight(), words[4].parse::<f64>().unwrap(), "{name}");
                let found: Vec<u8> = mixed(mix, &output(DType::U8, ImageLayout::Nhwc), &pixels);
                assert!(found == unhex(expected), "{name}");
            }
            _ => {
                assert_eq!(mix.weight(), weight);
                assert_eq!(labels(mix), floats(expected), "{name}");
            }
        }
        count += 1;
    }
    assert_eq!(count, 24);
}

/// A rectangle covers the same pixels in every type and layout.
#[test]
fn every_type_and_layout_is_cut_at_the_same_pixels() {
    let pixels: Vec<u8> = (0..3 * SHAPE.bytes()).map(|at| (at * 89 % 251) as u8).collect();
    let mix = BatchMix::paste(SHAPE, 0.6, [5, 1]);
    let cut: Vec<u8> = mixed(mix, &output(DType::U8, ImageLayout::Nhwc), &pixels);
    assert!(cut != pixels);
    for layout in ImageLayout::ALL {
        let images = output(DType::F32, layout);
        let expected: Vec<f32> = mixed(BatchMix::Unmixed, &images, &cut);
        assert!(mixed::<f32>(mix, &images, &pixels) == expected, "{layout}");
        let images = output(DType::Bf16, layout);
        let expected: Vec<half::bf16> = mixed(BatchMix::Unmixed, &images, &cut);
        assert!(mixed::<half::bf16>(mix, &images, &pixels) == expected, "{layout}");
    }
    let planes: Vec<u8> = mixed(mix, &output(DType::U8, ImageLayout::Nchw), &pixels);
    assert!(planes == cut, "bytes lie in memory as they were prepared");
}

#[test]
fn bytes_are_mixed_as_floats_are_but_for_rounding() {
    let pixels: Vec<u8> = (0..3 * SHAPE.bytes()).map(|at| (at * 89 % 256) as u8).collect();
    let mix = BatchMix::Blend { weight: 6554.0 / WEIGHT_STEPS };
    let bytes: Vec<u8> = mixed(mix, &output(DType::U8, ImageLayout::Nhwc), &pixels);
    let floats: Vec<f32> = mixed(mix, &output(DType::F32, ImageLayout::Nhwc), &pixels);
    for (byte, float) in bytes.into_iter().zip(floats) {
        assert!((f32::from(byte) - 255.0 * float).abs() <= 0.501, "{byte}, {float}");
    }
}

#[test]
fn a_batch_of_one_row_or_none_stays_as_it_is() {
    let mixing = mixing(&LoaderOptions { mixup: 1.0, cutmix: 1.0, ..LoaderOptions::default() });
    for batch in 0..20 {
        for rows in [0, 1] {
            assert_eq!(mixing.draw(BatchId { epoch: 0, batch }, rows, SHAPE), BatchMix::Unmixed);
        }
    }
    let pixels = vec![9; SHAPE.bytes()];
    let mix = BatchMix::Blend { weight: 0.3 };
    assert_eq!(mixed::<u8>(mix, &output(DType::U8, ImageLayout::Nhwc), &pixels), pixels);
    let mut out = [0; 12];
    BatchMix::Unmixed.mix_labels(&[1], 0, &mut out);
    assert_eq!(out[4..8], 1f32.to_ne_bytes());
}

#[test]
fn draws_follow_from_seed_epoch_batch_and_rank_alone() {
    let options = LoaderOptions { mixup: 0.4, cutmix: 1.0, ..LoaderOptions::default() };
    let id = BatchId { epoch: 3, batch: 5 };
    let drawn = mixing(&options).draw(id, 8, SHAPE);
    assert_eq!(mixing(&options).draw(id, 20, SHAPE), drawn, "the number of rows changes nothing");
    let others = [
        mixing(&LoaderOptions { seed: 1, ..options.clone() }).draw(id, 8, SHAPE),
        mixing(&LoaderOptions { rank: 1, ..options.clone() }).draw(id, 8, SHAPE),
        mixing(&options).draw(BatchId { epoch: 4, ..id }, 8, SHAPE),
        mixing(&options).draw(BatchId { batch: 6, ..id }, 8, SHAPE),
    ];
    assert!(others.iter().all(|other| *other != drawn), "{drawn:?}, {others:?}");
}

/// The draws are the same on every machine.
#[test]
fn draws_are_what_they_were() {
    let options = LoaderOptions { mixup: 0.2, cutmix: 1.0, seed: 7, ..LoaderOptions::default() };
    let (mixing, shape) = (mixing(&options), Shape { height: 224, width: 192, channels: 3 });
    let drawn: Vec<String> =
        (0..6).map(|batch| format!("{:?}", mixing.draw(BatchId { epoch: 2, batch }, 256, shape))).collect();
    let expected = [
        "Blend { weight: 0.9344482421875 }",
        "Blend { weight: 0.00823974609375 }",
        "Blend { weight: 0.937713623046875 }",
        "Blend { weight: 0.573150634765625 }",
        "Blend { weight: 0.001220703125 }",
        "Paste { window: Window { x: 76, y: 0, width: 112, height: 123 }, weight: 0.6796875 }",
    ];
    assert_eq!(drawn, expected);
}

#[test]
fn shares_of_batches_are_those_of_the_options() {
    let drawn = |options: LoaderOptions| {
        let mixing = mixing(&options);
        let draws = (0..4000).map(|batch| mixing.draw(BatchId { epoch: 0, batch }, 8, SHAPE));
        let count = |is_it: fn(&BatchMix) -> bool| draws.clone().filter(is_it).count();
        [count(|mix| matches!(mix, BatchMix::Blend { .. })), count(|mix| matches!(mix, BatchMix::Paste { .. }))]
    };
    let options = LoaderOptions { mixup: 0.2, cutmix: 1.0, ..LoaderOptions::default() };
    let [blends, pastes] = drawn(options.clone());
    assert!(blends + pastes == 4000 && blends.abs_diff(2000) < 130, "{blends}, {pastes}");
    assert_eq!(drawn(LoaderOptions { mixup: 0.0, ..options.clone() }), [0, 4000]);
    assert_eq!(drawn(LoaderOptions { cutmix: 0.0, ..options.clone() }), [4000, 0]);
    assert_eq!(drawn(LoaderOptions { mix_probability: 0.0, ..options.clone() }), [0, 0]);
    let [blends, pastes] = drawn(LoaderOptions { mix_probability: 0.3, ..options });
    assert!((blends + pastes).abs_diff(1200) < 120, "{blends}, {pastes}");
}

/// Centres lie anywhere in the image, and rectangles never leave it.
#[test]
fn rectangles_lie_in_the_image() {
    let mixing = mixing(&LoaderOptions { cutmix: 1.0, ..LoaderOptions::default() });
    let mut seen = BTreeSet::new();
    for batch in 0..3000 {
        let BatchMix::Paste { window, weight } = mixing.draw(BatchId { epoch: 0, batch }, 2, SHAPE) else {
            panic!("CutMix")
        };
        let (right, bottom) = (window.x as u32 + window.width, window.y as u32 + window.height);
        assert!(right <= SHAPE.width && bottom <= SHAPE.height);
        assert!((0.0..=1.0).contains(&weight));
        seen.insert((window.x, window.y, window.width, window.height));
    }
    assert!(seen.len() > 100, "{}", seen.len());
}

#[test]
fn options_that_cannot_be_mixed_by_are_refused() {
    let default = LoaderOptions::default;
    for (options, message) in [
        (LoaderOptions { mixup: -0.1, ..default() }, "`mixup` is -0.1, but must be a finite number of 0 or more"),
        (LoaderOptions { mixup: f64::INFINITY, ..default() }, "`mixup` is inf, but must be a finite number"),
        (LoaderOptions { cutmix: f64::NAN, ..default() }, "`cutmix` is NaN, but must be a finite number"),
        (LoaderOptions { mix_probability: 1.5, ..default() }, "`mix_probability` is 1.5, but must be a number from 0"),
        (LoaderOptions { classes: Some(0), ..default() }, "`classes` is 0, but must be a whole number from 1 to"),
        (LoaderOptions { classes: Some(1 << 21), ..default() }, "`classes` is 2097152"),
    ] {
        let error = options.check().unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    assert!(Mixing::new(&default(), &[]).unwrap().is_none());
    let options = LoaderOptions { mixup: 1.0, ..default() };
    let error = Mixing::new(&options, &[]).unwrap_err().to_string();
    assert!(error.contains("give their number (`classes`)"), "{error}");
    let mixing = Mixing::new(&LoaderOptions { classes: Some(7), ..options }, &[]).unwrap().unwrap();
    assert_eq!(mixing.class(6, String::new).unwrap(), 6);
    for label in [7, -1, i64::MAX] {
        let error = mixing.class(label, || "a.jpg".into()).unwrap_err().to_string();
        assert!(error.contains(&format!("sample a.jpg has the label {label}, but with 7 `classes`")), "{error}");
    }
}
