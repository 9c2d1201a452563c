//! Cuts any bytes into the pieces of scan groups, and joins any bytes as pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ddlp_pixels::fuzz::pieces(bytes));
