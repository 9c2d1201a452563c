//! The description of a pipeline: its stages, their parameters, and the shape of the result.

use serde::{Deserialize, Serialize};

/// Longest side that a stage may ask for, in pixels: the limit of JPEG.
const SIDE_MAX: u32 = 65_535;
/// Most stages in a pipeline.
const STAGES_MAX: usize = 16;
/// Most bytes that a prepared sample may have.
const SAMPLE_BYTES_MAX: u64 = 1 << 28;
/// Most bytes of an image between two stages whose size the stages alone determine.
const STAGE_BYTES_MAX: u64 = 1 << 30;

/// Height, width and channels of a prepared sample: u8, height × width × channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// Height in rows.
    pub height: u32,
    /// Width in columns.
    pub width: u32,
    /// Channels, 3 for RGB.
    pub channels: u32,
}

impl Shape {
    /// Returns the bytes of one sample.
    pub fn bytes(&self) -> usize {
        self.height as usize * self.width as usize * self.channels as usize
    }
}

/// One step of a pipeline. Names, parameters and meaning are torchvision's.
///
/// In TOML a stage is a table with its name as the only key: `{ resize = { size = 256 } }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Stage {
    /// Cuts out a box of random area and aspect ratio and resizes it to a square.
    RandomResizedCrop {
        /// Side of the square, in pixels.
        size: u32,
        /// Bounds of the box's area, as a fraction of the image's area.
        #[serde(default = "default_scale")]
        scale: [f64; 2],
        /// Bounds of the box's width / height before resizing; the ratio is drawn on a logarithmic scale.
        #[serde(default = "default_ratio")]
        ratio: [f64; 2],
    },
    /// Resizes so that the shorter side has `size` pixels; the longer side is truncated to whole pixels.
    Resize {
        /// The shorter side, in pixels.
        size: u32,
    },
    /// Cuts a square out of the middle; surrounds a smaller image with zeros.
    CenterCrop {
        /// Side of the square, in pixels.
        size: u32,
    },
    /// Surrounds the image with zeros and cuts a square out of it at a random place.
    RandomCrop {
        /// Side of the square, in pixels.
        size: u32,
        /// Width of the border, in pixels.
        #[serde(default)]
        padding: u32,
    },
    /// Mirrors left to right at random.
    RandomHorizontalFlip {
        /// Probability of mirroring.
        #[serde(default = "default_probability")]
        p: f64,
    },
}

fn default_scale() -> [f64; 2] {
    [0.08, 1.0]
}

fn default_ratio() -> [f64; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

fn default_probability() -> f64 {
    0.5
}

/// Why a pipeline is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// The text is not TOML or has unknown keys.
    #[error("the pipeline's description: {message}")]
    Syntax {
        /// Message of the parser.
        message: String,
    },
    /// A parameter is out of range.
    #[error("stage {stage}: {message}")]
    Parameter {
        /// Index of the stage, from 0.
        stage: usize,
        /// What is wrong.
        message: String,
    },
    /// The samples would differ in size.
    #[error("the prepared samples would differ in size: a crop to a fixed size is missing")]
    OpenSize,
    /// The pipeline has too many stages.
    #[error("the pipeline has {stages} stages, more than the limit of {limit}")]
    TooManyStages {
        /// Number of stages found.
        stages: usize,
        /// Most stages that a pipeline may have.
        limit: usize,
    },
    /// The prepared sample would be too large.
    #[error("a prepared sample has {bytes} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Bytes of a prepared sample.
        bytes: u64,
        /// Most bytes that a sample may have.
        limit: u64,
    },
}

/// The stages that every sample goes through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// Whether the image is first turned upright by its EXIF orientation. Off by default, as in torchvision.
    #[serde(default)]
    pub exif_orientation: bool,
    /// The stages, in order.
    pub stages: Vec<Stage>,
}

impl Pipeline {
    /// Returns the usual ImageNet training recipe: RandomResizedCrop(224) and a flip.
    pub fn imagenet_train() -> Self {
        Self::of([
            Stage::RandomResizedCrop { size: 224, scale: default_scale(), ratio: default_ratio() },
            Stage::RandomHorizontalFlip { p: 0.5 },
        ])
    }

    /// Returns the usual ImageNet validation recipe: Resize(256) and CenterCrop(224).
    pub fn imagenet_val() -> Self {
        Self::of([Stage::Resize { size: 256 }, Stage::CenterCrop { size: 224 }])
    }

