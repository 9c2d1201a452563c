use super::*;
use ddlp_pixels::ops::CenterCrop;
use ddlp_pixels::{Draw, Limits, Pipeline, Preparer};
use std::collections::BTreeSet;

/// Checks the digests that every machine has to find. Another digest means other pixels: a host then refuses drives of
/// earlier versions for every run that needs the ability. `ddlp-pixels` checks the digests of the other abilities.
#[test]
fn abilities_of_forms_are_those_of_every_machine() {
    let of_forms = abilities().iter().filter(|ability| ability.number.is_form());
    let found: Vec<String> = of_forms
        .map(|&Ability { number, digest }| {
            let digest: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{:04x} {digest} {}", number.0, ability_name(number))
        })
        .collect();
    assert_eq!(found, EXPECTED, "{found:#?}");
}

const EXPECTED: [&str; 6] = [
    "0301 dc330cdb89a60d8b the decoder of the form planar",
    "0302 986aa2318583e4e8 the decoder of the form indexed",
    "0303 f7b5b42a4f2b7e0f the decoder of the form raw",
    "0304 461944c873afcd9b the decoder of the form rows",
    "0305 7804d505d64cdceb the decoder of the form l3",
    "0306 26bc103904dd69c7 the decoder of the form pcr",
];

#[test]
fn abilities_are_in_order_and_their_digests_differ() {
    assert!(abilities().is_sorted_by(|one, next| one.number < next.number));
    let digests: BTreeSet<[u8; 16]> = abilities().iter().map(|ability| ability.digest).collect();
    assert_eq!(digests.len(), abilities().len());
    for &one in abilities() {
        assert_eq!(ability(one.number), Some(one));
        assert!(!ability_name(one.number).contains("another version"), "{one:?}");
    }
    assert_eq!(ability(AbilityNumber(0x7777)), None);
    assert_eq!(ability_name(AbilityNumber(0x0777)), "ability 0x0777 of another version");
    assert_eq!(ability_name(AbilityNumber(0x0300)), "ability 0x0300 of another version");
    assert_eq!(ability_name(AbilityNumber(0x0107)), "the operation RandomAutocontrast");
}

#[test]
fn the_examples_of_every_form_are_decoded_by_its_decoder() {
    let mut preparer = Preparer::new(Limits::default());
    let pipeline = Pipeline::of([CenterCrop::to(32).into()]);
    let mut pixels = vec![0; pipeline.output().bytes()];
    for &form in StoredForm::ALL {
        let mut examples = 0;
        form.examples(&mut |sample| {
            examples += 1;
            assert_eq!(Decoder::of(&sample).ok(), form.decoder(), "{form:?}");
            let prepared = preparer.prepare(sample, &pipeline, Draw::default(), &mut pixels);
            assert!(prepared.is_ok_and(|prepared| prepared.warnings == 0), "{sample:?}");
        });
        assert_eq!(examples > 0, form.decoder().is_some(), "{form:?}");
    }
}

#[test]
fn a_set_of_decoders_holds_what_was_put_in() {
    let [planar, rows] = [StoredForm::Planar, StoredForm::Rows].map(Decoder::Form);
    let mut set = Decoders::NONE;
    for decoder in [rows, Decoder::File(Format::Gif)] {
        assert!(!set.contains(decoder));
        set.insert(decoder);
        assert!(set.contains(decoder) && Decoders::ALL.contains(decoder));
    }
    assert_eq!(set.iter().collect::<Vec<_>>(), [Decoder::File(Format::Gif), rows]);
    assert_eq!(Decoder::all().collect::<Decoders>(), Decoders::ALL);
    assert!(Decoders::FILES.contains(Decoder::File(Format::Tiff)) && !Decoders::FILES.contains(planar));
    assert!(Decoder::all().is_sorted_by_key(Decoder::place) && Decoders::NONE.iter().next().is_none());
}
