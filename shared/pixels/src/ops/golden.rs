//! What torchvision's transforms make of one image, for tests (tests/golden).

const VALUES: &str = include_str!("../../tests/golden/values.txt");

/// Returns the image that the transforms got: 20 × 20 pixels.
pub fn image() -> Vec<u8> {
    pixels(VALUES.lines().find_map(|line| line.strip_prefix("image ")).unwrap())
}

/// Returns pixels that are written as hexadecimal digits.
pub fn pixels(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).map(|digits| str::from_utf8(digits).unwrap());
    digits.map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect()
}
