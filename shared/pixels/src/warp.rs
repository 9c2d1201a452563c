//! Warps: each pixel of the result comes from the place in the image that a matrix names.
//!
//! The conventions are torchvision's for tensors: pixel x covers x to x + 1, a rotation turns around the centre of the
//! image, and coordinates round half to even. A place is computed in f64 with +, −, ×, ÷, in one order, so every
//! machine finds the same one; sines come from the pinned `libm`. Bilinear interpolation is fixed point, with places in
//! 1/2048 of a pixel. Pixels outside the image have the fill colour. `sample` makes pixels, `warped` reads an image
//! through a warp.

use crate::geometry::Rect;
use serde::{Deserialize, Serialize};

mod sample;
mod warped;

pub(crate) use sample::{View, displace};
pub(crate) use warped::{WarpMemory, Warped};

/// How a value is made from the pixels around a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// Takes the nearest pixel.
    Nearest,
    /// Blends the four pixels around the place.
    #[default]
    Bilinear,
    /// Blends the sixteen pixels around the place by a cubic with a = −1, as Pillow does when it transforms an image:
    /// torchvision has no bicubic warp of tensors. A place within the image is never blended with the fill colour.
    Bicubic,
}

/// How a warp makes pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// How a value is made from the pixels around a place.
    pub interpolation: Interpolation,
    /// Red, green and blue of the pixels outside the image. Without a colour they are black, and a bilinear place at
    /// the edge is darkened once. With a colour it is blended with black, and then with the colour. Both as in
    /// torchvision.transforms.v2.
    pub fill: Option<[u8; 3]>,
}

impl Sampling {
    /// The nearest pixel, with black outside the image.
    pub const NEAREST: Self = Self { interpolation: Interpolation::Nearest, fill: None };
}

/// Parameters of torchvision's function `affine`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// Angle of the rotation in degrees, clockwise.
    pub angle: f64,
    /// Translation after the rotation, to the right and down, in pixels.
    pub translate: (f64, f64),
    /// Factor of the size.
    pub scale: f64,
    /// Angles of the shears parallel to the x axis and to the y axis, in degrees, between −90 and 90.
    pub shear: (f64, f64),
    /// The point that rotation, scaling and shears leave in place, in pixels from the upper left corner; `None` for the
    /// centre of the image.
    pub center: Option<(f64, f64)>,
}

impl Default for Affine {
    /// Returns the parameters that change nothing.
    fn default() -> Self {
        Self { angle: 0.0, translate: (0.0, 0.0), scale: 1.0, shear: (0.0, 0.0), center: None }
    }
}

/// A warp: the size of the result, and where each of its pixels comes from.
///
/// Pixel (x, y) of the result comes from the place ((a x + b y + c) / n, (d x + e y + f) / n) of the image, where n is
/// g x + h y + i. Whole numbers are the centres of pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warp {
    size: (u32, u32),
    /// The three rows a, b, c; d, e, f; g, h, i.
    matrix: [[f64; 3]; 3],
    sampling: Sampling,
}

impl Warp {
    /// Returns the warp of torchvision's function `affine` for an image of this size. The result has the same size.
    pub fn affine(size: (u32, u32), affine: &Affine, sampling: Sampling) -> Self {
        Self::centered(size, size, inverse(affine, size), sampling)
    }

    /// Returns the warp of torchvision's function `rotate` for an image of this size: a rotation by `angle` degrees,
    /// counterclockwise. If `expand` is set, the result has room for the whole rotated image (rotated around its
    /// centre); otherwise it has the image's size.
    pub fn rotation(
        size: (u32, u32),
        angle: f64,
        expand: bool,
        center: Option<(f64, f64)>,
        sampling: Sampling,
    ) -> Self {
        let matrix = inverse(&Affine { angle: -angle, center, ..Affine::default() }, size);
        let result = if expand { expanded(matrix, size) } else { size };
        Self::centered(size, result, matrix, sampling)
    }

