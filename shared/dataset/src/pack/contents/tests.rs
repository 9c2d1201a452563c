use super::super::format::classes_to_bytes;
use super::*;
use proptest::prelude::*;

#[test]
fn labels_in_a_hole_take_no_memory() {
    let mut labels = Labels::default();
    let piece = vec![0; 1 << 20];
    for _ in 0..64 {
        labels.append(&piece).unwrap();
    }
    labels.append(&[7, 0, 0, 0, 8, 0, 0, 0]).unwrap();
    let kept = labels.blocks.iter().filter(|block| matches!(block, LabelBlock::Each(_))).count();
    assert_eq!((kept, labels.blocks.len()), (1, 64 * 256 + 1));
    assert_eq!([0, (16 << 20) - 1, 16 << 20, (16 << 20) + 1].map(|index| labels.get(index)), [0, 0, 7, 8]);
}

#[test]
#[should_panic(expected = "sample 3 of 3")]
fn a_label_past_the_last_one_is_refused_though_its_block_has_equal_labels() {
    let mut labels = Labels::default();
    labels.append(&[0; 12]).unwrap();
    labels.get(3);
}

#[test]
fn class_names_of_a_hole_are_not_kept() {
    let mut classes = ClassNames::new(1);
    for _ in 0..64 {
        classes.take(&[0; 1 << 16]);
        assert!(classes.pending.capacity() <= 2 << 16);
    }
    assert_eq!(classes.finish().unwrap_err(), "4194300 bytes follow the last class");
}

#[test]
fn a_class_name_beyond_the_limit_is_refused() {
    let of = |length: u32| {
        let bytes = classes_to_bytes(&["x".repeat(length as usize)]);
        let mut classes = ClassNames::new(1);
        bytes.chunks(100).for_each(|piece| classes.take(piece));
        classes.finish()
    };
    assert_eq!(of(CLASS_NAME_BYTES_MAX).unwrap()[0].len(), CLASS_NAME_BYTES_MAX as usize);
    assert!(of(CLASS_NAME_BYTES_MAX + 1).unwrap_err().contains("class 0 has 1025 bytes"));
}

proptest! {
    #[test]
    fn labels_read_equal_labels_written(runs in prop::collection::vec((0u32..4, 1usize..3000), 1..12)) {
        let written: Vec<u32> = runs.iter().flat_map(|&(label, times)| vec![label; times]).collect();
        let bytes: Vec<u8> = written.iter().flat_map(|label| label.to_le_bytes()).collect();
        let (mut labels, mut check) = (Labels::default(), LabelCheck::new(3));
        for piece in bytes.chunks(2 * BLOCK_BYTES as usize) {
            labels.append(piece).unwrap();
            check.take(piece);
        }
        prop_assert!((0..).zip(&written).all(|(index, &label)| labels.get(index) == label));
        let wrong = written.iter().position(|&label| label == 3);
        let problem = wrong.map(|sample| format!("sample {sample} has label 3, and there are 3 classes"));
        prop_assert_eq!(check.finish().err(), problem);
    }

    #[test]
    fn class_names_do_not_depend_on_the_pieces(
        names in prop::collection::vec(".{0,40}", 0..20),
        piece in 1usize..100,
    ) {
        let bytes = classes_to_bytes(&names);
        let parse = |bytes: &[u8], count| {
            let mut classes = ClassNames::new(count);
            bytes.chunks(piece).for_each(|piece| classes.take(piece));
            classes.finish()
        };
        let count = names.len() as u32;
        prop_assert!(parse(&bytes[..bytes.len().saturating_sub(1)], count).is_err() || names.is_empty());
        prop_assert!(parse(&[&bytes[..], &[0]].concat(), count).is_err());
        prop_assert_eq!(parse(&bytes, count).unwrap(), names);
    }
}
