use proptest::prelude::*;

use super::*;

/// Cuts pixel by pixel, as the definition says.
fn expected(planes: &[u8], (width, height): (u32, u32), window: Window, flip: bool) -> Vec<u8> {
    let plane = (width * height) as usize;
    let mut out = Vec::new();
    for y in 0..i64::from(window.height) {
        for column in 0..i64::from(window.width) {
            let column = if flip { i64::from(window.width) - 1 - column } else { column };
            let (x, y) = (window.x + column, window.y + y);
            let inside = (0..i64::from(width)).contains(&x) && (0..i64::from(height)).contains(&y);
            let at = y * i64::from(width) + x;
            out.extend((0..3).map(|channel| if inside { planes[channel * plane + at as usize] } else { 0 }));
        }
    }
    out
}

fn check(size: (u32, u32), window: Window, flip: bool) {
    let bytes: Vec<u8> = (0..size.0 * size.1 * 3).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect();
    let wanted = expected(&bytes, size, window, flip);
    for level in Level::tested() {
        let mut row = Vec::new();
        let mut planes = Planes::new(size, &bytes, &mut row, level).unwrap();
        let mut out = vec![0xA5; wanted.len()];
        assert!(planes.cut_directly(window, flip, &mut out));
        assert!(out == wanted, "{size:?} {window:?} {flip} {level:?}");
    }
}

#[test]
fn every_window_of_cifars_recipe_is_cut_as_defined() {
    for at in 0..81 {
        for flip in [false, true] {
            check((32, 32), Window { x: at % 9 - 4, y: at / 9 - 4, width: 32, height: 32 }, flip);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(67),
        ..ProptestConfig::with_cases(256)
    })]

    #[test]
    fn any_window_is_cut_as_defined(
        width in 1u32..70,
        height in 1u32..20,
        x in -90i64..90,
        y in -30i64..30,
        across in 1u32..90,
        down in 1u32..40,
        flip: bool,
    ) {
        check((width, height), Window { x, y, width: across, height: down }, flip);
    }
}

#[test]
fn windows_far_outside_are_zero() {
    for (x, y) in [(200, 0), (-200, 0), (0, 200), (0, -200), (1 << 17, -(1 << 17))] {
        check((40, 30), Window { x, y, width: 33, height: 3 }, true);
    }
}
