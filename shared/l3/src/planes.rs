//! The pixels of a patch, one plane for each channel.

/// The longest side of a patch.
pub const MAX_SIDE: usize = 64;

/// A row of a patch. Columns beyond the patch's width have no meaning.
pub type Row = [u8; MAX_SIDE];

/// One channel of a patch. Rows beyond the patch's height have no meaning.
pub type Plane = [Row; MAX_SIDE];

/// All channels of a patch; a gray patch uses the first plane.
pub type Planes = [Plane; 3];

/// Planes of zeros.
pub const EMPTY: Planes = [[[0; MAX_SIDE]; MAX_SIDE]; 3];
