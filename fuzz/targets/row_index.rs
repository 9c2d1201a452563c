//! Parses any bytes as the row index of a JPEG, and renders crops of the JPEG by it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ddlp_pixels::fuzz::row_index(bytes));
