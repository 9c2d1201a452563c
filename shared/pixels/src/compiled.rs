//! A pipeline that is ready for samples: checked, with everything that follows from the pipeline alone.

use crate::draw::{Draw, Rng, Words};
use crate::error::PixelError;
use crate::ops::{Effect, Effects, Operation};
use crate::pipeline::{Pipeline, PipelineError, Shape};

/// A valid pipeline, compiled. A worker compiles a pipeline once and then draws from it for each sample.
#[derive(Clone, Debug, PartialEq)]
pub struct CompiledPipeline {
    pairs: Vec<Pair>,
    turns: bool,
    output: Shape,
    has_canvas: bool,
}

/// Two operations that follow each other: their random words are made together, in the time that one takes.
#[derive(Clone, Debug, PartialEq)]
struct Pair {
    /// Position of the first operation in the pipeline.
    first: u32,
    operation: Operation,
    next: Option<Operation>,
    /// Whether one of them draws random words.
    draws: bool,
}

impl CompiledPipeline {
    /// Checks and compiles a pipeline.
    pub fn of(pipeline: &Pipeline) -> Result<Self, PipelineError> {
        let output = pipeline.validate()?;
        let pair = |(first, pair): (u32, &[Operation])| Pair {
            first,
            operation: pair[0].clone(),
            next: pair.get(1).cloned(),
            draws: pair.iter().any(Operation::draws),
        };
        // Operations are large: no room for more of them than there are.
        let mut pairs = Vec::with_capacity(pipeline.operations.len().div_ceil(2));
        pairs.extend((0..).step_by(2).zip(pipeline.operations.chunks(2)).map(pair));
        Ok(Self { pairs, turns: pipeline.exif_orientation, output, has_canvas: pipeline.has_canvas() })
    }

    /// Returns the width and height that an image of this size has on its canvas; without a canvas, the width and
    /// height of every prepared sample. `size` is the size of the upright image, if the pipeline turns images upright.
    ///
    /// # Errors
    ///
    /// If the pipeline cannot take an image of this size.
    pub fn size_on_canvas(&self, size: (u32, u32), draw: Draw) -> Result<(u32, u32), PixelError> {
        let mut sizes = Sizes { now: size, before: size };
        self.draw(draw, &mut sizes)?;
        // The last effect puts the image on its canvas.
        Ok(if self.has_canvas { sizes.before } else { sizes.now })
    }

    /// Returns the shape of a prepared sample.
    pub fn output(&self) -> Shape {
        self.output
    }

    /// Returns whether the image is first turned upright by its EXIF orientation.
    pub(crate) fn turns(&self) -> bool {
        self.turns
    }

    /// Draws the operations in their order, and adds what they do to an image to `effects`.
    #[inline]
    pub(crate) fn draw(&self, draw: Draw, effects: &mut impl Effects) -> Result<(), PixelError> {
        for Pair { first, operation, next, draws } in &self.pairs {
            if *draws {
                let [mut words, mut next_words] = Rng::for_two_operations(draw, *first);
                operation.draw(effects.size(), &mut words, effects)?;
                if let Some(next) = next {
                    next.draw(effects.size(), &mut next_words, effects)?;
                }
            } else {
                for (number, operation) in (*first..).zip([Some(operation), next.as_ref()].into_iter().flatten()) {
                    let mut words = LateWords { draw, operation: number, rng: None };
                    operation.draw(effects.size(), &mut words, effects)?;
                }
            }
        }
        Ok(())
    }
}

/// The sizes of an image while operations are drawn.
struct Sizes {
    now: (u32, u32),
    /// The size before the last effect.
    before: (u32, u32),
}

impl Effects for Sizes {
    fn size(&self) -> (u32, u32) {
        self.now
    }

    fn add(&mut self, effect: impl Into<Effect>) {
        self.before = self.now;
        self.now = effect.into().size_after(self.now);
    }
}

