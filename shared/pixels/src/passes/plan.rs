//! Which passes a pipeline takes for one image, and which pixels each pass reads and makes.

use crate::compiled::CompiledPipeline;
use crate::draw::Draw;
use crate::error::PixelError;
use crate::geometry::{Rect, Window};
use crate::resize::Resizing;
use crate::steps::{Change, Drawing, Remake, Step, Steps};

/// What a pipeline does to one image. Reuses its memory from image to image.
#[derive(Default)]
pub(crate) struct PassPlan {
    /// Size of the image that the passes are for; `None` before they are drawn.
    size: Option<(u32, u32)>,
    pub(super) steps: Steps,
    pub(super) passes: Vec<Pass>,
}

impl PassPlan {
    /// Forgets the image.
    pub fn clear(&mut self) {
        self.size = None;
    }

    /// Draws the operations of a pipeline for an image of this size, and plans the passes. Does nothing if the last
    /// call since [`clear`](Self::clear) was for the same size: pipeline and draw are then the same, too.
    pub fn draw(&mut self, pipeline: &CompiledPipeline, size: (u32, u32), draw: Draw) -> Result<(), PixelError> {
        if self.size == Some(size) {
            return Ok(());
        }
        self.size = None;
        self.steps.draw(pipeline, size, draw)?;
        plan(&self.steps, &mut self.passes);
        self.size = Some(size);
        Ok(())
    }

    /// Plans the passes for the effects that `add` adds to an image of this size.
    pub fn of_effects(&mut self, size: (u32, u32), add: impl FnOnce(&mut Drawing<'_>)) {
        add(&mut self.steps.of(size));
        plan(&self.steps, &mut self.passes);
        self.size = Some(size);
    }

    /// Returns the changes of values of a pass.
    pub(super) fn changes(&self, pass: &Pass) -> &[Change] {
        let (first, end) = pass.step.changes;
        &self.steps.changes[usize::from(first)..usize::from(end)]
    }

    /// Returns the warp or call of a pass, if it has one.
    pub(super) fn remake(&self, pass: &Pass) -> Option<&Remake> {
        pass.step.remake.map(|place| &self.steps.remakes[usize::from(place)])
    }

    /// Returns the rectangle that the passes read of the image, or `None` if they read nothing. The image has the size
    /// that the plan was drawn for.
    pub fn source_rect(&self, size: (u32, u32)) -> Option<Rect> {
        self.passes.first().and_then(|pass| pass.source_rect(size, &self.steps.remakes))
    }
}

/// A step, and the part of its result that is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    pub step: Step,
    /// The part of the step's result that the following cuts leave.
    pub part: Rect,
    /// The rectangle of `part` that the next pass reads.
    pub made: Rect,
    /// The rectangle of the step's result from which its changes of values make `made`.
    pub moved: Rect,
}

impl Pass {
    pub fn new(step: Step) -> Self {
        let (width, height) = step.size();
        let whole = Rect { x: 0, y: 0, width, height };
        Self { step, part: whole, made: whole, moved: whole }
    }

    /// Merges the following step into this pass and returns true, if that step, before its changes of values, only cuts
    /// something out of the part and perhaps mirrors it. A cut may come before the changes of this pass if they treat
    /// all pixels alike.
    fn takes(&mut self, next: &Step, changes: &[Change]) -> bool {
        let Window { x, y, width, height } = next.window;
        if next.remake.is_some()
            || next.resize.is_some()
            || !next.window.lies_within((self.part.width, self.part.height))
        {
            return false;
        }
        let (first, end) = self.step.changes;
        if changes[usize::from(first)..usize::from(end)].iter().any(|change| matches!(change, Change::Area(_))) {
            return false;
        }
        // A change that follows makes each pixel from several, and would have only the part to make them from.
        let is_part = (width, height) != self.step.size();
        let (first, end) = next.changes;
        let mut following = changes[usize::from(first)..usize::from(end)].iter();
        if is_part && following.any(|change| matches!(change, Change::Area(_))) {
            return false;
        }
        self.step.changes.1 = end;
        // The window lies within the part, whose sides are u32, so the casts lose nothing.
        self.part = Rect { x: self.part.x + x as u32, y: self.part.y + y as u32, width, height };
        self.made = Rect { x: 0, y: 0, width, height };
        if next.flip {
            self.part.x = self.step.size().0 - self.part.x - width;
            self.step.flip ^= true;
        }
        true
    }

