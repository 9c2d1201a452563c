use super::*;
use crate::draw::Draw;
use crate::jpeg::baseline::Checkpoints;
use crate::limits::Limits;
use crate::ops::{CenterCrop, GaussianBlur, RandomInvert};
use crate::preparer::Preparer;
use std::collections::BTreeSet;

/// Checks the digests that every machine has to find. Another digest means other pixels: a host then refuses drives of
/// the versions before for every run that needs the ability.
#[test]
fn they_are_those_of_every_machine() {
    let found: Vec<String> = abilities_without_forms()
        .iter()
        .map(|Ability { number, digest }| {
            let digest: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{:04x} {digest} {}", number.0, number.name().expect("a known ability"))
        })
        .collect();
    assert_eq!(found, EXPECTED, "{found:#?}");
}

const EXPECTED: [&str; 48] = [
    "0001 68db128705ef2344 cropping and resizing",
    "0002 a5c37e01d020f307 turning images upright",
    "0003 929f4db48f196157 resizing and warping by bicubic and other filters",
    "0004 62d0af7af53afdb7 blurring by kernels that are not square",
    "0005 8ae84b3ff4b1cd78 warping without a fill colour",
    "0100 b7c634167f0bc3e9 the operation RandomResizedCrop",
    "0101 9b3495aa89b01a06 the operation Resize",
    "0102 0f48ced951e2a1ec the operation CenterCrop",
    "0103 86c04bf09b3c7e13 the operation RandomCrop",
    "0104 25d68a0e0a82d86a the operation RandomHorizontalFlip",
    "0105 bacf8565c7151cb7 the operation RandomInvert",
    "0106 a9cbe37c868f502d the operation GaussianBlur",
    "0107 8a32114bf3546074 the operation RandomAutocontrast",
    "0108 03e58a7a7b177095 the operation ColorJitter",
    "0109 c4a7c8de08d9ba1e the operation RandomGrayscale",
    "010a e47df8142e3a8651 the operation RandomSolarize",
    "010b cf73f692a9a12add the operation RandomVerticalFlip",
    "010c 616712c179e16381 the operation RandomPosterize",
    "010d fed195e72bc0691e the operation RandomEqualize",
    "010e 6324f025525bed5c the operation RandomAdjustSharpness",
    "010f eba1be23b6fb9175 the operation Grayscale",
    "0110 763088f808c4e3de the operation RandomErasing",
    "0111 50a3a37749d4214a the operation RandomRotation",
    "0112 0bdab1edfd3e8f85 the operation RandomAffine",
    "0113 c54e3459e0468b05 the operation RandomPerspective",
    "0114 8b505928f8eb33de the operation RandAugment",
    "0115 c8afdb5b145f8e3f the operation TrivialAugmentWide",
    "0116 2da392b375867d5c the operation AutoAugment",
    "0117 3fc5130b3365c74a the operation Pad",
    "0118 bc90ae1f955f3a2f the operation PadTo",
    "0119 3a1e91047e2b51fb the operation TimmRandAugment",
    "011a b408e0d3ad67a980 the operation AugMix",
    "011b 25749df96f9d1043 the operation RandomApply",
    "011c d034753f575e6c53 the operation RandomChoice",
    "011d 484b7c83d66b9110 the operation RandomOrder",
    "011e a7b63e78fa9f9f1a the operation GaussianNoise",
    "011f 5d14439818aa7951 the operation Jpeg",
    "0120 6bff51b5723dc625 the operation RandomPhotometricDistort",
    "0121 be520ea0abd1ce82 the operation RandomShortestSize",
    "0122 1fae0fdd60ec304e the operation ScaleJitter",
    "0123 1a762c1c6e6c8258 the operation ElasticTransform",
    "0200 bb2528c30fdc0f10 the decoder of JPEG files",
    "0201 11125818900edfe2 the decoder of PNG files",
    "0202 b5af08963f21491d the decoder of WebP files",
    "0203 1c786a36c17b3b16 the decoder of BMP files",
    "0204 7af2e9f751f3ee29 the decoder of GIF files",
    "0205 9301e33953524142 the decoder of PNM files",
    "0206 a0c6e75f9876f58d the decoder of TIFF files",
];

#[test]
fn they_are_in_order_and_their_digests_differ() {
    let abilities = abilities_without_forms();
    assert!(abilities.is_sorted_by(|one, next| one.number < next.number));
    let digests: BTreeSet<[u8; 16]> = abilities.iter().map(|ability| ability.digest).collect();
    assert_eq!(digests.len(), abilities.len());
    for number in [0x0777, 0x0301, 0x0000, 0xFFFF] {
        assert_eq!(AbilityNumber(number).name(), None);
    }
}

