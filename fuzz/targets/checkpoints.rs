//! Parses any bytes as checkpoints, and decodes a JPEG from them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ddlp_pixels::fuzz::checkpoints(bytes));
