//! Boxes of whole pixels.

/// A box of whole pixels. It may reach out of the image; a [`Border`] says what lies there.
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
pub struct Rect {
    /// Column of the left edge.
    pub x: u32,
    /// Row of the upper edge.
    pub y: u32,
    /// Width in columns.
    pub width: u32,
    /// Height in rows.
    pub height: u32,
}

impl Rect {
    /// Returns the rectangle with margins along x and y around it, as far as they lie within an image of this size.
    pub(crate) fn with_margins(self, [along_x, along_y]: [u32; 2], (width, height): (u32, u32)) -> Self {
        let span = |start: u32, length: u32, margin: u32, limit: u32| {
            let first = start.saturating_sub(margin);
            (first, (start + length + margin).min(limit) - first)
        };
        let (x, across) = span(self.x, self.width, along_x, width);
        let (y, down) = span(self.y, self.height, along_y, height);
        Self { x, y, width: across, height: down }
    }
}

impl From<Rect> for Window {
    fn from(rect: Rect) -> Self {
        Self { x: rect.x.into(), y: rect.y.into(), width: rect.width, height: rect.height }
    }
}

/// What lies outside an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Border {
    /// One colour: red, green and blue.
    Fill([u8; 3]),
    /// The outermost pixels.
    Edge,
    /// The image, mirrored at its outermost pixels, which are not repeated.
    Reflect,
    /// The image, mirrored at its edges, so that the outermost pixels are repeated.
    Symmetric,
}

impl Default for Border {
    fn default() -> Self {
        Self::Fill([0; 3])
    }
}

impl Border {
    /// Returns the pixel of a row or column of `length` pixels that lies at a place, or `None` if it has the fill
    /// colour.
    pub(crate) fn pixel(self, at: i64, length: u32) -> Option<u32> {
        let length = i64::from(length);
        // Each result lies within the length, a u32, so the casts lose nothing.
        match self {
            Self::Fill(_) => (0..length).contains(&at).then_some(at as u32),
            Self::Edge => Some(at.clamp(0, length - 1) as u32),
            Self::Reflect => {
                let at = at.rem_euclid((2 * length - 2).max(1));
                Some(at.min(2 * length - 2 - at) as u32)
            }
            Self::Symmetric => {
                let at = at.rem_euclid(2 * length);
                Some(at.min(2 * length - 1 - at) as u32)
            }
        }
    }

    /// Returns the rectangle of an image of this size from which a window is made, or `None` if all of the window has
    /// the fill colour.
    pub(crate) fn source_rect(self, window: Window, size: (u32, u32)) -> Option<Rect> {
        if matches!(self, Self::Fill(_)) || window.lies_within(size) {
            return window.visible(size);
        }
        let span = |start: i64, length: u32, limit: u32| {
            let last = start + i64::from(length) - 1;
            let (one, other) = (self.pixel(start, limit)?, self.pixel(last, limit)?);
            // A mirrored image runs to and fro between its ends.
            let period = match self {
                Self::Fill(_) | Self::Edge => i64::MAX,
                Self::Reflect => (2 * i64::from(limit) - 2).max(1),
                Self::Symmetric => 2 * i64::from(limit),
            };
            let covers = |end: i64| self != Self::Edge && (end - start).rem_euclid(period) <= last - start;
            let first = if covers(0) { 0 } else { one.min(other) };
            let last = if covers(i64::from(limit) - 1) { limit - 1 } else { one.max(other) };
            Some((first, last - first + 1))
        };
        let (x, width) = span(window.x, window.width, size.0)?;
        let (y, height) = span(window.y, window.height, size.1)?;
        Some(Rect { x, y, width, height })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_are_those_of_numpy() {
        let row = |border: Border, length| (-5..8).map(|at| border.pixel(at, length)).collect::<Option<Vec<_>>>();
        // numpy.pad of a row 0, 1, 2, with modes of the same names.
        assert_eq!(row(Border::Edge, 3).unwrap(), [0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2]);
        assert_eq!(row(Border::Reflect, 3).unwrap(), [1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2, 1]);
        assert_eq!(row(Border::Symmetric, 3).unwrap(), [1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0, 0, 1]);
        assert_eq!(row(Border::Reflect, 1).unwrap(), [0; 13]);
        assert_eq!(row(Border::Fill([1; 3]), 3), None);
    }

    #[test]
    fn a_window_reads_the_pixels_that_it_shows_and_those_between() {
        for border in [Border::Fill([0; 3]), Border::Edge, Border::Reflect, Border::Symmetric] {
            for limit in 1..6u32 {
                for (x, width) in (-20..20).flat_map(|x| (1..20).map(move |width| (x, width))) {
                    let shown = (x..x + i64::from(width)).filter_map(|at| border.pixel(at, limit));
                    let expected = shown.clone().min().zip(shown.max());
                    let found = border.source_rect(Window { x, y: 0, width, height: 1 }, (limit, 1));
                    let found = found.map(|rect| (rect.x, rect.x + rect.width - 1));
                    assert_eq!(found, expected, "{border:?} {x} {width} of {limit}");
                }
            }
        }
    }
}
