//! Asynchronous events. Base 2.1, section "Asynchronous Event Request command".

use crate::bits;
use crate::code::LogId;

/// Result of an Asynchronous Event Request (DW0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// Event type, 3 bits.
    pub kind: u8,
    /// Event information.
    pub info: u8,
    /// Log page with more information; reading the page re-arms the event.
    pub log: LogId,
}

impl AsyncEvent {
    /// Type: error status.
    pub const ERROR: u8 = 0;
    /// Type: SMART / health status.
    pub const SMART: u8 = 1;
    /// Type: notice.
    pub const NOTICE: u8 = 2;

    /// Notice: the attached namespaces or their attributes changed.
    pub const NAMESPACES_CHANGED: Self = Self { kind: Self::NOTICE, info: 0x00, log: LogId::CHANGED_NAMESPACES };
    /// Notice: the discovery log changed.
    pub const DISCOVERY_CHANGED: Self = Self { kind: Self::NOTICE, info: 0xF0, log: LogId::DISCOVERY };

    /// Reads DW0 of the completion.
    pub const fn from_result(result: u64) -> Self {
        Self {
            kind: bits::get(result, 0, 3) as u8,
            info: bits::get(result, 8, 8) as u8,
            log: LogId(bits::get(result, 16, 8) as u8),
        }
    }

    /// Returns DW0 of the completion.
    pub const fn result(self) -> u64 {
        let value = bits::with(0, 0, 3, self.kind as u64);
        bits::with(bits::with(value, 8, 8, self.info as u64), 16, 8, self.log.0 as u64)
    }
}

/// Events that the host wants: the value of the feature Asynchronous Event Configuration (0Bh). The field OAES of
/// Identify Controller has the same bits for notices (31:8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsyncEventConfiguration(pub u32);

impl AsyncEventConfiguration {
    /// Returns the wanted SMART / health critical warnings, one bit each as in the log's first byte.
    pub const fn smart_warnings(self) -> u8 {
        bits::get32(self.0, 0, 8) as u8
    }

    /// Returns whether namespace attribute notices are on (bit 8).
    pub const fn namespaces_changed(self) -> bool {
        bits::get32(self.0, 8, 1) == 1
    }

    /// Returns the value with [`Self::namespaces_changed`] replaced.
    pub const fn with_namespaces_changed(self, value: bool) -> Self {
        Self(bits::with32(self.0, 8, 1, value as u32))
    }

    /// Returns whether notices of changes of the discovery log are on (bit 31).
    pub const fn discovery_changed(self) -> bool {
        bits::get32(self.0, 31, 1) == 1
    }

    /// Returns the value with [`Self::discovery_changed`] replaced.
    pub const fn with_discovery_changed(self, value: bool) -> Self {
        Self(bits::with32(self.0, 31, 1, value as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_round_trip() {
        assert_eq!(AsyncEvent::NAMESPACES_CHANGED.result(), 0x0004_0002);
        assert_eq!(AsyncEvent::from_result(0x0070_F002), AsyncEvent::DISCOVERY_CHANGED);
    }

    #[test]
    fn configuration_bits() {
        let wanted = AsyncEventConfiguration::default().with_namespaces_changed(true);
        assert_eq!(wanted.0, 0x100);
        assert!(wanted.namespaces_changed() && !wanted.discovery_changed());
        assert_eq!(wanted.with_discovery_changed(true).0, 0x8000_0100);
        assert_eq!(AsyncEventConfiguration(0x1F).smart_warnings(), 0x1F);
    }
}
