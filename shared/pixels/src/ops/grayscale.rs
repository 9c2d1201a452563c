//! torchvision's `Grayscale`.

use super::{Effects, Gray, Operate};
use crate::draw::Words;
use crate::error::PixelError;
use serde::{Deserialize, Serialize};

/// Turns the image gray: all channels of a pixel get ⌊0.2989 R + 0.587 G + 0.114 B⌋.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grayscale {
    /// Number of channels of the result: 3. torchvision's default, 1, is an error.
    pub num_output_channels: u32,
}

impl Operate for Grayscale {
    const EXAMPLES: &'static [Self] = &[Self { num_output_channels: 3 }];
    const DRAWS: bool = false;

    fn check(&self) -> Result<(), String> {
        match self.num_output_channels {
            3 => Ok(()),
            channels => Err(format!(
                "num_output_channels is {channels}, but prepared samples have 3 channels: say 3, and use one \
             channel of the batches"
            )),
        }
    }

    fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        Ok(before)
    }

    fn draw(&self, _size: (u32, u32), _words: &mut impl Words, effects: &mut impl Effects) -> Result<(), PixelError> {
        effects.add(Gray);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_channel_is_refused_with_what_to_say_instead() {
        let refused = Grayscale { num_output_channels: 1 }.check().unwrap_err();
        assert!(refused.contains("is 1") && refused.contains("say 3"), "{refused}");
        assert_eq!(Grayscale { num_output_channels: 3 }.check(), Ok(()));
    }
}
