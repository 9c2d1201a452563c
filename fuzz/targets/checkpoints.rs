//! Checkpoints of any content, and a JPEG decoded from them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ddlp_pixels::fuzz::checkpoints(bytes));
