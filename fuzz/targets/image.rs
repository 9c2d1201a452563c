//! Reads any bytes as an image file and as a pipeline description.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    ddlp_pixels::fuzz::decode(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        ddlp_pixels::fuzz::describe(text);
    }
});
