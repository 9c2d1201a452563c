//! A region has the pixels of that part of the image, and needs only the bytes that the index names.

use ddlp_l3::{Error, HEADER_BYTES, Index, Level, OpenImage, PatchSize, Region};

use crate::images::{KINDS, Pixels, Random};

/// What the memory holds between the rows of a region.
const UNTOUCHED: u8 = 0xA5;

fn cropped(pixels: &Pixels, region: Region, stride: usize) -> Vec<u8> {
    let mut bytes = vec![UNTOUCHED; stride * region.height];
    for (row, target) in bytes.chunks_mut(stride).enumerate() {
        let begin = ((region.y + row) * pixels.width + region.x) * pixels.channels;
        let length = region.width * pixels.channels;
        target[..length].copy_from_slice(&pixels.bytes[begin..][..length]);
    }
    bytes
}

fn random_region(pixels: &Pixels, random: &mut Random) -> Region {
    let (x, y) = (random.below(pixels.width), random.below(pixels.height));
    let (width, height) = (random.below(pixels.width - x) + 1, random.below(pixels.height - y) + 1);
    Region { x, y, width, height }
}

#[test]
fn a_region_has_the_pixels_of_the_image() {
    let mut random = Random::new(77);
    for number in 0..200 {
        let size = (random.below(250) + 1, random.below(250) + 1);
        let pixels = Pixels::random(number % KINDS, size, [1, 3][number % 2], &mut random);
        let bytes = pixels.encoded([PatchSize::Side32, PatchSize::Side64][number / 2 % 2]);
        let opened = OpenImage::open(&bytes).unwrap();
        for _ in 0..10 {
            let region = random_region(&pixels, &mut random);
            let stride = region.width * pixels.channels + random.below(20);
            for level in Level::all() {
                let mut decoded = vec![UNTOUCHED; stride * region.height];
                opened.clone().with_level(level).decode_region(region, &mut decoded, stride).unwrap();
                let expected = cropped(&pixels, region, stride);
                assert!(decoded == expected, "image {number} of {size:?}, region {region}, {}", level.name());
            }
        }
    }
}

#[test]
fn a_region_is_decoded_from_its_pieces_alone() {
    let mut random = Random::new(78);
    for number in 0..50 {
        let size = (random.below(250) + 1, random.below(250) + 1);
        let pixels = Pixels::random(number % KINDS, size, [1, 3][number % 2], &mut random);
        let bytes = pixels.encoded(PatchSize::Side32);
        let index_bytes = Index::bytes(&bytes[..HEADER_BYTES]).unwrap() as usize;
        let index = Index::read(&bytes[..index_bytes]).unwrap();
        assert_eq!(index.image_bytes(), bytes.len() as u64);
        let region = random_region(&pixels, &mut random);
        let pieces = index.pieces(region).unwrap();
        let pieces: Vec<_> = pieces.map(|piece| bytes[piece.start as usize..piece.end as usize].to_vec()).collect();
        let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
        let stride = region.width * pixels.channels;
        let mut decoded = vec![0; stride * region.height];
        index.decode_region(region, &pieces, &mut decoded, stride).unwrap();
        assert!(decoded == cropped(&pixels, region, stride), "image {number} of {size:?}, region {region}");
    }
}

#[test]
fn pieces_are_the_patches_that_the_region_touches() {
    let pixels = Pixels::random(8, (96, 96), 1, &mut Random::new(3));
    let bytes = pixels.encoded(PatchSize::Side32);
    let index = Index::read(&bytes).unwrap();
    let pieces = |x, y, width, height| index.pieces(Region { x, y, width, height }).unwrap().collect::<Vec<_>>();
    let all = pieces(0, 0, 96, 96);
    assert_eq!(all.len(), 3);
    assert_eq!(all[0].start, Index::bytes(&bytes).unwrap());
    assert_eq!([all[0].end, all[1].end], [all[1].start, all[2].start]);
    assert_eq!(all[2].end, bytes.len() as u64);
    let middle = pieces(32, 32, 32, 32);
    assert_eq!(middle.len(), 1);
    assert!(middle[0].start > all[1].start && middle[0].end < all[1].end);
    assert_eq!(pieces(31, 32, 34, 1), [all[1].clone()]);
    assert_eq!(pieces(0, 31, 96, 2), all[..2]);
}

#[test]
fn impossible_requests_are_errors() {
    let pixels = Pixels::random(3, (50, 40), 3, &mut Random::new(4));
    let bytes = pixels.encoded(PatchSize::Side32);
    let opened = OpenImage::open(&bytes).unwrap();
    let mut target = vec![0; 50 * 40 * 3];
    let mut error = |x, y, width, height, bytes: usize, stride| {
        opened.decode_region(Region { x, y, width, height }, &mut target[..bytes], stride).unwrap_err()
    };
    let outside = [(0, 0, 51, 1), (0, 0, 1, 41), (50, 0, 1, 1), (0, 0, 0, 1), (0, 0, 1, 0), (usize::MAX, 0, 2, 1)];
    for (x, y, width, height) in outside {
        assert!(matches!(error(x, y, width, height, 6000, 150), Error::Outside { .. }));
    }
    let length = |what, expected, found| Error::Length { what, expected, found };
    assert_eq!(error(0, 0, 50, 40, 5999, 150), length("memory for the pixels", 6000, 5999));
    assert_eq!(error(0, 0, 50, 40, 6000, 149), length("stride of the pixels", 150, 149));
    assert!(matches!(error(0, 0, 50, 40, 6000, usize::MAX), Error::Length { .. }));
    let whole = opened.index().whole();
    let few = opened.index().decode_region(whole, &[&bytes], &mut target, 150).unwrap_err();
    assert_eq!(few, length("pieces for the region", 2, 1));
    let other = opened.index().decode_region(whole, &[&bytes, &bytes], &mut target, 150).unwrap_err();
    assert!(matches!(other, Error::Length { what: "piece of the L3 image", .. }));
}
