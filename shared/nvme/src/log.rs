//! Log pages. Base 2.1, section "Get Log Page command". [`window`] cuts pieces out of a page.
//!
//! - [`health`]: error information, SMART, firmware slots.
//! - [`effects`]: commands supported and effects.
//! - [`discovery`]: the log of a discovery controller.
//!
//! The changed namespace list (04h) has the layout of [`crate::identify::list`].

pub mod discovery;
pub mod effects;
pub mod health;

pub use discovery::{DiscoveryEntry, DiscoveryHeader};
pub use effects::{CommandEffects, EffectsLog};
pub use health::{ErrorEntry, FirmwareSlotLog, SmartLog};

/// Returns the piece of a page that Get Log Page asks for; `None` if `offset` lies beyond the page's end. The piece
/// ends at the end of the page; a controller pads its answer with zeros.
pub fn window(page: &[u8], offset: u64, bytes: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok().filter(|&start| start <= page.len())?;
    let rest = &page[start..];
    let length = usize::try_from(bytes).map_or(rest.len(), |bytes| bytes.min(rest.len()));
    Some(&rest[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_cut_to_the_page() {
        let page = [1, 2, 3, 4];
        assert_eq!(window(&page, 0, 2), Some(&page[..2]));
        assert_eq!(window(&page, 2, 100), Some(&page[2..]));
        assert_eq!(window(&page, 4, 1), Some(&page[4..]));
        assert_eq!(window(&page, 5, 1), None);
        assert_eq!(window(&page, u64::MAX, u64::MAX), None);
    }
}
