//! Effects that apply to one image beside the pipeline's effects, for operations that blend several images.

use super::{PassPlan, Passes};
use crate::error::PixelError;
use crate::geometry::Rect;
use crate::limits::Limits;
use crate::ops::{Cutout, Effects, Piece};
use crate::rows::Interleaved;
use crate::steps::Drawing;

/// Reusable memory of a branch: its plan, and the scratch memory of its passes once there was one.
#[derive(Default)]
pub(crate) struct Branch(Option<Box<(PassPlan, Passes)>>);

impl Branch {
    /// Takes a whole image through the effects that `add` adds, which keep its size. Writes the rectangle `made` of the
    /// result to `out`.
    pub fn make(
        &mut self,
        from: &Cutout<'_>,
        made: Rect,
        limits: Limits,
        add: impl FnOnce(&mut Drawing<'_>),
        out: &mut [u8],
    ) -> Result<(), PixelError> {
        let (width, height) = from.size;
        let (plan, passes) = &mut **self.0.get_or_insert_default();
        plan.of_effects(from.size, |effects| {
            add(effects);
            effects.add(Piece::cut(made.into()));
        });
        passes.run(&mut Interleaved { width, height, pixels: from.pixels }, plan, limits, out)
    }

    /// Frees scratch memory that is larger than `kept` bytes.
    pub fn trim(&mut self, kept: usize) {
        if let Some(memory) = &mut self.0 {
            memory.1.trim(kept);
        }
    }
}
