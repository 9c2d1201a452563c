//! The driver's functions, as cuda.h declares them.

mod capture;
mod context;
mod control;
mod copy;
mod device;
mod event;
mod memory;
mod module;
mod stream;

use std::ffi::CStr;

use crate::code::{Code, Failure};

/// Defines functions of the driver. Each body gets the call that is under way.
macro_rules! driver_functions {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) $needs:ident |$call:pat_param| $body:block
    )*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            extern "C" fn $name($($argument: $type),*) -> i32 {
                $crate::session::call(stringify!($name), $crate::session::Needs::$needs, |$call| {
                    $body
                    Ok(())
                })
            }
        )*
    };
}
pub(crate) use driver_functions;

/// Writes a result where the program wants it.
fn put<T>(to: *mut T, value: T) -> Result<(), Failure> {
    if to.is_null() || !to.is_aligned() {
        return Err(Failure::defect(Code::INVALID_VALUE, "a pointer to a result is null or not aligned"));
    }
    // SAFETY: the program gives a pointer to a place for the result: that is the function's contract in cuda.h.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes text with a final zero into a buffer of `room` bytes.
fn put_text(to: *mut u8, room: usize, text: &str) -> Result<(), Failure> {
    if to.is_null() || room == 0 {
        return Err(Failure::defect(Code::INVALID_VALUE, "there is no room for a text"));
    }
    let length = text.len().min(room - 1);
    // SAFETY: the program gives a buffer of that many bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to, length);
        to.add(length).write(0);
    }
    Ok(())
}

/// Returns the bytes of this process at an address, or `None` if they cannot be read.
fn peek<const N: usize>(from: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: N };
    let remote = libc::iovec { iov_base: from as *mut _, iov_len: N };
    // SAFETY: the kernel copies into our buffer, and answers an error if the address cannot be read.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (read == N as isize).then_some(bytes)
}

/// Returns a text that ends with a zero.
fn text<'a>(from: *const std::ffi::c_char) -> Result<&'a str, Failure> {
    if from.is_null() {
        return Err(Failure::defect(Code::INVALID_VALUE, "a text is null"));
    }
    // SAFETY: the program gives a text that ends with a zero.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_str().map_err(|_| Failure::defect(Code::INVALID_VALUE, "a text is not UTF-8"))
}
