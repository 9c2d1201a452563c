//! Text in fixed-width fields: space-padded ASCII, and zero-padded NVMe qualified names.

/// Longest NVMe qualified name in bytes, terminator not counted. Base 2.1, section "NVMe Qualified Names".
pub const NQN_BYTES_MAX: usize = 223;
/// Bytes of a field that holds a qualified name.
pub const NQN_FIELD_BYTES: usize = 256;
/// Qualified name of every discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Reason why bytes or text are not a qualified name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NqnError {
    /// The name is empty.
    Empty,
    /// Longer than [`NQN_BYTES_MAX`], with its length.
    TooLong(usize),
    /// Not UTF-8.
    NotText,
    /// Does not begin with `nqn.`.
    Prefix,
}

impl core::fmt::Display for NqnError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Empty => f.write_str("empty qualified name"),
            Self::TooLong(bytes) => write!(f, "qualified name of {bytes} bytes, at most {NQN_BYTES_MAX} allowed"),
            Self::NotText => f.write_str("qualified name is not utf-8"),
            Self::Prefix => f.write_str("qualified name does not begin with \"nqn.\""),
        }
    }
}

impl core::error::Error for NqnError {}

/// Checks a qualified name.
pub fn check_nqn(nqn: &str) -> Result<(), NqnError> {
    match nqn.len() {
        0 => Err(NqnError::Empty),
        bytes if bytes > NQN_BYTES_MAX => Err(NqnError::TooLong(bytes)),
        _ if !nqn.starts_with("nqn.") => Err(NqnError::Prefix),
        _ => Ok(()),
    }
}

/// Returns the bytes of a field up to the first zero byte, whether or not they are a qualified name.
pub fn nqn_bytes(field: &[u8; NQN_FIELD_BYTES]) -> &[u8] {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    &field[..end]
}

/// Returns the qualified name in a field: up to the first zero byte.
pub fn nqn_from_field(field: &[u8; NQN_FIELD_BYTES]) -> Result<&str, NqnError> {
    let nqn = core::str::from_utf8(nqn_bytes(field)).map_err(|_| NqnError::NotText)?;
    check_nqn(nqn).map(|()| nqn)
}

/// Makes a field of the qualified name, followed by zeros.
pub fn nqn_field(nqn: &str) -> Result<[u8; NQN_FIELD_BYTES], NqnError> {
    check_nqn(nqn)?;
    let mut field = [0; NQN_FIELD_BYTES];
    field[..nqn.len()].copy_from_slice(nqn.as_bytes());
    Ok(field)
}

/// Makes a field of space-padded ASCII (serial and model numbers). Cuts off text that does not fit, and replaces
/// characters other than printable ASCII by `?`.
pub fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (to, from) in field.iter_mut().zip(text.chars()) {
        *to = if from.is_ascii_graphic() || from == ' ' { from as u8 } else { b'?' };
    }
    field
}

/// Returns the text of a space- or zero-padded ASCII field; empty if it is not UTF-8.
pub fn trimmed(field: &[u8]) -> &str {
    core::str::from_utf8(field).unwrap_or("").trim_end_matches(['\0', ' '])
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_checked() {
        assert_eq!(nqn_from_field(&[0; 256]), Err(NqnError::Empty));
        assert_eq!(nqn_from_field(&[0xFF; 256]), Err(NqnError::NotText));
        assert_eq!(nqn_from_field(&[b'n'; 256]), Err(NqnError::TooLong(256)));
        assert_eq!(nqn_field("iqn.x"), Err(NqnError::Prefix));
        assert_eq!(nqn_field(DISCOVERY_NQN).as_ref().map(nqn_from_field), Ok(Ok(DISCOVERY_NQN)));
    }

    #[test]
    fn padded_text_is_cut_and_cleaned() {
        assert_eq!(&padded::<4>("ab"), b"ab  ");
        assert_eq!(&padded::<2>("abc"), b"ab");
        assert_eq!(&padded::<2>("é"), b"? ");
        assert_eq!(trimmed(b"ab \0 "), "ab");
        assert_eq!(trimmed(&[0xFF]), "");
    }

    proptest! {
        #[test]
        fn any_field_gives_a_name_or_an_error(field in proptest::collection::vec(any::<u8>(), 256)) {
            let field: [u8; 256] = field.try_into().unwrap();
            if let Ok(nqn) = nqn_from_field(&field) {
                prop_assert!(!nqn.is_empty() && nqn.len() <= NQN_BYTES_MAX);
            }
        }

        #[test]
        fn names_round_trip(tail in "[ -~]{0,219}") {
            let nqn = std::format!("nqn.{tail}");
            let field = nqn_field(&nqn).unwrap();
            prop_assert_eq!(nqn_from_field(&field), Ok(nqn.as_str()));
        }
    }
}
