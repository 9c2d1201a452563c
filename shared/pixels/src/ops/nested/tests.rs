use super::*;
use crate::ability::AbilityNumber;
use crate::draw::{Draw, Rng};
use crate::ops::{CenterCrop, Effect, RandomApply, RandomChoice, RandomInvert, Resize};
use crate::pipeline::{Pipeline, PipelineError};
use std::collections::HashMap;

fn of(text: &str) -> Operation {
    Pipeline::from_toml(&format!("operations = [{text}, {{ center_crop = {{ size = 9 }} }}]"))
        .unwrap()
        .operations
        .remove(0)
}

/// Counts what an operation does to an image in many draws.
fn counts(operation: &Operation, draws: u32) -> HashMap<String, u32> {
    let words = &mut Rng::for_sample(Draw::default(), 0);
    let mut counts = HashMap::new();
    for _ in 0..draws {
        let names = operation.effects((20, 10), words).unwrap().into_iter().map(|effect| match effect {
            Effect::Geometry(_) => "moved ".to_owned(),
            Effect::Point(point) => format!("{} ", format!("{point:?}").split('(').next().unwrap()),
            other => panic!("{other:?}"),
        });
        *counts.entry(names.collect()).or_default() += 1;
    }
    counts
}

const ALWAYS: [&str; 3] = [
    "{ random_invert = { p = 1.0 } }",
    "{ random_horizontal_flip = { p = 1.0 } }",
    "{ random_grayscale = { p = 1.0 } }",
];

#[test]
fn all_operations_are_applied_or_none() {
    let operation = of(&format!("{{ random_apply = {{ transforms = [{}, {}], p = 0.3 }} }}", ALWAYS[0], ALWAYS[1]));
    let counts = counts(&operation, 10_000);
    assert_eq!(counts.len(), 2, "{counts:?}");
    // The standard deviation is 46.
    assert!((2770..3230).contains(&counts["Invert moved "]), "{counts:?}");
}

#[test]
fn one_operation_is_chosen_by_its_probability() {
    let choice = |p: &str| of(&format!("{{ random_choice = {{ transforms = [{}]{p} }} }}", ALWAYS.join(", ")));
    let even = counts(&choice(""), 9000);
    assert!(even.len() == 3 && even.values().all(|count| (2790..3210).contains(count)), "{even:?}");
    let weighted = counts(&choice(", p = [2, 0, 6.0]"), 10_000);
    assert!(weighted.len() == 2 && (2280..2720).contains(&weighted["Invert "]), "{weighted:?}");
}

#[test]
fn every_order_is_as_likely_as_any_other() {
    let counts = counts(&of(&format!("{{ random_order = {{ transforms = [{}] }} }}", ALWAYS.join(", "))), 12_000);
    assert!(counts.len() == 6 && counts.values().all(|count| (1800..2200).contains(count)), "{counts:?}");
}

#[test]
fn operations_within_operations_draw_one_after_the_other() {
    let text = format!(
        "{{ random_apply = {{ transforms = [{}, {{ random_order = {{ transforms = [{}, {}] }} }}], p = 1.0 }} }}",
        ALWAYS[0], ALWAYS[1], ALWAYS[2]
    );
    let found = counts(&of(&text), 1000);
    assert!(found.len() == 2 && found.keys().all(|names| names.starts_with("Invert ")), "{found:?}");
    let half = format!("{{ random_apply = {{ transforms = [{}] }} }}", ALWAYS[0].replace("1.0", "0.5"));
    let quarter = counts(&of(&half), 8000);
    assert!((1800..2200).contains(&quarter["Invert "]), "{quarter:?}");
}

#[test]
fn a_size_is_known_where_every_draw_leaves_it() {
    let after = |text: &str, before| of(text).size_after(before).unwrap();
    let (crop, other, flip) = ("{ center_crop = { size = 8 } }", "{ center_crop = { size = 9 } }", ALWAYS[1]);
    let apply = |list: &str, p: f64| format!("{{ random_apply = {{ transforms = [{list}], p = {p:?} }} }}");
    assert_eq!(after(&apply(crop, 0.5), Some((20, 10))), None);
    assert_eq!(after(&apply(crop, 0.5), Some((8, 8))), Some((8, 8)));
    assert_eq!(after(&apply(&format!("{other}, {crop}"), 1.0), None), Some((8, 8)));
    assert_eq!(after(&apply(flip, 0.5), Some((20, 10))), Some((20, 10)));
    let choice = |list: &str| format!("{{ random_choice = {{ transforms = [{list}] }} }}");
    assert_eq!(after(&choice(&format!("{crop}, {crop}")), None), Some((8, 8)));
    assert_eq!(after(&choice(&format!("{crop}, {other}")), None), None);
    assert_eq!(after(&choice(&format!("{crop}, {flip}")), None), None);
    let order = |list: &str| format!("{{ random_order = {{ transforms = [{list}] }} }}");
    assert_eq!(after(&order(&format!("{flip}, {flip}")), Some((20, 10))), Some((20, 10)));
    assert_eq!(after(&order(&format!("{crop}, {other}")), Some((20, 10))), None);
}

