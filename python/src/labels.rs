//! Labels of samples in Python's memory.

/// Mark of a label that is not known yet. No sample has this label.
pub const UNKNOWN: u32 = u32::MAX;

/// Checks a label of a dataset with this number of classes, 0 if they have no names. The error is the end of a sentence
/// such as "the label of item 3 is …".
pub fn checked(label: impl Into<i128>, classes: usize) -> Result<u32, String> {
    let label = label.into();
    match u32::try_from(label) {
        Ok(label) if label != UNKNOWN && (classes == 0 || (label as usize) < classes) => Ok(label),
        _ if classes > 0 => Err(format!("{label}, but its classes are numbered 0 to {}", classes - 1)),
        _ => Err(format!("{label}, but labels lie between 0 and {}", UNKNOWN - 1)),
    }
}
