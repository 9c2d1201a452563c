//! Commands Supported and Effects (05h), one page per I/O command set.

use crate::bits;
use crate::{TooShort, view};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Effects of one opcode. Base 2.1, figure "Commands Supported and Effects Data Structure".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandEffects(pub u32);

impl CommandEffects {
    /// The command is supported (CSUPP), and no change that it makes concerns the host.
    pub const SUPPORTED: Self = Self(1);

    /// Returns the same effects for a command that also changes logical block content (LBCC).
    pub const fn with_content_change(self) -> Self {
        Self(bits::with32(self.0, 1, 1, 1))
    }

    /// Returns whether the command is supported (CSUPP).
    pub const fn is_supported(self) -> bool {
        bits::get32(self.0, 0, 1) == 1
    }
}

/// Commands Supported and Effects log page. Base 2.1, figure "Commands Supported and Effects Log Page".
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct EffectsLog {
    /// Admin commands by opcode.
    pub admin: [U32; 256],
    /// I/O commands by opcode.
    pub io: [U32; 256],
    /// Reserved.
    pub reserved2048: [u8; 2048],
}
const _: () = assert!(size_of::<EffectsLog>() == 4096);

impl EffectsLog {
    /// Makes a page on which no command is supported.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }

    /// Reads the page at the start of log data.
    pub fn parse(bytes: &[u8]) -> Result<&Self, TooShort> {
        view(bytes, "effects log")
    }

    /// Sets the effects of an admin opcode.
    pub fn set_admin(&mut self, opcode: u8, effects: CommandEffects) {
        self.admin[usize::from(opcode)] = effects.0.into();
    }

    /// Sets the effects of an I/O opcode.
    pub fn set_io(&mut self, opcode: u8, effects: CommandEffects) {
        self.io[usize::from(opcode)] = effects.0.into();
    }

    /// Returns the effects of an admin opcode.
    pub fn admin(&self, opcode: u8) -> CommandEffects {
        CommandEffects(self.admin[usize::from(opcode)].get())
    }

    /// Returns the effects of an I/O opcode.
    pub fn io(&self, opcode: u8) -> CommandEffects {
        CommandEffects(self.io[usize::from(opcode)].get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_kept_by_opcode() {
        let mut log = EffectsLog::zeroed();
        log.set_admin(0x85, CommandEffects::SUPPORTED);
        log.set_io(0x01, CommandEffects::SUPPORTED.with_content_change());
        assert_eq!(log.as_bytes()[0x85 * 4], 1);
        assert_eq!(log.as_bytes()[1024 + 4], 3);
        assert!(log.admin(0x85).is_supported() && !log.admin(0x84).is_supported());
        assert!(EffectsLog::parse(&log.as_bytes()[1..]).is_err());
    }
}