#[test]
fn errors_name_the_operation_within() {
    let error = |text: &str| {
        let text = format!("operations = [{{ center_crop = {{ size = 8 }} }}, {text}]");
        Pipeline::from_toml(&text).unwrap_err().to_string()
    };
    let within = format!("{{ random_order = {{ transforms = [{}, {{ resize = {{ size = 0 }} }}] }} }}", ALWAYS[0]);
    let found = error(&format!("{{ random_apply = {{ transforms = [{within}] }} }}"));
    let expected = "operation 1, random_apply: transform 0, random_order: transform 1, resize: size 0 is not";
    assert!(found.contains(expected), "{found}");
    for (text, message) in [
        ("{ random_apply = { transforms = [] } }".to_owned(), "transforms has 0 operations"),
        (format!("{{ random_order = {{ transforms = [{}] }} }}", vec![ALWAYS[0]; 17].join(",")), "has 17 operations"),
        (format!("{{ random_choice = {{ transforms = [{}], p = [1, 2] }} }}", ALWAYS[0]), "2 numbers for 1 transforms"),
        (format!("{{ random_choice = {{ transforms = [{}], p = [-1] }} }}", ALWAYS[0]), "p has -1"),
        (format!("{{ random_choice = {{ transforms = [{}], p = [0] }} }}", ALWAYS[0]), "add up to 0"),
        (format!("{{ random_apply = {{ transforms = [{}], p = 2.0 }} }}", ALWAYS[0]), "p = 2 is not"),
        (
            "{ random_apply = { transforms = [{ random_crop = { size = 9 } }] } }".to_owned(),
            "transform 0, random_crop: ",
        ),
    ] {
        assert!(error(&text).contains(message), "{text}: {}", error(&text));
    }
}

#[test]
fn a_pipeline_needs_the_operations_within() {
    let text = "operations = [{ random_choice = { transforms = [{ random_apply = { transforms = [
        { resize = { size = 8, interpolation = 'bicubic' } }, { center_crop = { size = 8 } }], p = 1.0 } }] } }]";
    let pipeline = Pipeline::from_toml(text).unwrap();
    let own = |operation: Operation| operation.ability();
    let RandomChoice { transforms, .. } = match &pipeline.operations[0] {
        Operation::RandomChoice(choice) => choice,
        other => panic!("{other:?}"),
    };
    let expected = [
        AbilityNumber::RENDERING,
        AbilityNumber::FILTERS,
        own(Resize::to(8).into()),
        own(CenterCrop::to(8).into()),
        transforms[0].ability(),
        pipeline.operations[0].ability(),
    ];
    assert_eq!(pipeline.needs(), expected);
}

/// Returns an operation within as many others.
fn deep(levels: usize) -> Operation {
    let within = Operation::from(RandomInvert { p: 0.5 });
    (0..levels).fold(within, |within, _| RandomApply { transforms: vec![within].into(), p: 0.5 }.into())
}

#[test]
fn operations_lie_four_deep_at_most_in_every_format() {
    let codec = bincode::config::standard().with_little_endian().with_fixed_int_encoding();
    let read = |bytes: &[u8]| bincode::serde::decode_from_slice::<Operation, _>(bytes, codec);
    let good = deep(4);
    assert_eq!(read(&good.to_bytes()).unwrap().0, good);
    assert_eq!(serde_json::from_value::<Operation>(serde_json::to_value(&good).unwrap()).unwrap(), good);
    for levels in [5, 20] {
        assert!(read(&deep(levels).to_bytes()).unwrap_err().to_string().contains("more than 4 levels"));
        let json = serde_json::to_value(deep(levels)).unwrap();
        let error = serde_json::from_value::<Operation>(json).unwrap_err().to_string();
        assert!(error.contains("more than 4 levels"), "{error}");
    }
    // As many levels as fit a program, without a stack for them.
    let beginning = deep(1).to_bytes()[..12].to_vec();
    assert!(read(&beginning.repeat(5000)).is_err());
    assert_eq!(read(&good.to_bytes()).unwrap().0, good, "levels of a failed reading are left");
}

#[test]
fn a_pipeline_has_64_operations_at_most() {
    let list = |count| vec![Operation::from(RandomInvert { p: 0.5 }); count];
    let apply = |count| Operation::from(RandomApply { transforms: list(count).into(), p: 0.5 });
    let pipeline = |last| Pipeline::of([CenterCrop::to(8).into(), apply(16), apply(16), apply(15), apply(last)]);
    assert!(pipeline(12).validate().is_ok());
    assert_eq!(pipeline(13).validate(), Err(PipelineError::TooManyWithin { operations: 65, limit: 64 }));
}
