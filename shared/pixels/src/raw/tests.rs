use proptest::prelude::*;

use super::*;
use crate::form_image::FormRows;
use crate::limits::Limits;
use crate::rows::ImageRows;
use crate::synthetic;

fn image<'a>(decoder: &'a RawRows, bytes: &'a [u8], (width, height): (u32, u32), detail: &'a [u8]) -> FormImage<'a> {
    let (form, orientation, was_shrunk, offset) = (3, 1, false, 0);
    FormImage { form, decoder, width, height, orientation, was_shrunk, detail, offset, bytes }
}

fn cut(image: FormImage<'_>, rect: Rect) -> Result<Vec<u8>, PixelError> {
    let limits = Limits { pixels: u64::MAX, ..Limits::default() };
    let mut memory = Vec::new();
    let mut rows = FormRows::new(image, limits, &mut memory)?;
    let mut out = Vec::new();
    rows.read(rect, &mut |band| {
        assert_eq!(band.y as usize * rect.width as usize * 3, out.len(), "bands come one after the other");
        (0..band.rows).for_each(|row| out.extend_from_slice(band.row(row, rect.width)));
        Ok(())
    })?;
    Ok(out)
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(53),
        ..ProptestConfig::with_cases(1500)
    })]

    #[test]
    fn a_rectangle_is_made_of_the_groups_it_touches(
        width in 1u32..300, height in 1u32..200, group_rows in 1u32..40, corners: [u16; 4], damage: prop::sample::Index,
    ) {
        let span = |first: u16, second: u16, length: u32| {
            let (first, second) = (u32::from(first) % length, u32::from(second) % length);
            (first.min(second), first.abs_diff(second) + 1)
        };
        let ((x, across), (y, down)) = (span(corners[0], corners[1], width), span(corners[2], corners[3], height));
        let rect = Rect { x, y, width: across, height: down };
        let mut pixels = synthetic::photo(width, height, 3);
        let groups = RawRows { group_rows };
        let checksums = groups.checksums_of(&pixels, width);
        let row_bytes = width as usize * 3;
        let rows = pixels.chunks_exact(row_bytes).skip(y as usize).take(down as usize);
        let expected: Vec<u8> =
            rows.flat_map(|row| row[x as usize * 3..][..across as usize * 3].to_vec()).collect();

        let touched = groups.groups_of(y..y + down, height);
        prop_assert_eq!(touched.start, y / group_rows * group_rows);
        prop_assert_eq!(touched.end, ((y + down).div_ceil(group_rows) * group_rows).min(height));
        let bytes = touched.start as usize * row_bytes..touched.end as usize * row_bytes;
        let part = |pixels: &[u8], first_row: u32| {
            let offset = u64::from(first_row) * row_bytes as u64;
            cut(FormImage { offset, ..image(&groups, pixels, (width, height), &checksums) }, rect)
        };
        prop_assert!(part(&pixels[bytes.clone()], touched.start).unwrap() == expected);
        prop_assert!(part(&pixels, 0).unwrap() == expected);
        if touched.len() > 1 {
            let fewer = part(&pixels[bytes.start..bytes.end - row_bytes], touched.start);
            prop_assert!(matches!(fewer, Err(PixelError::Malformed { .. })), "{:?}", fewer.map(drop));
        }

        // A flipped bit is noticed if its row is used, and only then.
        let at = damage.index(pixels.len());
        pixels[at] ^= 1;
        let outcome = part(&pixels, 0);
        if bytes.contains(&at) {
            prop_assert!(matches!(outcome, Err(PixelError::Checksum { .. })), "{:?}", outcome.map(drop));
        } else {
            prop_assert!(outcome.unwrap() == expected);
        }
    }
}

#[test]
fn what_cannot_be_is_an_error() {
    let pixels = synthetic::photo(20, 10, 1);
    let of = |group_rows| RawRows { group_rows };
    let checksums = of(4).checksums_of(&pixels, 20);
    let good = image(&RawRows { group_rows: 4 }, &pixels, (20, 10), &checksums);
    let whole = Rect { x: 0, y: 0, width: 20, height: 10 };
    assert_eq!(cut(good, whole), Ok(pixels.clone()));
    let first_two_groups = FormImage { bytes: &pixels[..8 * 60], ..good };
    assert!(cut(first_two_groups, Rect { height: 8, ..whole }).is_ok());
    for bad in [
        FormImage { width: 0, ..good },
        FormImage { height: 0, ..good },
        FormImage { orientation: 0, ..good },
        FormImage { orientation: 9, ..good },
        FormImage { decoder: &of(0), ..good },
        FormImage { decoder: &of(5), ..good },
        FormImage { detail: &checksums[..8], ..good },
        FormImage { width: u32::MAX, height: u32::MAX, decoder: &of(u32::MAX), ..good },
        FormImage { bytes: &pixels[..60 * 8 - 1], ..good },
        FormImage { bytes: &pixels[..60 * 7], ..good },
        FormImage { bytes: &pixels[..60 * 4], offset: 60 * 2, ..good },
        FormImage { offset: 60 * 4, ..good },
        FormImage { offset: u64::MAX, ..good },
        FormImage { offset: 1, bytes: &pixels[1..], ..good },
        FormImage { offset: 60, bytes: &pixels[60..], ..good },
        first_two_groups,
        FormImage { bytes: &[], ..good },
    ] {
        assert!(matches!(cut(bad, whole), Err(PixelError::Malformed { .. })), "{bad:?}");
    }
    let (all, one) = (of(u32::MAX), of(u32::MAX).checksums_of(&[0; 3], 1));
    let one_group = FormImage { decoder: &all, detail: &one, ..good };
    for vast in [
        FormImage { width: 1 << 31, height: 1, ..one_group },
        FormImage { width: u32::MAX, height: u32::MAX, bytes: &[], ..one_group },
    ] {
        assert!(cut(vast, Rect { x: 0, y: 0, width: 1, height: 1 }).is_err());
    }
}
