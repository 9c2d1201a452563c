//! What the decoder returns is what the encoder was given.

use ddlp_l3::{Level, OpenImage, Options, PatchSize};
use proptest::prelude::*;

use crate::images::{KINDS, Pixels, Random};

const SIZES: [PatchSize; 2] = [PatchSize::Side32, PatchSize::Side64];

fn check(pixels: &Pixels, patch: PatchSize) {
    let bytes = pixels.encoded(patch);
    let opened = OpenImage::open(&bytes).expect("an encoder's bytes");
    assert_eq!([opened.width(), opened.height(), opened.channels()], [pixels.width, pixels.height, pixels.channels]);
    for level in Level::all() {
        let decoded = opened.clone().with_level(level).decode(1).expect("intact patches");
        assert!(decoded == pixels.bytes, "{patch:?}, {}", level.name());
        let options = Options { patch, threads: 1 };
        assert!(ddlp_l3::encode_at(level, pixels.image(), options) == bytes, "{patch:?}, {}", level.name());
    }
}

#[test]
fn images_of_all_kinds_and_sizes_come_back() {
    let mut random = Random::new(24);
    for number in 0..3000 {
        let size = match number % 4 {
            0 => (random.below(300) + 1, random.below(300) + 1),
            _ => (random.below(70) + 1, random.below(70) + 1),
        };
        let channels = [1, 3][random.below(2)];
        let kind = number % KINDS;
        let patch = SIZES[random.below(2)];
        let pixels = Pixels::random(kind, size, channels, &mut random);
        println!("image {number}: kind {kind}, {size:?}, {channels} channels, {patch:?}");
        check(&pixels, patch);
    }
}

#[test]
fn every_small_size_comes_back() {
    let mut random = Random::new(1);
    for side in 1..=130 {
        for size in [(side, 1), (1, side), (side, 3), (side, 131 - side)] {
            for channels in [1, 3] {
                let pixels = Pixels::random(random.below(KINDS), size, channels, &mut random);
                SIZES.iter().for_each(|&patch| check(&pixels, patch));
            }
        }
    }
}

#[test]
fn threads_change_neither_bytes_nor_pixels() {
    let pixels = Pixels::random(14, (200, 290), 3, &mut Random::new(5));
    let bytes = pixels.encoded(PatchSize::Side32);
    for threads in [0, 2, 3, 10, 11, 1000] {
        let options = Options { patch: PatchSize::Side32, threads };
        assert!(ddlp_l3::encode(pixels.image(), options) == bytes, "{threads} threads");
        let decoded = OpenImage::open(&bytes).unwrap().decode(threads).unwrap();
        assert!(decoded == pixels.bytes, "{threads} threads");
    }
}

#[test]
fn the_smaller_patches_are_chosen() {
    let pixels = Pixels::random(14, (100, 90), 3, &mut Random::new(9));
    let [small, large, smaller] =
        [PatchSize::Side32, PatchSize::Side64, PatchSize::Smaller].map(|patch| pixels.encoded(patch));
    assert_eq!(smaller.len(), small.len().min(large.len()));
    check(&pixels, PatchSize::Smaller);
    let side = |pixels: &Pixels| OpenImage::open(&pixels.encoded(PatchSize::BySize)).unwrap().index().patch_side();
    let constant = |size| Pixels::new(size, 1, |_, _, _| 7);
    assert_eq!([(1, 1), (32, 32), (33, 8), (8, 33)].map(|size| side(&constant(size))), [32, 32, 64, 64]);
}

proptest! {
    #[test]
    fn any_image_comes_back(
        width in 1..150_usize,
        height in 1..100_usize,
        channels in prop_oneof![Just(1_usize), Just(3)],
        kind in 0..KINDS,
        patch in prop_oneof![Just(PatchSize::Side32), Just(PatchSize::Side64)],
        seed: u64,
    ) {
        check(&Pixels::random(kind, (width, height), channels, &mut Random::new(seed)), patch);
    }
}
