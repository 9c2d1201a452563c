use super::*;

/// Pixels in which every value and every block length occurs.
fn noise(pixels: usize) -> Vec<u8> {
    (0..pixels as u32 * 3).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn every_level_gives_the_same_values() {
    for pixels in [0, 1, BLOCK - 1, BLOCK, 5 * BLOCK + 17] {
        let noise = noise(pixels);
        let changes: [fn(Level, &mut [u8]); 7] = [
            |level, pixels| scale(level, pixels, 1.37, -20.0),
            |level, pixels| blend_with_gray(level, pixels, 1.8, -0.8),
            |level, pixels| turn_hue(level, pixels, 1.3),
            |level, pixels| turn_hue(level, pixels, -3.0),
            make_gray,
            |level, pixels| {
                let rows = pixels.to_vec();
                let length = pixels.len().saturating_sub(8);
                let around = [0, 1, 2].map(|at| rows.get(at..at + length + 6).unwrap_or(&[0; 6]));
                smooth(level, &mut pixels[..length], around, -0.7);
            },
            |level, pixels| {
                let sum = sum_of_grays(level, pixels);
                pixels.fill((sum % 251) as u8);
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut expected = noise.clone();
            change(Level::Base, &mut expected);
            for level in Level::tested() {
                let mut found = noise.clone();
                change(level, &mut found);
                assert!(found == expected, "change {number} of {pixels} pixels, {}", level.name());
            }
        }
    }
}

#[test]
fn values_stay_between_0_and_255() {
    let mut pixels = vec![0, 100, 255];
    scale(Level::best(), &mut pixels, 3.0, -90.0);
    assert_eq!(pixels, [0, 210, 255]);
    scale(Level::best(), &mut pixels, f32::MAX, f32::MIN);
    assert_eq!(pixels, [0, 255, 255]);
    scale(Level::best(), &mut pixels, f32::INFINITY, f32::NAN);
    assert_eq!(pixels, [0; 3]);
}

#[test]
fn a_thirteenth_is_rounded_to_the_nearest() {
    for sum in 0..=13 * 255 {
        assert_eq!(thirteenth(sum), (f64::from(sum) / 13.0).round() as i32, "{sum}");
    }
}

#[test]
fn grays_are_those_of_the_weights() {
    for ([red, green, blue], gray) in [([0, 0, 0], 0), ([255, 0, 0], 76), ([0, 255, 0], 149), ([255, 255, 255], 254)] {
        let mut pixel = vec![red, green, blue];
        assert_eq!(sum_of_grays(Level::best(), &pixel), gray);
        make_gray(Level::best(), &mut pixel);
        assert_eq!(pixel, [gray as u8; 3]);
    }
}

#[test]
fn turning_the_hue_by_thirds_changes_the_places_of_the_channels() {
    for pixel in noise(500).as_chunks::<3>().0 {
        let [red, green, blue] = *pixel;
        for (sixths, expected) in [(0.0, [red, green, blue]), (2.0, [blue, red, green]), (-2.0, [green, blue, red])] {
            let mut turned = *pixel;
            turn_hue(Level::best(), &mut turned, sixths);
            // A fraction just below a whole number is dropped.
            assert!(turned.iter().zip(expected).all(|(found, expected)| found.abs_diff(expected) <= 1), "{pixel:?}");
        }
    }
    let mut gray = [90; 3];
    turn_hue(Level::best(), &mut gray, 1.7);
    assert_eq!(gray, [90; 3]);
}