/// The words of an operation whose `Operate::DRAWS` is false. If the operation draws words all the same, they are made
/// then: that mistake costs time, but changes no pixel.
struct LateWords {
    draw: Draw,
    /// Position of the operation in the pipeline.
    operation: u32,
    rng: Option<Rng>,
}

impl Words for LateWords {
    #[cold]
    fn word(&mut self) -> u64 {
        let Self { draw, operation, rng } = self;
        Words::word(rng.get_or_insert_with(|| Rng::for_sample(*draw, *operation)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{CenterCrop, Fill, Listed, PadTo, RandomCrop, RandomHorizontalFlip, Resize, Size};

    #[test]
    fn each_operation_draws_its_own_words_whatever_lies_before_it() {
        let draw = Draw { seed: 7, epoch: 1, sample_id: 5 };
        let still = [Resize::to(40).into(), CenterCrop::to(38).into(), CenterCrop::to(36).into()];
        let random = [RandomCrop::padded(16, 4).into(), RandomHorizontalFlip { p: 0.5 }.into()];
        for before in 0..=still.len() {
            let pipeline = Pipeline::of([&still[..before], &random].concat());
            let mut expected = Listed::of((60, 50));
            for (number, operation) in (0..).zip(&pipeline.operations) {
                operation.draw(expected.size(), &mut Rng::for_sample(draw, number), &mut expected).unwrap();
            }
            let mut drawn = Listed::of((60, 50));
            CompiledPipeline::of(&pipeline).unwrap().draw(draw, &mut drawn).unwrap();
            assert_eq!(drawn.effects, expected.effects, "{before} before");
        }
    }

    /// Words that panic when one of them is taken.
    struct NoWords;

    impl Words for NoWords {
        fn word(&mut self) -> u64 {
            panic!("an operation draws words, and says that it draws none")
        }
    }

    #[test]
    fn operations_that_say_so_draw_no_words() {
        for example in Operation::examples().iter().flatten().filter(|operation| !operation.draws()) {
            for size in [(300, 200), (200, 300), (1, 1), (7, 5000)] {
                let _ = example.effects(size, &mut NoWords);
            }
        }
    }

    #[test]
    fn words_that_were_not_to_be_drawn_are_those_of_the_operation() {
        let draw = Draw { seed: 7, epoch: 1, sample_id: 5 };
        let (mut late, mut own) = (LateWords { draw, operation: 3, rng: None }, Rng::for_sample(draw, 3));
        assert!((0..9).all(|_| late.word() == own.word()));
    }

    #[test]
    fn an_image_has_the_size_on_its_canvas_that_the_operations_before_give_it() {
        let draw = Draw { seed: 7, epoch: 1, sample_id: 5 };
        let size = |operations: &[Operation], size| {
            CompiledPipeline::of(&Pipeline::of(operations)).unwrap().size_on_canvas(size, draw).unwrap()
        };
        let canvas: Operation = PadTo { size: Size { height: 80, width: 120 }, fill: Fill([0; 3]) }.into();
        let sizes = |operations: &[Operation]| [(60, 30), (300, 200), (200, 300)].map(|from| size(operations, from));
        assert_eq!(sizes(std::slice::from_ref(&canvas)), [(60, 30), (120, 80), (53, 80)]);
        assert_eq!(sizes(&[Resize::to(40).into(), canvas.clone()]), [(80, 40), (60, 40), (40, 60)]);
        let flipped = [Resize::to(40).into(), RandomHorizontalFlip { p: 1.0 }.into(), canvas];
        assert_eq!(sizes(&flipped), [(80, 40), (60, 40), (40, 60)]);
        assert_eq!(sizes(&[CenterCrop::to(38).into()]), [(38, 38); 3], "there is no canvas");
    }

    #[test]
    fn invalid_pipelines_are_refused() {
        let pipeline = Pipeline::of([RandomHorizontalFlip { p: 0.5 }.into()]);
        assert_eq!(CompiledPipeline::of(&pipeline), Err(PipelineError::OpenSize));
    }
}