    /// Returns the usual CIFAR-10 training recipe: RandomCrop(32, padding 4) and a flip.
    pub fn cifar_train() -> Self {
        Self::of([Stage::RandomCrop { size: 32, padding: 4 }, Stage::RandomHorizontalFlip { p: 0.5 }])
    }

    fn of(stages: impl Into<Vec<Stage>>) -> Self {
        Self { exif_orientation: false, stages: stages.into() }
    }

    /// The names that [`named`](Self::named) knows.
    pub const NAMES: [&'static str; 3] = ["imagenet-train", "imagenet-val", "cifar-train"];

    /// Returns the pipeline with this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "imagenet-train" => Some(Self::imagenet_train()),
            "imagenet-val" => Some(Self::imagenet_val()),
            "cifar-train" => Some(Self::cifar_train()),
            _ => None,
        }
    }

    /// Parses and validates a description.
    pub fn from_toml(text: &str) -> Result<Self, PipelineError> {
        let pipeline: Self =
            toml::from_str(text).map_err(|error| PipelineError::Syntax { message: error.to_string() })?;
        pipeline.validate()?;
        Ok(pipeline)
    }

    /// Checks every parameter and returns the shape of the prepared samples.
    pub fn validate(&self) -> Result<Shape, PipelineError> {
        if self.stages.len() > STAGES_MAX {
            return Err(PipelineError::TooManyStages { stages: self.stages.len(), limit: STAGES_MAX });
        }
        let bytes = |side: u32| u64::from(side) * u64::from(side) * 3;
        let (mut side, mut large) = (None, None);
        for (index, stage) in self.stages.iter().enumerate() {
            let fault = |message: String| PipelineError::Parameter { stage: index, message };
            stage.check().map_err(fault)?;
            side = stage.side_after(side).map_err(fault)?;
            large = large.or(side.filter(|&side| bytes(side) > STAGE_BYTES_MAX).map(|side| (index, side)));
        }
        let side = side.ok_or(PipelineError::OpenSize)?;
        if bytes(side) > SAMPLE_BYTES_MAX {
            return Err(PipelineError::TooLarge { bytes: bytes(side), limit: SAMPLE_BYTES_MAX });
        }
        if let Some((stage, side)) = large {
            let message = format!("an image of {side}x{side} pixels has more than {STAGE_BYTES_MAX} bytes");
            return Err(PipelineError::Parameter { stage, message });
        }
        Ok(Shape { height: side, width: side, channels: 3 })
    }

    /// Returns the shape of the samples that a valid pipeline prepares.
    ///
    /// # Panics
    ///
    /// If the pipeline is invalid: [`validate`](Self::validate) a pipeline that comes from outside first.
    pub fn output(&self) -> Shape {
        self.validate().expect("a pipeline from outside is validated before its use")
    }
}

impl Stage {
    fn check(&self) -> Result<(), String> {
        match *self {
            Self::RandomResizedCrop { size, scale, ratio } => {
                check_side(size)?;
                check_range("scale", scale, 1.0)?;
                check_range("ratio", ratio, f64::from(SIDE_MAX))
            }
            Self::Resize { size } | Self::CenterCrop { size } => check_side(size),
            Self::RandomCrop { size, padding } => {
                check_side(size)?;
                if padding > SIDE_MAX {
                    return Err(format!("padding {padding} is more than {SIDE_MAX}"));
                }
                Ok(())
            }
            Self::RandomHorizontalFlip { p } if (0.0..=1.0).contains(&p) => Ok(()),
            Self::RandomHorizontalFlip { p } => Err(format!("p = {p} is not a probability")),
        }
    }

    /// Returns the side of the square after this stage, or `None` if it depends on the image.
    fn side_after(&self, before: Option<u32>) -> Result<Option<u32>, String> {
        match *self {
            Self::RandomResizedCrop { size, .. } | Self::CenterCrop { size } => Ok(Some(size)),
            Self::Resize { size } => Ok(before.map(|_| size)),
            Self::RandomCrop { size, padding } => match before {
                Some(side) if u64::from(side) + 2 * u64::from(padding) < u64::from(size) => {
                    Err(format!("a crop of {size} does not fit into {side} pixels with a border of {padding}"))
                }
                _ => Ok(Some(size)),
            },
            Self::RandomHorizontalFlip { .. } => Ok(before),
        }
    }
}

