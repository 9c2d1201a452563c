use super::sample::{View, make};
use super::*;
use crate::error::PixelError;
use crate::level::Level;
use crate::limits::Limits;
use crate::rows::{Band, ImageRows, Interleaved, Sink};
use crate::synthetic;

const BILINEAR: Sampling = Sampling { interpolation: Interpolation::Bilinear, fill: Some([200, 100, 50]) };
const BICUBIC: Sampling = Sampling { interpolation: Interpolation::Bicubic, ..BILINEAR };
const NEAREST: Sampling = Sampling { interpolation: Interpolation::Nearest, ..BILINEAR };

fn whole((width, height): (u32, u32)) -> Rect {
    Rect { x: 0, y: 0, width, height }
}

fn image_of(size: (u32, u32)) -> Vec<u8> {
    synthetic::photo(size.0, size.1, 5)
}

/// Returns a rectangle of the result, made of no more than it needs.
fn part(warp: &Warp, size: (u32, u32), pixels: &[u8], made: Rect) -> Vec<u8> {
    part_by(Level::best(), warp, size, pixels, made)
}

/// Does the same with some vector instructions.
fn part_by(level: Level, warp: &Warp, size: (u32, u32), pixels: &[u8], made: Rect) -> Vec<u8> {
    let mut out = vec![0xA5; (made.width * made.height * 3) as usize];
    let rect = warp.needs(made, size).unwrap_or(Rect { width: 0, height: 0, ..whole(size) });
    let row = |y: u32| &pixels[((y * size.0 + rect.x) * 3) as usize..][..(rect.width * 3) as usize];
    let needed: Vec<u8> = (rect.y..rect.y + rect.height).flat_map(|y| row(y).to_vec()).collect();
    let view = View { size, rect, columns: rect.width, left: 0, pixels: &needed };
    make(level, warp, view, made, &mut out);
    out
}

fn warped(warp: &Warp, size: (u32, u32), pixels: &[u8]) -> Vec<u8> {
    part(warp, size, pixels, whole(warp.size))
}

/// Returns warps of all kinds, into and out of the image, for every interpolation.
fn warps(size: (u32, u32)) -> Vec<Warp> {
    let affine = Affine { angle: 31.0, translate: (3.0, -2.0), scale: 0.8, shear: (12.0, -7.0), center: None };
    let (width, height) = (f64::from(size.0), f64::from(size.1));
    let corners = [(2.0, 1.0), (width - 4.0, 3.0), (width - 1.0, height - 6.0), (5.0, height - 2.0)];
    let made = |sampling| {
        [
            Warp::affine(size, &Affine::default(), sampling),
            Warp::affine(size, &affine, sampling),
            Warp::affine(size, &Affine { scale: 9.0, ..affine }, sampling),
            Warp::affine(size, &Affine { scale: 0.05, center: Some((-7.0, 40.0)), ..affine }, sampling),
            Warp::affine(size, &Affine { translate: (500.0, 0.0), ..affine }, sampling),
            Warp::rotation(size, 77.0, true, None, sampling),
            Warp::rotation(size, -133.0, false, Some((1.0, 2.0)), sampling),
            Warp::perspective(size, corners, sampling).unwrap(),
        ]
    };
    [made(NEAREST), made(BILINEAR), made(BICUBIC)].concat()
}