    /// Returns the rectangle of the step's result that the next pass reads.
    pub fn result(&self) -> Rect {
        let Rect { x, y, width, height } = self.made;
        Rect { x: self.part.x + x, y: self.part.y + y, width, height }
    }

    /// Returns the rectangle of the step's result that is moved, before mirroring.
    fn wanted(&self) -> Rect {
        let Rect { x, y, width, height } = self.moved;
        let x = if self.step.flip { self.step.size().0 - x - width } else { x };
        Rect { x, y, width, height }
    }

    /// Returns the window of the image to cut out, for a step that does not resize.
    pub fn window(&self) -> Window {
        let Rect { x, y, width, height } = self.wanted();
        let window = self.step.window;
        Window { x: window.x + i64::from(x), y: window.y + i64::from(y), width, height }
    }

    /// Returns how an image of this size is resized, if the step resizes a window that lies within the image.
    pub fn resizing(&self, size: (u32, u32)) -> Option<Resizing> {
        let window = self.step.window;
        let rect = window.visible(size).filter(|_| window.lies_within(size))?;
        self.resizing_of_cut_out().map(|resizing| Resizing { rect, ..resizing })
    }

    /// Returns how the window is resized after it has been cut out.
    pub fn resizing_of_cut_out(&self) -> Option<Resizing> {
        let Window { width, height, .. } = self.step.window;
        let rect = Rect { x: 0, y: 0, width, height };
        let Step { interpolation, flip: mirrored, .. } = self.step;
        self.step.resize.map(|size| Resizing { rect, size, interpolation, part: self.wanted(), mirrored })
    }

    /// Returns the rectangle that the pass reads of an image of this size, or `None` if it reads nothing. `remakes`
    /// are the warps and calls of all steps.
    fn source_rect(&self, size: (u32, u32), remakes: &[Remake]) -> Option<Rect> {
        let Some(remake) = self.step.remake.map(|place| &remakes[usize::from(place)]) else {
            return self.remade_source_rect(size);
        };
        remake.needs(self.remade_source_rect(remake.size())?, size)
    }

    /// Returns the rectangle that the pass reads of an image of this size after its warp or call.
    fn remade_source_rect(&self, size: (u32, u32)) -> Option<Rect> {
        let window = if self.step.resize.is_some() { self.step.window } else { self.window() };
        self.resizing(size).map(|resizing| resizing.source()).or_else(|| self.step.border.source_rect(window, size))
    }
}

/// Plans the passes for some steps. A step that only cuts becomes part of the pass before it, and no pass makes more
/// than the next one reads.
fn plan(Steps { steps, changes, remakes }: &Steps, passes: &mut Vec<Pass>) {
    passes.clear();
    for step in steps {
        if !passes.last_mut().is_some_and(|pass| pass.takes(step, changes)) {
            passes.push(Pass::new(*step));
        }
    }
    for index in (0..passes.len()).rev() {
        let pass = &mut passes[index];
        let (first, end) = pass.step.changes;
        pass.moved = before_changes(&changes[usize::from(first)..usize::from(end)], pass.result(), pass.step);
        if index > 0 {
            let read = |pass: &Pass, before: Rect| pass.source_rect((before.width, before.height), remakes);
            if let Some(rect) = read(&passes[index], passes[index - 1].part) {
                passes[index - 1].made = rect;
            }
        }
    }
}

/// Returns the rectangle of a step's moved pixels from which these changes make `result`.
pub(super) fn before_changes(changes: &[Change], result: Rect, step: Step) -> Rect {
    changes.iter().rev().fold(result, |made, change| match change {
        Change::Point(_) => made,
        Change::Area(area) => area.needs(made, step.size()),
    })
}
