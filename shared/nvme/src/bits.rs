//! Bit fields of integers. The rest of the crate has no shifts.

/// Returns bits `low..low + width` of `value`.
pub(crate) const fn get(value: u64, low: u32, width: u32) -> u64 {
    (value >> low) & mask(width)
}

/// Returns `value` with bits `low..low + width` replaced by the low bits of `field`.
pub(crate) const fn with(value: u64, low: u32, width: u32, field: u64) -> u64 {
    (value & !(mask(width) << low)) | ((field & mask(width)) << low)
}

/// Does the same as [`get`] for a dword.
pub(crate) const fn get32(value: u32, low: u32, width: u32) -> u32 {
    get(value as u64, low, width) as u32
}

/// Does the same as [`with`] for a dword.
pub(crate) const fn with32(value: u32, low: u32, width: u32, field: u32) -> u32 {
    with(value as u64, low, width, field as u64) as u32
}

/// Joins two dwords into one value; the first is the less significant.
pub(crate) const fn join(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Splits a value into the two dwords of [`join`].
pub(crate) const fn split(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

const fn mask(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}
