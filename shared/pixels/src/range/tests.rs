use super::*;

#[test]
fn what_encoders_make_is_left_alone() {
    let mut block = [0; 64];
    block[0] = -64;
    for (step, dc) in [(16, -64), (16, 63), (255, 4), (1, 1016), (1, -1024)] {
        block[0] = dc;
        assert_eq!(bring_into_range(&mut block, &[step; 64]), 0, "{dc} × {step}");
    }
    // A checkerboard of 0 and 255: its energy is in the odd frequencies.
    let sign = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    let mut checkers = [0i16; 64];
    for v in 0..8 {
        for u in 0..8 {
            let basis = |k: usize| {
                let scale: f64 = if k == 0 { 0.5f64.sqrt() } else { 1.0 };
                let angle = |x: usize| (2 * x + 1) as f64 * k as f64 * std::f64::consts::PI / 16.0;
                (0..8).map(|x| sign(x) * angle(x).cos()).sum::<f64>() * scale / 2.0
            };
            checkers[8 * v + u] = (127.5 * basis(u) * basis(v)).round() as i16;
        }
    }
    assert!(checkers.iter().map(|c| i64::from(c.abs())).sum::<i64>() > SURE_SUM, "the quick check suffices");
    assert_eq!(bring_into_range(&mut checkers, &[1; 64]), 0);
}

#[test]
fn wild_blocks_are_tamed() {
    for (fill, step) in [(2047, 255), (-2048, 65535), (1023, 16), (i16::MAX, 1), (i16::MIN, 1), (300, 1)] {
        let mut block = [fill; 64];
        let quant = [step; 64];
        assert!(!is_in_range(&block, &quant));
        let changed = bring_into_range(&mut block, &quant);
        assert!((1..=64).contains(&changed));
        assert!(is_in_range(&block, &quant));
        assert_eq!(bring_into_range(&mut block, &quant), 0);
    }
}

#[test]
fn what_no_encoder_can_write_is_limited() {
    let step_of_1 = [1; 64];
    for (at, value, limited) in
        [(0, 1023, 1023), (0, -1024, -1024), (0, 1024, 1023), (0, -1500, -1023), (7, 1024, 1023), (63, -2000, -1023)]
    {
        let mut block = [0; 64];
        block[at] = value;
        assert_eq!(bring_into_range(&mut block, &step_of_1), 0, "every build decodes it alike");
        assert_eq!(make_encodable(&mut block, &step_of_1), u32::from(value != limited));
        assert_eq!(block[at], limited, "{value} at {at}");
        assert!(is_in_range(&block, &step_of_1));
    }
    for fill in [i16::MIN, i16::MAX] {
        let mut block = [fill; 64];
        assert!(make_encodable(&mut block, &step_of_1) > 0);
        assert!(is_in_range(&block, &step_of_1) && block.iter().all(|value| value.abs() <= 1023));
    }
}

#[test]
fn the_short_cut_is_safe() {
    // The worst case for a given sum: all magnitude is in the coefficient with the largest basis function.
    for at in 0..64 {
        for sign in [1, -1] {
            let mut values = [0i64; 64];
            values[at] = sign * SURE_SUM;
            assert!(decodes_alike(&values), "coefficient {at}");
        }
    }
}