fn check_side(size: u32) -> Result<(), String> {
    if (1..=SIDE_MAX).contains(&size) { Ok(()) } else { Err(format!("size {size} is not in 1..={SIDE_MAX}")) }
}

fn check_range(name: &str, [low, high]: [f64; 2], limit: f64) -> Result<(), String> {
    // Comparisons with NaN are false.
    if low > 0.0 && low <= high && high <= limit {
        return Ok(());
    }
    Err(format!("{name} [{low}, {high}] is not a range within (0, {limit}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_pipelines_are_valid() {
        for name in Pipeline::NAMES {
            let pipeline = Pipeline::named(name).unwrap();
            let side = if name.starts_with("cifar") { 32 } else { 224 };
            assert_eq!(pipeline.validate(), Ok(Shape { height: side, width: side, channels: 3 }));
            assert_eq!(pipeline.output().bytes(), (side * side * 3) as usize);
        }
        assert_eq!(Pipeline::named("imagenet"), None);
    }

    #[test]
    fn toml_has_torchvisions_defaults() {
        let text = "stages = [{ random_resized_crop = { size = 224 } }, { random_horizontal_flip = {} }]";
        assert_eq!(Pipeline::from_toml(text), Ok(Pipeline::imagenet_train()));
        let text = "
            exif_orientation = true
            [[stages]]
            resize = { size = 40 }
            [[stages]]
            random_crop = { size = 32, padding = 4 }
        ";
        let pipeline = Pipeline::from_toml(text).unwrap();
        assert!(pipeline.exif_orientation);
        assert_eq!(pipeline.stages, [Stage::Resize { size: 40 }, Stage::RandomCrop { size: 32, padding: 4 }]);
        let again = toml::to_string(&pipeline).unwrap();
        assert_eq!(Pipeline::from_toml(&again), Ok(pipeline));
    }

    #[test]
    fn bad_descriptions_name_the_stage() {
        let syntax = |text| matches!(Pipeline::from_toml(text), Err(PipelineError::Syntax { .. }));
        assert!(syntax("stages = 3"));
        assert!(syntax("stages = [{ center_crop = { size = 8, padding = 2 } }]"));
        assert!(syntax("stages = [{ warp = { size = 8 } }]"));
        assert!(syntax("stages = []\nexif = true"));
        for (text, stage) in [
            ("{ center_crop = { size = 0 } }", 0),
            ("{ center_crop = { size = 8 } }, { random_crop = { size = 20, padding = 5 } }", 1),
            ("{ random_resized_crop = { size = 8, scale = [0.5, 0.1] } }", 0),
            ("{ random_resized_crop = { size = 8, scale = [nan, 1.0] } }", 0),
            ("{ random_resized_crop = { size = 8, ratio = [0.0, 1.0] } }", 0),
            ("{ random_resized_crop = { size = 8, ratio = [1.0, inf] } }", 0),
            ("{ center_crop = { size = 8 } }, { random_horizontal_flip = { p = 1.5 } }", 1),
            ("{ random_resized_crop = { size = 18919 } }, { center_crop = { size = 8 } }", 0),
            ("{ center_crop = { size = 8 } }, { resize = { size = 65535 } }, { center_crop = { size = 8 } }", 1),
            ("{ random_crop = { size = 65535, padding = 65535 } }, { center_crop = { size = 8 } }", 0),
        ] {
            match Pipeline::from_toml(&format!("stages = [{text}]")) {
                Err(PipelineError::Parameter { stage: found, .. }) => assert_eq!(found, stage, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_output_has_to_be_of_one_size_and_bounded() {
        assert_eq!(Pipeline::from_toml("stages = [{ resize = { size = 8 } }]"), Err(PipelineError::OpenSize));
        assert_eq!(Pipeline::from_toml("stages = []"), Err(PipelineError::OpenSize));
        let large = Pipeline::from_toml("stages = [{ center_crop = { size = 20000 } }]");
        assert!(matches!(large, Err(PipelineError::TooLarge { bytes: 1_200_000_000, .. })));
        let many = vec![Stage::RandomHorizontalFlip { p: 0.5 }; 17];
        assert!(matches!(Pipeline::of(many).validate(), Err(PipelineError::TooManyStages { stages: 17, .. })));
    }
}
