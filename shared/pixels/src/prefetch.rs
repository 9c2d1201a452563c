//! Loads bytes into the processor's cache before they are needed.

#![allow(unsafe_code)]

/// Bytes of a cache line on most processors; if lines are longer, some are requested twice.
const LINE: usize = 64;

/// Requests bytes for this core's cache, without waiting for them. The request pays if the processor cannot predict the
/// read, and other work comes before it. The request changes nothing but the time that the read takes.
pub fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which fails for no address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast());
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above; neither memory, registers nor flags change.
        unsafe {
            std::arch::asm!("prfm pldl2keep, [{}]", in(reg) line.as_ptr(), options(nostack, readonly, preserves_flags));
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = line;
    }
}