/// Returns the values of a pixel by the definition, in f64, and whether a rounding error may give another pixel.
fn defined(warp: &Warp, size: (u32, u32), pixels: &[u8], (x, y): (u32, u32)) -> ([f64; 3], bool) {
    let [across, down, n] = warp.matrix.map(|[of_x, of_y, one]| of_x * f64::from(x) + of_y * f64::from(y) + one);
    let (x, y) = (across / n, down / n);
    let inside = |x: f64, y: f64| x >= 0.0 && y >= 0.0 && x < f64::from(size.0) && y < f64::from(size.1);
    let at = |x: f64, y: f64, outside: [u8; 3]| -> [f64; 3] {
        let first = if inside(x, y) { (y as usize * size.0 as usize + x as usize) * 3 } else { 0 };
        std::array::from_fn(|channel| if inside(x, y) { pixels[first + channel] } else { outside[channel] }.into())
    };
    let fill = warp.sampling.fill.unwrap_or_default();
    match warp.sampling.interpolation {
        Interpolation::Nearest => {
            let tie = |place: f64| (place - place.floor() - 0.5).abs() < 1e-6;
            (at(x.round_ties_even(), y.round_ties_even(), fill), tie(x) || tie(y))
        }
        Interpolation::Bilinear => {
            let (left, upper) = (x.floor(), y.floor());
            let (right, lower) = (x - left, y - upper);
            let (mut sums, mut within) = ([0.0; 3], 0.0);
            for (down, of_row) in [(0.0, 1.0 - lower), (1.0, lower)] {
                for (across, of_column) in [(0.0, 1.0 - right), (1.0, right)] {
                    let (x, y, weight) = (left + across, upper + down, of_row * of_column);
                    let values = at(x, y, [0; 3]);
                    sums = std::array::from_fn(|channel| sums[channel] + weight * values[channel]);
                    within += if inside(x, y) { weight } else { 0.0 };
                }
            }
            let filled = |channel: usize| sums[channel] * within + f64::from(fill[channel]) * (1.0 - within);
            (std::array::from_fn(filled), false)
        }
        Interpolation::Bicubic => {
            let (first_x, first_y) = (x.floor() - 1.0, y.floor() - 1.0);
            let weight = |distance: f64| match distance.abs() {
                d if d < 1.0 => d * d * d - 2.0 * d * d + 1.0,
                d if d < 2.0 => -(d * d * d) + 5.0 * d * d - 8.0 * d + 4.0,
                _ => 0.0,
            };
            let last = |length: u32| f64::from(length) - 1.0;
            let is_inside = |place: f64, length: u32| -0.5 <= place && place < last(length) + 0.5;
            let is_edge = |place: f64, length: u32| (place + 0.5).abs().min((last(length) + 0.5 - place).abs()) < 1e-3;
            if !is_inside(x, size.0) || !is_inside(y, size.1) {
                return (fill.map(f64::from), is_edge(x, size.0) || is_edge(y, size.1));
            }
            let mut sums = [0.0; 3];
            for tap_y in [0.0, 1.0, 2.0, 3.0].map(|tap| first_y + tap) {
                for tap_x in [0.0, 1.0, 2.0, 3.0].map(|tap| first_x + tap) {
                    let values = at(tap_x.clamp(0.0, last(size.0)), tap_y.clamp(0.0, last(size.1)), [0; 3]);
                    let weight = weight(x - tap_x) * weight(y - tap_y);
                    sums = std::array::from_fn(|channel| sums[channel] + weight * values[channel]);
                }
            }
            // Values are rounded down, so the middle of the values that are right lies half a level lower.
            (sums.map(|sum| sum.clamp(0.0, 255.5) - 0.5), is_edge(x, size.0) || is_edge(y, size.1))
        }
    }
}

#[test]
fn values_are_those_of_the_definition() {
    let size = (83, 37);
    let pixels = image_of(size);
    for warp in warps(size) {
        // Half a level of rounding, and a place that may be off by 1/4096 of a pixel in both directions, whose weight
        // counts twice at the edges.
        let bound = match warp.sampling.interpolation {
            Interpolation::Nearest => 0.0,
            Interpolation::Bilinear => 0.75,
            Interpolation::Bicubic => 0.9,
        };
        let mut ties = 0;
        for (at, found) in (0..).zip(warped(&warp, size, &pixels).as_chunks::<3>().0) {
            let (expected, is_tie) = defined(&warp, size, &pixels, (at % warp.size.0, at / warp.size.0));
            let close =
                found.iter().zip(expected).all(|(&found, expected)| (f64::from(found) - expected).abs() <= bound);
            assert!(close || is_tie, "{warp:?} at {at}: {found:?} {expected:?}");
            ties += u32::from(is_tie);
        }
        assert!(ties < 20, "{warp:?}: {ties}");
    }
}

