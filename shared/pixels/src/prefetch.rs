//! Bytes on their way to the processor before they are asked for.

#![allow(unsafe_code)]

/// Bytes of a line of the cache on the processors that this is for; on one with longer lines, some are asked for twice.
const LINE: usize = 64;

/// Brings bytes near to this core, without waiting for them: worth it where the processor cannot foresee that they will be read, and some
/// work comes before. Changes nothing but the time that reading them takes.
pub fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which no address makes fail.
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
