//! Filters: how much each input counts for an output, by its distance from the output's centre.
//!
//! The formulas and the constants are Pillow's (libImaging/Resample.c); torch has the same ones for tensors of bytes
//! (`upsample_bilinear2d_aa` and `upsample_bicubic2d_aa`).

use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// How a resized pixel is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resampling {
    /// Takes the nearest pixel.
    Nearest,
    /// Weighs pixels by an antialiased triangle.
    #[default]
    Bilinear,
    /// Weighs pixels by an antialiased cubic with a = −0.5. Weights may be negative.
    Bicubic,
    /// Takes the mean of the pixels that a new one covers.
    Box,
    /// Weighs pixels by an antialiased Hamming window as wide as the triangle.
    Hamming,
    /// Weighs pixels by an antialiased windowed sinc of three lobes. Weights may be negative.
    Lanczos,
}

impl Resampling {
    /// Returns the filter; `None` for the nearest pixel.
    pub(super) fn smooth(self) -> Option<Smooth> {
        match self {
            Self::Nearest => None,
            Self::Bilinear => Some(Smooth::Bilinear),
            Self::Bicubic => Some(Smooth::Bicubic),
            Self::Box => Some(Smooth::Box),
            Self::Hamming => Some(Smooth::Hamming),
            Self::Lanczos => Some(Smooth::Lanczos),
        }
    }
}

/// A filter that weighs inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Smooth {
    #[default]
    Bilinear,
    Bicubic,
    Box,
    Hamming,
    Lanczos,
}

impl Smooth {
    /// Returns the distance from the centre beyond which inputs count nothing.
    pub fn radius(self) -> f64 {
        match self {
            Self::Bilinear => Triangle::RADIUS,
            Self::Bicubic => Bicubic::RADIUS,
            Self::Box => Box::RADIUS,
            Self::Hamming => Hamming::RADIUS,
            Self::Lanczos => Lanczos::RADIUS,
        }
    }
}

/// A filter as a function.
pub trait Filter {
    /// Distance from the centre beyond which the height is 0.
    const RADIUS: f64;
    /// Whether heights may be negative.
    const IS_SIGNED: bool;

    /// Returns the filter's height at a distance from its centre.
    fn height(distance: f64) -> f64;
}

pub struct Triangle;
pub struct Bicubic;
pub struct Box;
pub struct Hamming;
pub struct Lanczos;

impl Filter for Triangle {
    const RADIUS: f64 = 1.0;
    const IS_SIGNED: bool = false;

    #[inline(always)]
    fn height(distance: f64) -> f64 {
        let height = 1.0 - distance.abs();
        if height > 0.0 { height } else { 0.0 }
    }
}

impl Filter for Bicubic {
    const RADIUS: f64 = 2.0;
    const IS_SIGNED: bool = true;

    #[inline(always)]
    fn height(distance: f64) -> f64 {
        const A: f64 = -0.5;
        let x = distance.abs();
        if x < 1.0 {
            ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
        } else if x < 2.0 {
            (((x - 5.0) * x + 8.0) * x - 4.0) * A
        } else {
            0.0
        }
    }
}

impl Filter for Box {
    const RADIUS: f64 = 0.5;
    const IS_SIGNED: bool = false;

    #[inline(always)]
    fn height(distance: f64) -> f64 {
        if distance > -0.5 && distance <= 0.5 { 1.0 } else { 0.0 }
    }
}

impl Filter for Hamming {
    const RADIUS: f64 = 1.0;
    const IS_SIGNED: bool = false;

    fn height(distance: f64) -> f64 {
        let x = distance.abs();
        if x == 0.0 {
            return 1.0;
        }
        if x >= 1.0 {
            return 0.0;
        }
        sinc(x) * (0.54 + 0.46 * libm::cos(x * PI))
    }
}

impl Filter for Lanczos {
    const RADIUS: f64 = 3.0;
    const IS_SIGNED: bool = true;

    fn height(distance: f64) -> f64 {
        if (-3.0..3.0).contains(&distance) { sinc(distance) * sinc(distance / 3.0) } else { 0.0 }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * PI;
    libm::sin(x) / x
}