#[test]
fn a_rectangle_of_the_result_is_made_of_what_it_needs() {
    let size = (83, 37);
    let pixels = image_of(size);
    for warp in warps(size) {
        let expected = warped(&warp, size, &pixels);
        let (width, height) = warp.size;
        for (x, y) in (0..width).step_by(17).flat_map(|x| (0..height).step_by(9).map(move |y| (x, y))) {
            let made = Rect { x, y, width: (width - x).min(70), height: (height - y).min(5) };
            let row = |y: u32| &expected[((y * width + x) * 3) as usize..][..(made.width * 3) as usize];
            let expected: Vec<u8> = (y..y + made.height).flat_map(|y| row(y).to_vec()).collect();
            assert!(part(&warp, size, &pixels, made) == expected, "{warp:?} {made:?}");
        }
    }
}

#[test]
fn all_vector_instructions_make_the_same() {
    let size = (83, 37);
    let pixels = image_of(size);
    for warp in warps(size) {
        let expected = warped(&warp, size, &pixels);
        for level in Level::tested() {
            let mut out = vec![0; expected.len()];
            let view = View { size, rect: whole(size), columns: size.0, left: 0, pixels: &pixels };
            make(level, &warp, view, whole(warp.size), &mut out);
            assert!(out == expected, "{warp:?} {level:?}");
        }
    }
}

/// Returns numbers from 0 to 1 that look random.
fn random(mut state: u64) -> impl FnMut() -> f64 {
    move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as f64 / (1u64 << 31) as f64
    }
}

#[test]
fn all_vector_instructions_make_the_same_of_random_warps() {
    for seed in 0..400 {
        let mut next = random(seed);
        let mut whole_number = |first: u32, end: u32| first + (next() * f64::from(end - first)) as u32;
        let size = (whole_number(1, 50), whole_number(1, 40));
        let result = (whole_number(1, 60), whole_number(1, 30));
        let fill = [0; 3].map(|_| whole_number(0, 256) as u8);
        let pixels: Vec<u8> = (0..size.0 * size.1 * 3).map(|_| whole_number(0, 256) as u8).collect();
        // A part of the warps shifts by whole pixels, so that places lie on the edges.
        let is_shift = seed % 5 == 0;
        let mut matrix = [[1.0, 0.0, f64::from(whole_number(0, 9)) - 4.0], [0.0, 1.0, -1.0], [0.0, 0.0, 1.0]];
        if !is_shift {
            for (row, length) in matrix.iter_mut().zip([size.0, size.1]) {
                *row = [next() * 3.0 - 1.5, next() * 3.0 - 1.5, (next() * 1.4 - 0.2) * f64::from(length)];
            }
        }
        if seed % 2 == 1 {
            matrix[2] = [next() * 0.02, next() * 0.02, 0.7 + next() * 0.5];
        }
        let warp = Warp { size: result, matrix, sampling: Sampling { fill: Some(fill), ..BILINEAR } };
        let expected = part_by(Level::Base, &warp, size, &pixels, whole(result));
        for level in Level::tested() {
            let found = part_by(level, &warp, size, &pixels, whole(result));
            assert!(found == expected, "seed {seed} {size:?} {warp:?} {level:?}");
        }
    }
}

/// An image's places fit 32 bits up to a certain length of its sides.
#[test]
fn all_vector_instructions_make_the_same_of_long_images() {
    for width in [(1 << 19) - 1, 1 << 19, (1 << 20) + 3] {
        let size = (width, 2);
        let pixels: Vec<u8> = (0..width * 6).map(|at| ((at * 7) >> 3) as u8).collect();
        let shift = Affine { translate: (0.3, 0.4), ..Affine::default() };
        let warp = Warp::affine(size, &shift, BILINEAR);
        let made = Rect { x: width - 100, y: 0, width: 100, height: 2 };
        let expected = part_by(Level::Base, &warp, size, &pixels, made);
        for level in Level::tested() {
            assert!(part_by(level, &warp, size, &pixels, made) == expected, "{width} {level:?}");
        }
    }
}

/// An image that comes in bands of a few rows, wider than what was asked for.
struct Bands<'a>((u32, u32), &'a [u8]);

impl ImageRows for Bands<'_> {
    fn size(&self) -> (u32, u32) {
        self.0
    }

    fn read(&mut self, rect: Rect, sink: Sink<'_>) -> Result<(), PixelError> {
        let stride = self.0.0 as usize * 3;
        for y in (0..rect.height).step_by(3) {
            let rows = (rect.height - y).min(3);
            let pixels = &self.1[(rect.y + y) as usize * stride..][..rows as usize * stride];
            sink(Band { y, rows, columns: self.0.0, left: rect.x, pixels })?;
        }
        Ok(())
    }
}