    /// Returns the warp of torchvision's function `perspective` for an image of this size: the image's corner pixels,
    /// clockwise from the upper left one, move to these places. The result has the same size. Returns `None` if no
    /// matrix moves them there, as for an image of one row.
    pub fn perspective(size: (u32, u32), corners: [(f64, f64); 4], sampling: Sampling) -> Option<Self> {
        let [a, b, c, d, e, f, g, h] = perspective_matrix(size, corners)?;
        let n = [g, h, 1.0 + 0.5 * g + 0.5 * h];
        // Corners are given by the coordinates of pixels, but places are counted from the pixels' upper left edges, as
        // in torchvision.
        let row = |x: f64, y: f64, one: f64| [x - 0.5 * n[0], y - 0.5 * n[1], 0.5 * x + 0.5 * y + one - 0.5 * n[2]];
        Some(Self { size, matrix: [row(a, b, c), row(d, e, f), n], sampling })
    }

    /// Returns the warp by a matrix between coordinates that are counted from the centres of result and image.
    fn centered(from: (u32, u32), size: (u32, u32), matrix: [[f64; 3]; 2], sampling: Sampling) -> Self {
        let half = |length: u32| 0.5 * f64::from(length);
        let row = |[x, y, one]: [f64; 3], length: u32| {
            [x, y, x * (0.5 - half(size.0)) + y * (0.5 - half(size.1)) + one + half(length) - 0.5]
        };
        let matrix = [row(matrix[0], from.0), row(matrix[1], from.1), [0.0, 0.0, 1.0]];
        Self { size, matrix, sampling }
    }

    /// Returns the same warp with another way to make pixels.
    pub fn sampled(self, sampling: Sampling) -> Self {
        Self { sampling, ..self }
    }

    /// Returns width and height of the result.
    pub fn size(&self) -> (u32, u32) {
        self.size
    }

    /// Returns whether the lines between places stay parallel.
    fn is_affine(&self) -> bool {
        self.matrix[2] == [0.0, 0.0, 1.0]
    }

    /// Returns the rectangle of an image of this size from which the rectangle `made` of the result comes, or `None` if
    /// `made` lies outside the image.
    pub(crate) fn needs(&self, made: Rect, (width, height): (u32, u32)) -> Option<Rect> {
        let whole = Rect { x: 0, y: 0, width, height };
        let [mut least, mut most] = [[f64::INFINITY; 2], [f64::NEG_INFINITY; 2]];
        for y in [made.y, made.y + made.height - 1] {
            for x in [made.x, made.x + made.width - 1] {
                let (x, y) = (f64::from(x), f64::from(y));
                let [across, down, n] = self.matrix.map(|[of_x, of_y, one]| of_x * x + (of_y * y + one));
                let place = [across / n, down / n];
                // Where n changes its sign, places reach to infinity.
                if n.is_nan() || n < f64::MIN_POSITIVE || place.iter().any(|place| !place.is_finite()) {
                    return Some(whole);
                }
                least = [0, 1].map(|axis| least[axis].min(place[axis]));
                most = [0, 1].map(|axis| most[axis].max(place[axis]));
            }
        }
        // Sums round monotonically, quotients of sums do not.
        let slack = if self.is_affine() { 0.0 } else { 1.0 };
        // Bicubic interpolation needs two pixels on each side of the place.
        let more = if self.sampling.interpolation == Interpolation::Bicubic { 1.0 } else { 0.0 };
        let span = |axis: usize, length: u32| {
            let limit = f64::from(length);
            let first = (least[axis].floor() - slack - more).clamp(0.0, limit);
            // Bilinear interpolation needs the pixel after the place, too.
            let end = (most[axis].ceil() + slack + 2.0 + more).clamp(0.0, limit);
            // Both lie in 0..=limit, a u32, so the casts lose nothing.
            (end > first).then_some((first as u32, (end - first) as u32))
        };
        let (x, across) = span(0, width)?;
        let (y, down) = span(1, height)?;
        Some(Rect { x, y, width: across, height: down })
    }
}

