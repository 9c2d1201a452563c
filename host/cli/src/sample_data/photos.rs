//! The photographs from which sample data is cut. They are part of this program, so that making sample data needs no
//! download.

macro_rules! photos {
    ($($name:literal),* $(,)?) => {
        &[$(include_bytes!(concat!("../../../../assets/photos/", $name, ".jpg"))),*]
    };
}

/// JPEGs of 768×512 or 512×768 pixels. `assets/photos/README.md` names their source and terms.
pub const PHOTOS: &[&[u8]] = photos![
    "aeroplane",
    "barn",
    "beach",
    "caps",
    "door",
    "flowers",
    "houses",
    "lighthouse",
    "parrots",
    "river",
    "sails",
    "statue",
];

#[cfg(test)]
mod tests {
    use super::*;
    use ddlp_pixels::{Limits, Preparer};

    #[test]
    fn every_photograph_is_a_jpeg_of_the_expected_size() {
        let mut preparer = Preparer::new(Limits::default());
        for photo in PHOTOS {
            let info = preparer.info(photo).unwrap();
            assert!(matches!((info.width, info.height), (768, 512) | (512, 768)), "{info:?}");
            assert!(info.jpeg.is_some(), "{info:?}");
        }
    }
}
