//! Controller properties. Base 2.1, section "Controller Properties".

use crate::bits;

/// Offsets of properties.
pub mod offset {
    /// Controller Capabilities, 8 bytes.
    pub const CAP: u32 = 0x00;
    /// Version.
    pub const VS: u32 = 0x08;
    /// Controller Configuration.
    pub const CC: u32 = 0x14;
    /// Controller Status.
    pub const CSTS: u32 = 0x1C;
    /// Controller Ready Timeouts.
    pub const CRTO: u32 = 0x68;
}

/// Returns whether the property at `offset` has 8 bytes. Of the properties above, only CAP has.
pub const fn is_wide(offset: u32) -> bool {
    offset == offset::CAP
}

/// Version 2.1, the value of VS and of VER in Identify Controller.
pub const VERSION_2_1: u32 = 0x0002_0100;

/// Unit of CAP.TO and CRTO in milliseconds.
pub const TIMEOUT_UNIT_MS: u64 = 500;

/// A bit field: getter and builder.
macro_rules! field {
    ($(#[$meta:meta])* $get:ident, $with:ident, $low:literal, $width:literal, $type:ty) => {
        $(#[$meta])*
        pub const fn $get(self) -> $type {
            bits::get(self.0 as u64, $low, $width) as $type
        }

        #[doc = concat!("Returns the value with [`Self::", stringify!($get), "`] replaced; excess bits are dropped.")]
        pub const fn $with(self, value: $type) -> Self {
            Self(bits::with(self.0 as u64, $low, $width, value as u64) as _)
        }
    };
}

/// A flag: getter and builder.
macro_rules! flag {
    ($(#[$meta:meta])* $get:ident, $with:ident, $bit:literal) => {
        $(#[$meta])*
        pub const fn $get(self) -> bool {
            bits::get(self.0 as u64, $bit, 1) == 1
        }

        #[doc = concat!("Returns the value with [`Self::", stringify!($get), "`] replaced.")]
        pub const fn $with(self, value: bool) -> Self {
            Self(bits::with(self.0 as u64, $bit, 1, value as u64) as _)
        }
    };
}

/// Controller Capabilities (CAP).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    field!(/// Entries of the largest queue, 0's based (MQES).
        queue_entries_max_z, with_queue_entries_max_z, 0, 16, u16);
    flag!(/// Queues need contiguous memory (CQR), as they always do on Fabrics.
        contiguous_queues, with_contiguous_queues, 16);
    field!(/// Longest time until CSTS.RDY follows CC.EN, in units of 500 ms (TO).
        timeout, with_timeout, 24, 8, u8);
    flag!(/// The NVM command set (CSS bit 0).
        nvm_command_set, with_nvm_command_set, 37);
    flag!(/// One or more I/O command sets, to be selected by CC.CSS = 110b (CSS bit 6).
        io_command_sets, with_io_command_sets, 43);
    flag!(/// No I/O command set: admin commands only (CSS bit 7).
        no_io_command_set, with_no_io_command_set, 44);
    field!(/// Smallest memory page: 2^(12 + value) bytes (MPSMIN).
        page_min, with_page_min, 48, 4, u8);
    field!(/// Largest memory page: 2^(12 + value) bytes (MPSMAX).
        page_max, with_page_max, 52, 4, u8);
    field!(/// Ready modes supported (CRMS): bit 0 with media, bit 1 independent of media. CRTO exists if bit 0 is set.
        ready_modes, with_ready_modes, 59, 2, u8);

    /// Returns [`Self::timeout`] in milliseconds.
    pub const fn timeout_ms(self) -> u64 {
        self.timeout() as u64 * TIMEOUT_UNIT_MS
    }
}

/// Controller Configuration (CC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Configuration(pub u32);

impl Configuration {
    /// Value of CSS: the NVM command set only.
    pub const CSS_NVM: u8 = 0b000;
    /// Value of CSS: all I/O command sets that the controller supports.
    pub const CSS_ALL: u8 = 0b110;
    /// Value of CSS: admin commands only.
    pub const CSS_ADMIN: u8 = 0b111;
    /// Value of SHN: a normal shutdown.
    pub const SHUTDOWN_NORMAL: u8 = 0b01;

    flag!(/// Enable (EN).
        enabled, with_enabled, 0);
    field!(/// Command sets selected (CSS).
        command_sets, with_command_sets, 4, 3, u8);
    field!(/// Memory page: 2^(12 + value) bytes (MPS).
        page, with_page, 7, 4, u8);
    field!(/// Arbitration (AMS).
        arbitration, with_arbitration, 11, 3, u8);
    field!(/// Shutdown notification (SHN).
        shutdown, with_shutdown, 14, 2, u8);
    field!(/// Submission entry: 2^value bytes (IOSQES), 6.
        submission_entry, with_submission_entry, 16, 4, u8);
    field!(/// Completion entry: 2^value bytes (IOCQES), 4.
        completion_entry, with_completion_entry, 20, 4, u8);
    flag!(/// Ready independent of media (CRIME).
        ready_independent, with_ready_independent, 24);
}

/// Controller Status (CSTS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerStatus(pub u32);

impl ControllerStatus {
    /// Value of SHST: no shutdown was asked for.
    pub const SHUTDOWN_NONE: u8 = 0b00;
    /// Value of SHST: shutdown is complete.
    pub const SHUTDOWN_COMPLETE: u8 = 0b10;

    flag!(/// Ready for commands (RDY).
        ready, with_ready, 0);
    flag!(/// Fatal status (CFS).
        fatal, with_fatal, 1);
    field!(/// Shutdown status (SHST).
        shutdown, with_shutdown, 2, 2, u8);
}

/// Controller Ready Timeouts (CRTO), in units of 500 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadyTimeouts(pub u32);

impl ReadyTimeouts {
    field!(/// Longest time until ready with media (CRWMT).
        with_media, with_with_media, 0, 16, u16);
    field!(/// Longest time until ready independent of media (CRIMT).
        independent, with_independent, 16, 16, u16);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_linux() {
        // CC as a kernel writes it at bring-up (CSS 110b, IOSQES 6, IOCQES 4) and at shutdown.
        let cc = Configuration::default()
            .with_command_sets(Configuration::CSS_ALL)
            .with_submission_entry(6)
            .with_completion_entry(4);
        assert_eq!(cc.0, 0x0046_0060);
        assert_eq!(cc.with_enabled(true).0, 0x0046_0061);
        assert_eq!(cc.with_shutdown(Configuration::SHUTDOWN_NORMAL).shutdown(), 1);
    }

    #[test]
    fn capability_bits() {
        let cap = Capabilities(0x0000_0820_2801_007F);
        assert_eq!(cap.queue_entries_max_z(), 127);
        assert_eq!((cap.timeout(), cap.timeout_ms()), (0x28, 20_000));
        assert!(cap.nvm_command_set() && cap.io_command_sets() && cap.contiguous_queues());
        assert_eq!((cap.page_min(), cap.page_max(), cap.ready_modes()), (0, 0, 0));
        assert_eq!(Capabilities::default().with_io_command_sets(true).0, 1 << 43);
        assert_eq!(Capabilities::default().with_ready_modes(0xFF).0, 3 << 59, "excess bits are dropped");
    }

    #[test]
    fn status_bits() {
        let status = ControllerStatus::default().with_ready(true).with_shutdown(ControllerStatus::SHUTDOWN_COMPLETE);
        assert_eq!(status.0, 0b1001);
        assert!(!status.fatal());
        assert_eq!(ReadyTimeouts(0x0002_0001).independent(), 2);
    }
}