/// Returns the matrix from places in the result to places in the image, both counted from their centres: torchvision's
/// `_get_inverse_affine_matrix`.
fn inverse(affine: &Affine, (width, height): (u32, u32)) -> [[f64; 3]; 2] {
    let Affine { angle, translate, scale, shear, center } = *affine;
    let [angle, shear_x, shear_y] = [angle, shear.0, shear.1].map(|degrees| degrees * (std::f64::consts::PI / 180.0));
    let center = center.map_or((0.0, 0.0), |(x, y)| (x - 0.5 * f64::from(width), y - 0.5 * f64::from(height)));
    let cos_y = libm::cos(shear_y);
    let [across, down] = [libm::cos(angle - shear_y) / cos_y, libm::sin(angle - shear_y) / cos_y];
    let tan_x = libm::tan(shear_x);
    let rows = [[libm::cos(angle) - down * tan_x, libm::sin(angle) + across * tan_x], [-down, across]];
    let row = |[x, y]: [f64; 2], center_of: f64| {
        let (x, y) = (x / scale, y / scale);
        [x, y, x * (-center.0 - translate.0) + y * (-center.1 - translate.1) + center_of]
    };
    [row(rows[0], center.0), row(rows[1], center.1)]
}

/// Returns the size that has room for the whole image: torchvision's `_compute_affine_output_size`, which computes in
/// 32-bit floats.
fn expanded(matrix: [[f64; 3]; 2], (width, height): (u32, u32)) -> (u32, u32) {
    let (half_width, half_height) = (0.5 * width as f32, 0.5 * height as f32);
    let room = |row: [f64; 3], half: f32| {
        let [x, y, one] = row.map(|value| value as f32);
        let reach = (x * half_width).abs() + (y * half_height).abs();
        // Without the fraction below 1/10000, so that rounding errors do not add a pixel.
        let whole = |place: f32| (place / 1e-4).trunc() * 1e-4;
        let size = whole((reach + one) + half).ceil() - whole((one - reach) + half).floor();
        // A rotated side is shorter than the sum of both, and the cast is saturating.
        (size as u32).max(1)
    };
    (room(matrix[0], half_width), room(matrix[1], half_height))
}

/// Returns a to h of the matrix that takes the corners back to the image's corner pixels: torchvision's
/// `_get_perspective_coeffs`.
fn perspective_matrix((width, height): (u32, u32), corners: [(f64, f64); 4]) -> Option<[f64; 8]> {
    let (right, bottom) = (f64::from(width) - 1.0, f64::from(height) - 1.0);
    let from = [(0.0, 0.0), (right, 0.0), (right, bottom), (0.0, bottom)];
    let mut equations = [[0.0; 9]; 8];
    for (corner, ((x, y), (to_x, to_y))) in corners.into_iter().zip(from).enumerate() {
        equations[2 * corner] = [x, y, 1.0, 0.0, 0.0, 0.0, -to_x * x, -to_x * y, to_x];
        equations[2 * corner + 1] = [0.0, 0.0, 0.0, x, y, 1.0, -to_y * x, -to_y * y, to_y];
    }
    solve(equations)
}

/// Solves eight linear equations by elimination, or returns `None` if they have no single solution.
fn solve(mut equations: [[f64; 9]; 8]) -> Option<[f64; 8]> {
    for step in 0..8 {
        let magnitude = |row: &usize| equations[*row][step].abs();
        let pivot = (step..8).max_by(|one, other| magnitude(one).total_cmp(&magnitude(other)))?;
        equations.swap(step, pivot);
        let row = equations[step];
        // The coefficients are whole numbers up to the square of a side, so a smaller pivot is a rounding error.
        if row[step].is_nan() || row[step].abs() < 1e-9 {
            return None;
        }
        for other in (0..8).filter(|&other| other != step) {
            let factor = equations[other][step] / row[step];
            for (value, of_row) in equations[other].iter_mut().zip(row) {
                *value -= factor * of_row;
            }
        }
    }
    Some(std::array::from_fn(|at| equations[at][8] / equations[at][at]))
}

#[cfg(test)]
mod tests;
