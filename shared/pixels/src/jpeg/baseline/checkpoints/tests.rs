use proptest::prelude::*;

use super::*;
use crate::encode::{self, JpegOptions, Layout};
use crate::synthetic;

fn file(width: u32, height: u32, layout: Layout, restart_rows: u32) -> Vec<u8> {
    let rgb = synthetic::photo(width, height, width);
    let pixels = if layout == Layout::Gray { rgb.into_iter().step_by(3).collect() } else { rgb };
    encode::jpeg(&pixels, width, height, &JpegOptions { layout, restart_rows, ..JpegOptions::default() }).unwrap()
}

#[test]
fn bytes_are_few_and_lead_back() {
    for (width, height, layout, restart_rows) in [
        (500, 375, Layout::Yuv444, 0),
        (500, 375, Layout::Yuv420, 3),
        (301, 33, Layout::Gray, 1),
        (1, 1, Layout::Rgb, 0),
    ] {
        for every in [1, 4, 8, 16, 100_000] {
            let checkpoints = Checkpoints::of(&file(width, height, layout, restart_rows), every).unwrap();
            let bytes = checkpoints.to_bytes();
            assert_eq!(Checkpoints::from_bytes(&bytes).as_ref(), Ok(&checkpoints));
            let most = 5 * checkpoints.len() + 16;
            assert!(bytes.len() <= most, "{} bytes for {} of {layout:?}", bytes.len(), checkpoints.len());
        }
    }
}

#[test]
fn other_files_have_none() {
    let progressive = JpegOptions { progressive: true, ..JpegOptions::default() };
    let progressive = encode::jpeg(&synthetic::photo(64, 64, 1), 64, 64, &progressive).unwrap();
    let good = file(64, 64, Layout::Yuv444, 0);
    for bad in [&progressive[..], &good[..good.len() - 9], b"\xFF\xD8", b""] {
        assert_eq!(Checkpoints::of(bad, 8), None);
    }
}

#[test]
fn nonsense_is_refused() {
    let good = Checkpoints::of(&file(200, 100, Layout::Yuv420, 0), 4).unwrap().to_bytes();
    for length in 0..good.len() {
        assert!(Checkpoints::from_bytes(&good[..length]).is_err(), "{length} of {} bytes", good.len());
    }
    assert!(Checkpoints::from_bytes(&[&good[..], &[0]].concat()).is_err());
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Checkpoints::from_bytes(&bytes)
    };
    // The bytes are version, components, distance, columns, rows, first parameter.
    for (at, value) in [(0, 2), (1, 2), (1, 4), (2, 0), (3, 0), (4, 0), (5, 32)] {
        assert!(with(at, value).is_err(), "byte {at} is {value}");
    }
    // Far more checkpoints than the bytes can hold.
    let mut huge = Vec::new();
    [VERSION, 3, 1, 8192, 8192, 0, 0, 0, 0].into_iter().for_each(|number| put_leb128(&mut huge, number));
    huge.resize(1000, 0);
    assert!(Checkpoints::from_bytes(&huge).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(59),
        ..ProptestConfig::with_cases(2000)
    })]

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(checkpoints) = Checkpoints::from_bytes(&bytes) {
            prop_assert_eq!(Checkpoints::from_bytes(&checkpoints.to_bytes()), Ok(checkpoints));
        }
    }
}
