//! Finishing: what makes the delivered elements of a batch's images from its prepared rows, if the delivery target does
//! that itself ([`LoaderBuilder::deliver_prepared_to`](crate::LoaderBuilder::deliver_prepared_to)). Otherwise the
//! loader's threads do it.

use crate::mixing::BatchMix;
use ddlp_pixels::{DType, Shape};
use std::sync::Arc;

/// How the elements of a batch's images follow from its rows.
///
/// A row is one sample as prepared: height × width pixels of red, green and blue bytes. Row r is mixed with row r − 1,
/// and row 0 with the last row, as all of them were prepared. An element is made from its byte `own` and the byte
/// `other` at the same place of the other row:
///
/// - of a float, the value of each byte is the one in the [`table`](Self::table);
/// - of uint8, the value of each byte is the byte;
/// - [`mix`](Self::mix) makes one value from these two.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Finishing {
    /// Dimensions of a row.
    pub prepared: Shape,
    /// Type of the elements.
    pub dtype: DType,
    /// Whether each image's elements lie in planes of red, green and blue. Otherwise they lie in the order of the
    /// bytes.
    pub planar: bool,
    /// Value of each of the 256 bytes of red, then of green, then of blue, in this machine's byte order. Empty for
    /// uint8.
    pub table: Arc<[u8]>,
    /// How the rows are mixed.
    pub mix: BatchMix,
}

impl Finishing {
    /// Returns how rows that are not mixed are finished.
    pub fn unmixed(prepared: Shape, dtype: DType, planar: bool, table: Arc<[u8]>) -> Self {
        Self { prepared, dtype, planar, table, mix: BatchMix::Unmixed }
    }
}