#[test]
fn a_digest_depends_on_all_that_makes_it() {
    let one = Ability { number: AbilityNumber(0x0302), digest: [1; 16] };
    let other = Ability { number: AbilityNumber(0x0200), digest: [2; 16] };
    let found = [one.and(other), one.and(Ability { digest: [3; 16], ..other }), one, other.and(one)];
    let digests: BTreeSet<[u8; 16]> = found.iter().map(|ability| ability.digest).collect();
    assert_eq!((digests.len(), found[0].number), (4, one.number));
}

#[test]
fn every_built_in_sample_takes_part() {
    let mut preparer = Preparer::new(Limits::default());
    let pipeline = Pipeline::of([CenterCrop::to(32).into()]);
    let mut pixels = vec![0; pipeline.output().bytes()];
    let mut kinds = Vec::new();
    let mut take = |sample: Source<'_>| {
        let prepared = preparer.prepare(sample, &pipeline, Draw::default(), &mut pixels);
        assert!(prepared.is_ok_and(|prepared| prepared.warnings == 0), "{sample:?}");
        kinds.push(match sample {
            Source::Encoded(_) => "encoded",
            Source::Indexed { checkpoints, .. } => {
                assert!(Checkpoints::from_bytes(checkpoints).is_ok());
                "indexed"
            }
            Source::Planar { .. } => "planar",
            Source::Image(_) => "image",
            Source::Rows(_) => "rows",
            Source::Pieces { .. } => "pieces",
        });
    };
    for &format in Format::ALL {
        let files = examples::files(format);
        assert!(!files.is_empty(), "{format:?}");
        files.into_iter().for_each(|file| take(Source::Encoded(file)));
    }
    examples::planar(&mut take);
    examples::indexed(&mut take);
    examples::rows(&mut take);
    examples::raw(3, 6, &mut take);
    examples::pieces(&mut take);
    let of_forms = kinds.split_off(kinds.len() - 7);
    assert_eq!(of_forms, ["planar", "indexed", "rows", "image", "pieces", "pieces", "pieces"]);
    assert!(kinds.len() >= Format::ALL.len() && kinds.iter().all(|&kind| kind == "encoded"));
}

#[test]
fn a_pipeline_needs_its_operations_only() {
    let pipeline = Pipeline::of([CenterCrop::to(9).into(), RandomInvert { p: 0.5 }.into(), CenterCrop::to(7).into()]);
    let names = |pipeline: &Pipeline| pipeline.needs().iter().map(|number| number.name().unwrap()).collect::<Vec<_>>();
    assert_eq!(names(&pipeline), ["cropping and resizing", "the operation CenterCrop", "the operation RandomInvert"]);
    let upright = Pipeline { exif_orientation: true, ..pipeline };
    assert!(upright.needs().contains(&AbilityNumber::ORIENTATION));
    for (interpolation, needs_filters) in [("nearest", false), ("bilinear", false), ("bicubic", true), ("box", true)] {
        for operation in ["random_resized_crop", "resize"] {
            let size = format!("size = [7, 7], interpolation = \"{interpolation}\"");
            let pipeline = Pipeline::from_toml(&format!("operations = [{{ {operation} = {{ {size} }} }}]")).unwrap();
            assert_eq!(
                pipeline.needs().contains(&AbilityNumber::FILTERS),
                needs_filters,
                "{operation} {interpolation}"
            );
        }
    }
    let abilities = abilities_without_forms();
    assert!(upright.needs().iter().all(|&number| abilities.iter().any(|ability| ability.number == number)));
}

/// The examples and the encoding are part of a digest, so that an operation whose parameters change is another ability.
#[test]
fn programs_carry_an_operation_by_its_position_and_its_parameters() {
    let blur = Operation::from(GaussianBlur { kernel_size: 5.into(), sigma: [0.5, 1.0] });
    assert_eq!(blur.to_bytes()[..4], [6, 0, 0, 0]);
    assert_eq!((blur.ability(), blur.to_bytes().len()), (AbilityNumber(0x0106), 4 + 4 + 16));
    for (position, examples) in Operation::examples().iter().enumerate() {
        assert!(
            examples.iter().all(|example| example.ability().0 == 0x0100 + position as u16 && example.check().is_ok())
        );
    }
}