#[test]
fn images_in_bands_are_warped_alike() {
    let size = (83, 37);
    let pixels = image_of(size);
    let mut memory = WarpMemory::default();
    for warp in warps(size) {
        let expected = warped(&warp, size, &pixels);
        let mut whole_image = Interleaved { width: size.0, height: size.1, pixels: &pixels };
        for image in [&mut whole_image as &mut dyn ImageRows, &mut Bands(size, &pixels)] {
            let mut seen: Vec<u8> = Vec::new();
            let mut warped = Warped::new(image, &warp, &mut memory, Limits::default());
            assert_eq!(warped.size(), warp.size());
            let mut sink = |band: Band<'_>| {
                (0..band.rows).for_each(|row| seen.extend(band.row(row, warp.size.0)));
                Ok(())
            };
            warped.read(whole(warp.size), &mut sink).unwrap();
            assert!(seen == expected, "{warp:?}");
        }
    }
}

#[test]
fn turns_and_shifts_by_whole_pixels_move_pixels_only() {
    // Both sides are even, so that no place lies halfway between two pixels.
    let (size, pixels) = ((8, 4), image_of((8, 4)));
    let pixel = |x: u32, y: u32| pixels.as_chunks::<3>().0[(y * 8 + x) as usize];
    for sampling in [NEAREST, BILINEAR, BICUBIC] {
        let quarter = Warp::rotation(size, 90.0, true, None, sampling);
        assert_eq!(quarter.size(), (4, 8));
        let expected: Vec<_> = (0..8).flat_map(|y| (0..4).map(move |x| pixel(7 - y, x))).collect();
        assert_eq!(warped(&quarter, size, &pixels), expected.as_flattened(), "counterclockwise");
        let half = Warp::rotation(size, 180.0, true, None, sampling);
        assert_eq!(half.size(), size);
        let expected: Vec<_> = (0..4).flat_map(|y| (0..8).map(move |x| pixel(7 - x, 3 - y))).collect();
        assert_eq!(warped(&half, size, &pixels), expected.as_flattened());
        let shift = Warp::affine(size, &Affine { translate: (2.0, -1.0), ..Affine::default() }, sampling);
        let moved = |x: u32, y: u32| if x >= 2 && y < 3 { pixel(x - 2, y + 1) } else { sampling.fill.unwrap() };
        let expected: Vec<_> = (0..4).flat_map(|y| (0..8).map(move |x| moved(x, y))).collect();
        assert_eq!(warped(&shift, size, &pixels), expected.as_flattened());
    }
}

#[test]
fn corners_of_a_perspective_land_where_they_shall() {
    let (size, pixels) = ((40, 30), image_of((40, 30)));
    let corners = [(3.0, 2.0), (36.0, 5.0), (38.0, 29.0), (1.0, 24.0)];
    let places = perspective_matrix(size, corners).unwrap();
    for ((x, y), (to_x, to_y)) in corners.into_iter().zip([(0.0, 0.0), (39.0, 0.0), (39.0, 29.0), (0.0, 29.0)]) {
        let n = places[6] * x + places[7] * y + 1.0;
        let found = [0, 3].map(|at| (places[at] * x + places[at + 1] * y + places[at + 2]) / n);
        assert!((found[0] - to_x).abs() < 1e-9 && (found[1] - to_y).abs() < 1e-9, "{found:?}");
    }
    let still = [(0.0, 0.0), (39.0, 0.0), (39.0, 29.0), (0.0, 29.0)];
    let still = Warp::perspective(size, still, BILINEAR).unwrap();
    assert!(warped(&still, size, &pixels) == pixels);
    assert_eq!(Warp::perspective((40, 1), [(0.0, 0.0), (39.0, 0.0), (39.0, 0.0), (0.0, 0.0)], NEAREST), None);
}

