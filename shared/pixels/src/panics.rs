//! Turns panics of foreign decoders into errors.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use crate::error::PixelError;

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Has a foreign decoder's panic, which becomes an error anyway, print no message on standard error. Changes the panic
/// hook of the whole process. For programs, not for libraries: the process belongs to the program.
pub fn silence_decoder_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !CONTAINED.get() {
                before(info);
            }
        }));
    });
}

/// Runs foreign code and turns its panic into an error. Anything that `work` borrows must be scratch that the next
/// sample clears.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Result<T, PixelError> {
    CONTAINED.set(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(false);
    outcome.map_err(|payload| PixelError::DecoderPanic { message: message_of(payload.as_ref()) })
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(contained(|| 3), Ok(3));
        let index = [1u8, 2].len();
        let panicked = contained(|| [1u8, 2][std::hint::black_box(index)]);
        assert!(matches!(panicked, Err(PixelError::DecoderPanic { message }) if message.contains("out of bounds")));
        assert!(!CONTAINED.get());
    }
}
