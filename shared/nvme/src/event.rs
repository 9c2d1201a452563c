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

    /// Returns the value in which notices of changes of the discovery log are on (bit 31).
    pub const fn with_discovery_changed(self) -> Self {
        Self(bits::with32(self.0, 31, 1, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_round_trip() {
        let changed_namespaces = AsyncEvent { kind: 2, info: 0, log: LogId::CHANGED_NAMESPACES };
        assert_eq!(changed_namespaces.result(), 0x0004_0002);
        assert_eq!(AsyncEvent::from_result(0x0070_F002), AsyncEvent { kind: 2, info: 0xF0, log: LogId::DISCOVERY });
    }

    #[test]
    fn configuration_bits() {
        assert_eq!(AsyncEventConfiguration(0x100).with_discovery_changed().0, 0x8000_0100);
        assert_eq!(AsyncEventConfiguration(0x1F).smart_warnings(), 0x1F);
    }
}
