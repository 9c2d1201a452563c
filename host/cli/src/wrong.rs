//! Errors of the command line, which have an exit status of their own.

use ddlp_dataset::pack::PackOptionError;
use ddlp_host::LoaderError;
use std::fmt;

/// A command line whose options are invalid or contradictory.
#[derive(Debug)]
pub struct WrongCommandLine(pub String);

impl fmt::Display for WrongCommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongCommandLine {}

/// Returns from the function with a [`WrongCommandLine`], as `bail!` does with other errors.
macro_rules! wrong {
    ($($text:tt)*) => {
        return Err($crate::wrong::WrongCommandLine(format!($($text)*)).into())
    };
}
pub(crate) use wrong;

/// Returns whether the error lies in the options, as this command or a library found.
pub fn is_of_command_line(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<WrongCommandLine>()
            || cause.is::<PackOptionError>()
            || matches!(cause.downcast_ref(), Some(LoaderError::Options(_)))
    })
}
