//! Codes that a peer sends, as open newtypes with constants for the known values.

/// Declares an open newtype with named constants and a `Display` that falls back to the number.
macro_rules! open_codes {
    ($(#[$meta:meta])* $name:ident($repr:ty), $digits:literal {
        $($(#[$cmeta:meta])* $constant:ident = $value:literal, $text:literal;)*
    }) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, zerocopy::FromBytes, zerocopy::IntoBytes,
            zerocopy::Immutable, zerocopy::KnownLayout,
        )]
        #[repr(transparent)]
        pub struct $name(pub $repr);

        impl $name {
            $(#[doc = concat!("“", $text, "”.")] $(#[$cmeta])* pub const $constant: Self = Self($value);)*

            /// Returns the name of the value, if this module has one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), " {:0", $digits, "X}h"), self.0),
                }
            }
        }
    };
}
pub(crate) use open_codes;

open_codes! {
    /// Opcode on the admin queue. Base 2.1, figure "Opcodes for Admin Commands"; 85h, 88h and 89h are from CP.
    AdminOpcode(u8), "2" {
        DELETE_SQ = 0x00, "delete i/o submission queue";
        CREATE_SQ = 0x01, "create i/o submission queue";
        GET_LOG_PAGE = 0x02, "get log page";
        DELETE_CQ = 0x04, "delete i/o completion queue";
        CREATE_CQ = 0x05, "create i/o completion queue";
        IDENTIFY = 0x06, "identify";
        ABORT = 0x08, "abort";
        SET_FEATURES = 0x09, "set features";
        GET_FEATURES = 0x0A, "get features";
        ASYNC_EVENT = 0x0C, "asynchronous event request";
        KEEP_ALIVE = 0x18, "keep alive";
        FABRICS = 0x7F, "fabrics";
        LOAD_PROGRAM = 0x85, "load program";
        PROGRAM_ACTIVATION = 0x88, "program activation management";
        MEMORY_RANGE_SET = 0x89, "memory range set management";
    }
}

open_codes! {
    /// Opcode on an I/O queue for a namespace of the NVM command set. NVM 1.1, figure "Opcodes for NVM Commands".
    IoOpcode(u8), "2" {
        FLUSH = 0x00, "flush";
        WRITE = 0x01, "write";
        READ = 0x02, "read";
        WRITE_UNCORRECTABLE = 0x04, "write uncorrectable";
        COMPARE = 0x05, "compare";
        WRITE_ZEROES = 0x08, "write zeroes";
        DATASET_MANAGEMENT = 0x09, "dataset management";
        VERIFY = 0x0C, "verify";
    }
}

open_codes! {
    /// Opcode on an I/O queue for a namespace of the Computational Programs command set.
    CpOpcode(u8), "2" {
        EXECUTE_PROGRAM = 0x01, "execute program";
    }
}

open_codes! {
    /// Fabrics command type, byte 4 of the entry. Base 2.1, figure "Fabrics Command Type".
    FabricsType(u8), "2" {
        PROPERTY_SET = 0x00, "property set";
        CONNECT = 0x01, "connect";
        PROPERTY_GET = 0x04, "property get";
        AUTH_SEND = 0x05, "authentication send";
        AUTH_RECEIVE = 0x06, "authentication receive";
        DISCONNECT = 0x08, "disconnect";
    }
}

open_codes! {
    /// I/O command set identifier. Base 2.1, figure "I/O Command Set Identifiers".
    Csi(u8), "2" {
        NVM = 0x00, "nvm";
        KEY_VALUE = 0x01, "key value";
        ZONED = 0x02, "zoned namespace";
        LOCAL_MEMORY = 0x03, "subsystem local memory";
        COMPUTE = 0x04, "computational programs";
    }
}

