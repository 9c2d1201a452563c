use super::*;
use crate::draw::Draw;
use crate::limits::Limits;
use crate::ops::golden::{image, pixels};
use crate::ops::{Area, Effect, Listed, Operation};
use crate::synthetic;
use std::collections::HashSet;

/// The words of splitmix64.
struct SplitMix(u64);

impl Words for SplitMix {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// Mixes a whole image.
fn mixed(operation: &AugMix, words: &mut impl Words, size: (u32, u32), pixels: &[u8]) -> Vec<u8> {
    let whole = Rect { x: 0, y: 0, width: size.0, height: size.1 };
    let (memory, branch) = (&mut Vec::new(), &mut Default::default());
    let mut scratch = Scratch { limits: Limits::default(), memory, branch };
    let mut out = vec![0; pixels.len()];
    operation.mix(words, &Cutout { size, rect: whole, pixels }, whole, &mut scratch, &mut out).unwrap();
    out
}

/// Compares with torchvision's AugMix (golden/augmix.py). Of its warps, where a place lies halfway between two pixels,
/// 32-bit floats may lead to the other one.
#[test]
fn mixtures_are_torchvisions() {
    let image = image();
    let (mut count, mut apart) = (0, 0);
    for line in include_str!("../../../tests/golden/augmix.txt").lines() {
        let (parameters, expected) = line.split_once(' ').unwrap();
        let [seed, severity, width, depth, alpha, all_ops, interpolation, fill] =
            *parameters.split(':').collect::<Vec<_>>()
        else {
            panic!("{line}")
        };
        let operation = AugMix {
            severity: severity.parse().unwrap(),
            mixture_width: width.parse().unwrap(),
            chain_depth: depth.parse().unwrap(),
            alpha: alpha.parse().unwrap(),
            all_ops: all_ops == "True",
            interpolation: if interpolation == "nearest" { Interpolation::Nearest } else { Interpolation::Bilinear },
            fill: Outside(fill.parse().ok().map(|value| Fill([value; 3]))),
        };
        let found = mixed(&operation, &mut SplitMix(seed.parse().unwrap()), (20, 20), &image);
        let far = found.iter().zip(pixels(expected)).filter(|&(found, expected)| found.abs_diff(expected) > 1).count();
        assert!(far <= 12, "{parameters}: {far} values");
        apart += far;
        count += 1;
    }
    assert_eq!(count, 24);
    assert!(apart <= 24, "{apart} values");
}

#[test]
fn chains_have_their_length_and_their_changes() {
    let words = &mut Rng::for_sample(Draw::default(), 0);
    let mut lengths = |chain_depth| -> HashSet<usize> {
        let operation = AugMix { chain_depth, all_ops: false, severity: 10, ..AugMix::usual() };
        (0..2000)
            .map(|_| {
                let mut listed = Listed::of((200, 100));
                operation.add_chain(words, &mut listed);
                assert!(listed.effects.iter().all(|effect| matches!(
                    effect,
                    Effect::Warp(_)
                        | Effect::Point(crate::ops::Point::Posterize(_) | crate::ops::Point::Solarize(_))
                        | Effect::Area(Area::Equalize(_) | Area::Autocontrast(_))
                )));
                listed.effects.len()
            })
            .collect()
    };
    // A shear, a translation or a rotation by nothing has no effect.
    assert_eq!(lengths(-1), HashSet::from([0, 1, 2, 3]));
    assert_eq!(lengths(0), HashSet::from([0, 1, 2, 3]));
    assert_eq!(lengths(1), HashSet::from([0, 1]));
    assert!(lengths(8).contains(&8));
}

#[test]
fn an_image_is_mixed_in_every_way_by_its_seed_alone() {
    let (size, image) = ((30, 20), synthetic::photo(30, 20, 1));
    let of = |sample_id| {
        let words = &mut Rng::for_sample(Draw { sample_id, ..Draw::default() }, 0);
        match Operation::from(AugMix::usual()).effects(size, words).unwrap()[..] {
            [Effect::Area(Area::Mixture(Mixture { of, seed }))] => mixed(&of, &mut Rng::for_effect(seed), size, &image),
            ref other => panic!("{other:?}"),
        }
    };
    assert_eq!(of(1), of(1));
    let made: HashSet<Vec<u8>> = (0..50).map(of).collect();
    assert_eq!(made.len(), 50);
}

#[test]
fn a_blend_has_torchvisions_roundings_on_every_level() {
    let value = |at: usize| (at * 37 % 256) as u8;
    for level in Level::tested() {
        for bytes in [1, 63, 64, 65, 300] {
            let image: Vec<u8> = (0..bytes).map(value).collect();
            let chains: Vec<u8> = (0..2 * bytes).map(|at| value(at + 5)).collect();
            let mut out = vec![0; bytes];
            blend(level, &mut out, (&image, 0.3), (&chains, bytes), &[0.25, 0.45]);
            let expected = (0..bytes).map(|at| {
                let [own, one, other] = [image[at], chains[at], chains[bytes + at]].map(f32::from);
                (0.3f32 * own + 0.25f32 * one + 0.45f32 * other) as u8
            });
            assert!(out.iter().copied().eq(expected), "{bytes}, {}", level.name());
        }
    }
}

#[test]
fn wrong_parameters_are_named() {
    for (text, message) in [
        ("severity = 0", "severity 0"),
        ("severity = 11", "severity 11"),
        ("mixture_width = 0", "mixture_width 0"),
        ("mixture_width = 9", "mixture_width 9"),
        ("chain_depth = 9", "chain_depth 9"),
        ("alpha = 0.0", "alpha 0"),
        ("alpha = nan", "alpha NaN"),
    ] {
        let error = toml::from_str::<AugMix>(text).unwrap().check().unwrap_err();
        assert!(error.contains(message), "{error}");
    }
    assert_eq!(toml::from_str::<AugMix>("").unwrap(), AugMix::usual());
    assert_eq!(toml::from_str::<AugMix>("fill = 7").unwrap().fill, Outside(Some(Fill([7; 3]))));
}
