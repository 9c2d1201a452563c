//! A function of the program, for what no operation does.

use super::{Effects, Operate, Size};
use crate::draw::Words;
use crate::error::PixelError;
use crate::function::{Call, FunctionId};
use serde::{Deserialize, Serialize};

/// Longest name of a function, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Calls a function of the program that prepares the samples: see [`Functions`](crate::Functions). Drives cannot call
/// it, so none has the ability.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Function {
    /// Name of the function, by which states know it.
    pub name: String,
    /// Size of the image that the function makes, or `None` for the size of the image that it gets.
    #[serde(default)]
    pub output: Option<Size>,
}

impl Operate for Function {
    /// None: what a function does is no property of a machine.
    const EXAMPLES: &'static [Self] = &[];

    fn check(&self) -> Result<(), String> {
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX {
            return Err(format!("name has {} bytes, but must have 1 to {NAME_BYTES_MAX}", self.name.len()));
        }
        self.output.map_or(Ok(()), Size::check)
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(self.output.map(Size::pair).or(before))
    }

    fn draw(&self, size: (u32, u32), words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        let seed = words.below(1 << 63);
        effects.add(Call { function: FunctionId::of(&self.name), size: self.output.map_or(size, Size::pair), seed });
        Ok(())
    }
}