open_codes! {
    /// Structure that Identify returns. Base 2.1, figure "CNS Values".
    Cns(u8), "2" {
        NAMESPACE = 0x00, "identify namespace";
        CONTROLLER = 0x01, "identify controller";
        ACTIVE_NAMESPACES = 0x02, "active namespace list";
        NAMESPACE_DESCRIPTORS = 0x03, "namespace identification descriptor list";
        CSI_NAMESPACE = 0x05, "i/o command set specific identify namespace";
        CSI_CONTROLLER = 0x06, "i/o command set specific identify controller";
        CSI_ACTIVE_NAMESPACES = 0x07, "i/o command set specific active namespace list";
        INDEPENDENT_NAMESPACE = 0x08, "i/o command set independent identify namespace";
        ALLOCATED_NAMESPACES = 0x10, "allocated namespace list";
        ALLOCATED_NAMESPACE = 0x11, "identify allocated namespace";
        ATTACHED_CONTROLLERS = 0x12, "namespace attached controller list";
        CONTROLLER_LIST = 0x13, "controller list";
        IO_COMMAND_SETS = 0x1C, "i/o command set vector";
    }
}

open_codes! {
    /// Log page. Base 2.1, figure "Get Log Page – Log Page Identifiers"; 82h to 84h are from CP.
    LogId(u8), "2" {
        SUPPORTED = 0x00, "supported log pages";
        ERROR = 0x01, "error information";
        SMART = 0x02, "smart / health information";
        FIRMWARE_SLOT = 0x03, "firmware slot information";
        CHANGED_NAMESPACES = 0x04, "changed attached namespace list";
        EFFECTS = 0x05, "commands supported and effects";
        DISCOVERY = 0x70, "discovery";
        PROGRAM_LIST = 0x82, "program list";
        PROGRAM_TYPES = 0x83, "downloadable program types list";
        MEMORY_RANGE_SETS = 0x84, "memory range set list";
    }
}

open_codes! {
    /// Feature. Base 2.1, figure "Set Features – Feature Identifiers".
    FeatureId(u8), "2" {
        ARBITRATION = 0x01, "arbitration";
        POWER_MANAGEMENT = 0x02, "power management";
        TEMPERATURE_THRESHOLD = 0x04, "temperature threshold";
        ERROR_RECOVERY = 0x05, "error recovery";
        VOLATILE_WRITE_CACHE = 0x06, "volatile write cache";
        NUMBER_OF_QUEUES = 0x07, "number of queues";
        WRITE_ATOMICITY = 0x0A, "write atomicity";
        ASYNC_EVENT_CONFIGURATION = 0x0B, "asynchronous event configuration";
        TIMESTAMP = 0x0E, "timestamp";
        KEEP_ALIVE_TIMER = 0x0F, "keep alive timer";
        HOST_BEHAVIOR = 0x16, "host behavior support";
        IO_COMMAND_SET_PROFILE = 0x19, "i/o command set profile";
        HOST_IDENTIFIER = 0x81, "host identifier";
    }
}

impl AdminOpcode {
    /// First opcode that the specification leaves to vendors.
    pub const VENDOR_FIRST: u8 = 0xC0;
}

impl LogId {
    /// First log page that the specification leaves to vendors.
    pub const VENDOR_FIRST: u8 = 0xC0;
}

/// Direction of a command's data: bits 1:0 of its opcode or, for Fabrics commands, of the Fabrics command type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    None,
    /// Host to controller.
    Write,
    /// Controller to host.
    Read,
    /// Both directions; no known command has it.
    Both,
}

impl Direction {
    /// Returns the direction in bits 1:0 of an opcode or Fabrics command type.
    pub const fn of(opcode: u8) -> Self {
        match opcode & 3 {
            0 => Self::None,
            1 => Self::Write,
            2 => Self::Read,
            _ => Self::Both,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn known_codes_print_their_name_and_unknown_ones_their_number() {
        assert_eq!(AdminOpcode::LOAD_PROGRAM.to_string(), "load program");
        assert_eq!(AdminOpcode(0xC3).to_string(), "AdminOpcode C3h");
        assert_eq!(Csi(9).to_string(), "Csi 09h");
        assert_eq!(Csi(9).0, 9, "an unknown value survives");
    }

    #[test]
    fn directions_follow_the_low_bits() {
        assert_eq!(Direction::of(AdminOpcode::LOAD_PROGRAM.0), Direction::Write);
        assert_eq!(Direction::of(AdminOpcode::PROGRAM_ACTIVATION.0), Direction::None);
        assert_eq!(Direction::of(IoOpcode::READ.0), Direction::Read);
        assert_eq!(Direction::of(0xC3), Direction::Both);
    }
}
