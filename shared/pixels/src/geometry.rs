//! Boxes of whole pixels.

/// A box of whole pixels. It may reach out of the image; pixels there are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Column of the left edge.
    pub x: i64,
    /// Row of the upper edge.
    pub y: i64,
    /// Width in columns.
    pub width: u32,
    /// Height in rows.
    pub height: u32,
}

impl Window {
    /// Returns the box of a whole image.
    pub fn whole(width: u32, height: u32) -> Self {
        Self { x: 0, y: 0, width, height }
    }

    /// Returns whether the box lies within an image of this size.
    pub fn lies_within(&self, (width, height): (u32, u32)) -> bool {
        self.x >= 0
            && self.y >= 0
            && self.x + i64::from(self.width) <= i64::from(width)
            && self.y + i64::from(self.height) <= i64::from(height)
    }

    /// Returns the part that lies within an image of this size.
    pub(crate) fn visible(&self, (width, height): (u32, u32)) -> Option<Rect> {
        let span = |start: i64, length: u32, limit: u32| {
            let first = start.clamp(0, i64::from(limit));
            let end = (start + i64::from(length)).clamp(0, i64::from(limit));
            // Both lie in 0..=limit, a u32, so the casts lose nothing.
            (end > first).then_some((first as u32, (end - first) as u32))
        };
        let (x, across) = span(self.x, self.width, width)?;
        let (y, down) = span(self.y, self.height, height)?;
        Some(Rect { x, y, width: across, height: down })
    }
}

/// A box of whole pixels within an image. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rect {
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
}

impl Rect {
    /// Returns the rectangle with a margin around it, as far as the margin lies within an image of this size.
    pub fn with_margin(self, margin: u32, (width, height): (u32, u32)) -> Self {
        let span = |start: u32, length: u32, limit: u32| {
            let first = start.saturating_sub(margin);
            (first, (start + length + margin).min(limit) - first)
        };
        let (x, across) = span(self.x, self.width, width);
        let (y, down) = span(self.y, self.height, height);
        Self { x, y, width: across, height: down }
    }
}
