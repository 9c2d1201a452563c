//! The vector instructions of this machine. A value that names a set of them proves that the processor has it, so code
//! for that set may be called without another check.

use std::ops::Range;

use crate::bits::Shifts;
use crate::color::{self, Color};
use crate::encode;
use crate::patch::{self, PatchShape, PlaneParts};
use crate::planes::{Plane, Planes};
#[cfg(target_arch = "x86_64")]
use crate::{avx2, avx512};

/// A set of vector instructions that decoding and encoding are built for. Every set gives the same bytes.
#[derive(Clone, Copy, Debug)]
pub enum Level {
    /// AVX-512 (F, BW, VL, VBMI), GFNI and BMI2 on x86-64.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// AVX2 and BMI2 on x86-64.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// The instructions that the compiler's target always has: NEON on aarch64, SSE2 on x86-64.
    Base,
}

/// Proof that this processor has AVX-512 (F, BW, VL, VBMI), GFNI and BMI2.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

/// Proof that this processor has AVX2 and BMI2.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx512 {
    fn detect() -> Option<Self> {
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi");
        (has_avx512 && is_x86_feature_detected!("gfni") && is_x86_feature_detected!("bmi2")).then_some(Self(()))
    }

    /// Returns the proof for AVX2, which each of these processors has.
    pub(crate) fn avx2(self) -> Avx2 {
        Avx2(())
    }
}

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2")).then_some(Self(()))
    }
}

impl Level {
    /// Returns the sets that this machine can run, the best first.
    pub fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let special = {
            let avx2 = Avx2::detect();
            let avx512 = avx2.and(Avx512::detect());
            [avx512.map(Self::Avx512), avx2.map(Self::Avx2)].into_iter().flatten()
        };
        #[cfg(not(target_arch = "x86_64"))]
        let special = std::iter::empty();
        special.chain([Self::Base])
    }

    /// Returns the best set that this machine can run.
    pub fn best() -> Self {
        Self::all().next().unwrap_or(Self::Base)
    }

    /// Returns the usual name of the set.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "AVX2",
            Self::Base if cfg!(target_arch = "x86_64") => "SSE2",
            Self::Base if cfg!(target_arch = "aarch64") => "NEON",
            Self::Base => "those of the compiler's target",
        }
    }

    /// Decodes the first `rows` rows of a plane.
    pub(crate) fn decode_plane(self, parts: &PlaneParts<'_>, shape: &PatchShape, rows: usize, plane: &mut Plane) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(proof) => avx512::decode_plane(proof, parts, shape, rows, plane),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(proof) => avx2::decode_plane(proof, parts, shape, rows, plane),
            Self::Base => patch::decode_plane::<Shifts>(parts, shape, rows, plane),
        }
    }

    /// Writes columns and rows of an RGB patch as pixels, whose rows are `stride` bytes apart.
    pub(crate) fn write_rgb(
        self,
        planes: &Planes,
        color: Color,
        columns: Range<usize>,
        rows: Range<usize>,
        target: &mut [u8],
        stride: usize,
    ) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(proof) => avx512::write_rgb(proof, planes, color, columns, rows, target, stride),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(proof) => avx2::write_rgb(proof, planes, color, columns, rows, target, stride),
            Self::Base => color::write_rgb(planes, color, columns, rows, target, stride),
        }
    }

    /// Asks the processor to bring bytes into its cache.
    pub(crate) fn prefetch(self, bytes: &[u8]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(proof) => avx2::prefetch(proof.avx2(), bytes),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(proof) => avx2::prefetch(proof, bytes),
            Self::Base => {}
        }
    }

    /// Encodes a patch.
    pub(crate) fn encode_patch(self, planes: &Planes, shape: &PatchShape) -> Vec<u8> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(proof) => avx2::encode_patch(proof.avx2(), planes, shape),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(proof) => avx2::encode_patch(proof, planes, shape),
            Self::Base => encode::patch::encode::<Shifts>(planes, shape),
        }
    }
}