/// A place may be infinite, or no number.
#[test]
fn warps_without_sense_make_some_pixels() {
    let (size, pixels) = ((19, 11), image_of((19, 11)));
    let folded = [(9.0, 5.0), (10.0, 0.0), (9.0, 6.0), (8.0, 10.0)];
    for sampling in [NEAREST, BILINEAR, BICUBIC] {
        let affine = |scale, shear| Warp::affine(size, &Affine { scale, shear, ..Affine::default() }, sampling);
        let warps = [
            affine(0.0, (0.0, 0.0)),
            affine(f64::NAN, (0.0, 0.0)),
            affine(1e-300, (0.0, 0.0)),
            affine(1.0, (90.0, 90.0)),
            affine(1.0, (f64::INFINITY, 0.0)),
            Warp::rotation(size, f64::MAX, true, Some((1e300, 0.0)), sampling),
            Warp::perspective(size, folded, sampling).unwrap(),
        ];
        for warp in warps {
            let (width, height) = warp.size();
            if u64::from(width) * u64::from(height) < 10_000 {
                warped(&warp, size, &pixels);
            }
        }
    }
}

/// Returns the numbers between commas.
fn numbers(list: &str) -> Vec<f64> {
    list.split(',').filter(|number| !number.is_empty()).map(|number| number.parse().unwrap()).collect()
}

/// Returns the warp that a golden line names by its function and parameters.
fn named(name: &str, size: (u32, u32)) -> Warp {
    let words: Vec<&str> = name.split(':').collect();
    let center = |list| numbers(list).first_chunk().map(|&[x, y]| (x, y));
    let interpolation = match words[1] {
        "nearest" => Interpolation::Nearest,
        "bilinear" => Interpolation::Bilinear,
        _ => Interpolation::Bicubic,
    };
    let sampling = Sampling { interpolation, fill: Some([words.last().unwrap().parse().unwrap(); 3]) };
    let parameters = numbers(words[2]);
    match words[0] {
        "rotate" => Warp::rotation(size, parameters[0], words[3] == "1", center(words[4]), sampling),
        "affine" => {
            let [angle, x, y, scale, shear_x, shear_y] = *parameters.as_array().unwrap();
            let affine =
                Affine { angle, translate: (x, y), scale, shear: (shear_x, shear_y), center: center(words[3]) };
            Warp::affine(size, &affine, sampling)
        }
        "perspective" => {
            let corner = |at: usize| (parameters[2 * at], parameters[2 * at + 1]);
            Warp::perspective(size, [0, 1, 2, 3].map(corner), sampling).unwrap()
        }
        other => panic!("{other}"),
    }
}

/// Compares with torchvision, which computes places in 32-bit floats: where a place lies halfway between two pixels, it
/// may take the other one.
#[test]
fn warps_are_torchvisions() {
    assert_eq!(compared_with_torchvision(include_str!("../../tests/golden/warps.txt")), 26);
    assert_eq!(compared_with_torchvision(include_str!("../../tests/golden/bicubic.txt")), 13);
}

/// Compares with the lines of a golden file, and returns their number.
fn compared_with_torchvision(lines: &str) -> usize {
    let mut lines = lines.lines().map(|line| {
        let [name, width, height, hex] = *line.split(' ').collect::<Vec<_>>().as_array().unwrap();
        let digits = hex.as_bytes().chunks(2).map(|digits| std::str::from_utf8(digits).unwrap());
        let pixels: Vec<u8> = digits.map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect();
        (name, (width.parse().unwrap(), height.parse().unwrap()), pixels)
    });
    let (_, size, image) = lines.next().unwrap();
    let mut count = 0;
    for (name, expected_size, expected) in lines {
        let warp = named(name, size);
        assert_eq!(warp.size(), expected_size, "{name}");
        let found = warped(&warp, size, &image);
        let differences = || found.iter().zip(&expected).map(|(found, expected)| u32::from(found.abs_diff(*expected)));
        let mean = f64::from(differences().sum::<u32>()) / found.len() as f64;
        let most = differences().max().unwrap();
        match warp.sampling.interpolation {
            Interpolation::Nearest => assert!(mean < 0.2, "{name}: {mean}"),
            Interpolation::Bilinear => assert!(most <= 1 && mean < 0.1, "{name}: {most} {mean}"),
            Interpolation::Bicubic => assert!(most <= 1 && mean < 0.01, "{name}: {most} {mean}"),
        }
        count += 1;
    }
    count
}
