//! A pack that several machines make: the index of the whole is that of the pack that one machine makes.

use super::forms::{encoded, write_all_kinds};
use super::making::image_that_warns;
use super::{Bench, quietly};
use crate::pack::{
    JoinError, Joined, Pack, PackError, PackFormat, PackOptions, PartIndex, StoredForm, StoredVerdict, join,
    pack_of_index, pack_of_part, verify_sample,
};
use crate::{Dataset, open};
use ddlp_pixels::encode::JpegOptions;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;

/// Packs samples of a folder, and returns the path and what joining needs.
fn part(bench: &Bench, form: StoredForm, samples: Range<u64>) -> (PathBuf, PartIndex) {
    let out = bench.path(&format!("{}-{}", samples.start, samples.end));
    let format = PackFormat::of(form);
    let options = PackOptions { format, overwrite: true, part: Some(samples.clone()), ..PackOptions::default() };
    quietly(&*open(&bench.path("source")).unwrap(), &out, &options).unwrap();
    let pack = Pack::open(&out).unwrap();
    (out, PartIndex { index: index_of(&pack), ids: samples.collect() })
}

fn index_of(pack: &Pack) -> Vec<u8> {
    let mut index = vec![0; pack.layout().data_offset as usize];
    pack.read_bytes(0, &mut index).unwrap();
    index
}

/// Packs all samples of the folder.
fn whole(bench: &Bench, form: StoredForm) -> Pack {
    let out = bench.path("whole.ddlp");
    let options = PackOptions { format: PackFormat::of(form), overwrite: true, ..PackOptions::default() };
    quietly(&*open(&bench.path("source")).unwrap(), &out, &options).unwrap();
    Pack::open(&out).unwrap()
}

/// A folder with images of all kinds, with a damaged and a repaired one, in two classes.
fn bench() -> Bench {
    let bench = Bench::new(1, 1);
    write_all_kinds(&bench);
    let image = encoded(2, (120, 90), &JpegOptions::default());
    fs::create_dir(bench.path("source/class1")).unwrap();
    fs::write(bench.path("source/class1/intact.jpg"), &image).unwrap();
    fs::write(bench.path("source/class1/warns.jpg"), image_that_warns()).unwrap();
    fs::write(bench.path("source/class1/text.jpg"), b"this is no image").unwrap();
    bench
}

#[test]
fn the_parts_together_are_the_pack_of_one_machine_however_they_are_divided() {
    let bench = bench();
    let source = bench.source().identity();
    for form in [StoredForm::Kept, StoredForm::Indexed, StoredForm::Raw, StoredForm::L3] {
        let whole = whole(&bench, form);
        let verdicts: Vec<_> = (0..whole.len()).map(|index| whole.record(index).unwrap().verdict).collect();
        assert!(verdicts.contains(&StoredVerdict::Repaired));
        assert!(verdicts.iter().any(|verdict| matches!(verdict, StoredVerdict::Rejected(_))));
        let samples = whole.len();
        let each_alone = (0..samples).rev().map(|index| index..index + 1).collect();
        let all = 0..samples;
        for divided in [vec![all], vec![7..samples, 0..1, 1..7], each_alone] {
            let parts: Vec<_> = divided.iter().map(|samples| part(&bench, form, samples.clone())).collect();
            let indices: Vec<_> = parts.iter().map(|(_, index)| index.clone()).collect();
            let Joined { index, numbers } = join(&indices, Some(source)).unwrap();
            assert!(index == index_of(&whole), "{form:?}, {divided:?}");
            for ((path, of_part), numbers) in parts.iter().zip(&numbers) {
                assert_eq!(*numbers, of_part.ids);
                let here = pack_of_part(index.clone().into(), Pack::open(path).unwrap(), numbers).unwrap();
                assert_eq!(here.identity(), whole.identity());
                let [mut value, mut expected] = [Vec::new(), Vec::new()];
                for &number in numbers {
                    assert!(verify_sample(&here, number).is_empty(), "{form:?}, {number}");
                    here.read_value(number, &mut value).unwrap();
                    whole.read_value(number, &mut expected).unwrap();
                    assert!(value == expected, "{form:?}, {number}");
                }
                if let Some(elsewhere) = (0..samples).find(|number| !numbers.contains(number)) {
                    assert!(!verify_sample(&here, elsewhere).is_empty());
                }
            }
        }
    }
}

#[test]
fn samples_are_in_the_order_of_their_ids() {
    let bench = Bench::new(1, 4);
    let (_, mut index) = part(&bench, StoredForm::Kept, 0..4);
    index.ids = vec![70, 5, 1 << 40, 6];
    let joined = join(&[index], None).unwrap();
    assert_eq!(joined.numbers, [[2, 0, 3, 1]]);
}

#[test]
fn a_sample_without_bytes_hides_none_that_begins_where_it_does() {
    let bench = Bench::new(1, 2);
    fs::write(bench.path("source/class0/0001.jpg"), b"").unwrap();
    let (path, mut index) = part(&bench, StoredForm::Kept, 0..2);
    index.ids = vec![1, 0];
    let joined = join(&[index], None).unwrap();
    let pack = pack_of_part(joined.index.into(), Pack::open(&path).unwrap(), &joined.numbers[0]).unwrap();
    let extents = [0, 1].map(|number| pack.record(number).unwrap().extent());
    assert!(extents[0].is_empty() && extents[0].start == extents[1].start && !extents[1].is_empty(), "{extents:?}");
    for number in 0..2 {
        assert!(verify_sample(&pack, number).is_empty(), "{number}");
    }
}

#[test]
fn parts_of_a_source_that_has_changed_are_refused() {
    let bench = Bench::new(1, 4);
    let source = bench.source().identity();
    let (_, first) = part(&bench, StoredForm::Kept, 0..2);
    // Now the samples from 2 on are others: one of the first two is there twice.
    fs::copy(bench.path("source/class0/0000.jpg"), bench.path("source/class0/0000a.jpg")).unwrap();
    let (_, second) = part(&bench, StoredForm::Kept, 2..5);
    let changed = bench.source().identity();
    for (parts, source, expected) in [
        (vec![first.clone(), second.clone()], source, (2, changed, source)),
        (vec![first, second.clone()], changed, (0, source, changed)),
        (vec![second], source, (2, changed, source)),
    ] {
        let Err(JoinError::Source { first, found, expected: all }) = join(&parts, Some(source)) else {
            panic!("parts of {} sources", parts.len())
        };
        assert_eq!((first, found, all), expected);
    }
}

#[test]
fn without_a_source_that_all_open_the_division_does_not_show() {
    let bench = Bench::new(1, 4);
    let joined = |divided: &[Range<u64>]| {
        let parts: Vec<_> = divided.iter().map(|samples| part(&bench, StoredForm::Kept, samples.clone()).1).collect();
        join(&parts, None).unwrap().index
    };
    let one = joined(std::slice::from_ref(&(0..4)));
    assert!(one == joined(&[2..4, 0..2]));
    let layout = pack_of_index(one.into()).unwrap().layout().clone();
    assert_eq!(layout.source_identity, layout.identity);
}

#[test]
fn a_part_may_have_nothing_that_decodes_but_the_whole_may_not() {
    let bench = Bench::new(1, 2);
    fs::write(bench.path("source/class0/0000.jpg"), b"this is no image").unwrap();
    let parts = [0..1, 1..2].map(|samples| part(&bench, StoredForm::Indexed, samples).1);
    join(&parts, None).unwrap();
    assert!(matches!(join(&parts[..1], None), Err(JoinError::NoneDecodes { samples: 1 })));
    let all = bench.source();
    let strict = PackOptions { part: Some(0..1), strict: true, ..PackOptions::default() };
    assert!(matches!(quietly(&all, &bench.path("strict"), &strict), Err(PackError::Lost { .. })));
}

#[test]
fn parts_that_make_no_pack_are_refused() {
    let bench = Bench::new(2, 2);
    let (_, first) = part(&bench, StoredForm::Kept, 0..2);
    let (path, second) = part(&bench, StoredForm::Kept, 2..4);
    assert!(matches!(join(&[], None), Err(JoinError::Empty)));
    assert!(matches!(join(&[first.clone(), first.clone()], None), Err(JoinError::Twice { id: 0 })));
    let short = PartIndex { ids: vec![1], ..first.clone() };
    assert!(matches!(join(&[short], None), Err(JoinError::Count { samples: 2, ids: 1 })));
    let damaged = PartIndex { index: first.index[1..].to_vec(), ..first.clone() };
    assert!(matches!(join(&[damaged], None), Err(JoinError::Index(_))));
    let other = Bench::new(1, 2);
    let others = part(&other, StoredForm::Kept, 0..2).1;
    assert!(matches!(join(&[second.clone(), others], None), Err(JoinError::Classes)));

    // A part that was made again of a source that has changed.
    let joined = join(&[first, second], None).unwrap();
    fs::copy(bench.path("source/class0/0000.jpg"), bench.path("source/class1/0001.jpg")).unwrap();
    let opened = Pack::open(&path).unwrap();
    pack_of_part(joined.index.clone().into(), opened, &joined.numbers[1]).unwrap();
    let (path, _) = part(&bench, StoredForm::Kept, 2..4);
    let changed = pack_of_part(joined.index.into(), Pack::open(&path).unwrap(), &joined.numbers[1]);
    assert!(matches!(changed, Err(JoinError::Changed { .. })), "{:?}", changed.err());
}

#[test]
fn forms_whose_places_depend_on_more_are_refused_by_name() {
    let bench = Bench::new(1, 2);
    let photo = encoded(1, (640, 480), &JpegOptions::default());
    fs::write(bench.path("source/class0/0001.jpg"), photo).unwrap();
    for form in [StoredForm::Rows, StoredForm::Pcr] {
        let (_, index) = part(&bench, form, 0..2);
        let refused = join(&[index], None).unwrap_err().to_string();
        assert!(refused.contains(form.name()) && refused.contains("make a pack of all samples first"), "{refused}");
    }
}
