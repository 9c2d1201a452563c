//! Checks verdicts on whole files: an intact or repaired file has the same pixels in SIMD code and in portable code.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use ddlp_pixels::draw::Rng;
use ddlp_pixels::encode::{self, JpegOptions, Layout};
use ddlp_pixels::ops::CenterCrop;
use ddlp_pixels::{CorruptReason, Draw, Limits, Pipeline, Preparer, Source, Verdict, synthetic};

const SIDE: u32 = 96;
const DAMAGED: u64 = 1500;

fn file(layout: Layout, progressive: bool, seed: u32) -> Vec<u8> {
    let rgb = synthetic::photo(SIDE, SIDE, seed);
    let pixels = match layout.channels() {
        1 => rgb.iter().copied().step_by(3).collect(),
        4 => rgb.chunks_exact(3).flat_map(|pixel| [pixel[0], pixel[1], pixel[2], pixel[1]]).collect(),
        _ => rgb,
    };
    let options = JpegOptions { layout, progressive, quality: 75, ..JpegOptions::default() };
    encode::jpeg(&pixels, SIDE, SIDE, &options).unwrap()
}

/// Returns a file with a few flipped bits behind its headers, or in its quantisation tables.
fn damaged(number: u64) -> Vec<u8> {
    let mut rng = Rng::from_key([0xDA, number, 0, 0]);
    let layout = Layout::ALL[rng.below(Layout::ALL.len() as u64) as usize];
    let mut file = file(layout, rng.below(3) == 0, number as u32 % 5);
    let scan = file.windows(2).position(|two| two == [0xFF, 0xDA]).unwrap() as u64 + 10;
    for _ in 0..=rng.below(3) {
        let at = if rng.below(8) == 0 { 20 + rng.below(120) } else { scan + rng.below(file.len() as u64 - scan - 2) };
        file[at as usize] ^= 1 << rng.below(8);
    }
    file
}

/// Returns a digest of the whole image's pixels, or the error's code.
fn pixels_of(preparer: &mut Preparer, file: &[u8]) -> String {
    let pipeline = Pipeline::of([CenterCrop::to(SIDE).into()]);
    let mut out = vec![0; pipeline.output().bytes()];
    match preparer.prepare(Source::Encoded(file), &pipeline, Draw::default(), &mut out) {
        Ok(_) => blake3::hash(&out).to_hex()[..16].to_owned(),
        Err(error) => error.reason().to_string(),
    }
}

/// Returns, for each damaged file, what a pack would store of it, and digests of the stored file's pixels and of the
/// original's.
fn report() -> Vec<String> {
    let mut preparer = Preparer::new(Limits::default());
    let one = |number| {
        let file = damaged(number);
        let raw = pixels_of(&mut preparer, &file);
        let kept = match preparer.inspect(&file) {
            Verdict::Intact => format!("intact {}", pixels_of(&mut preparer, &file)),
            Verdict::Repaired { bytes, warnings, clamped } => {
                assert!(warnings > 0 || clamped > 0);
                assert_eq!(preparer.inspect(&bytes), Verdict::Intact, "file {number}");
                format!("repaired {} {}", blake3::hash(&bytes).to_hex(), pixels_of(&mut preparer, &bytes))
            }
            Verdict::Rejected { reason, .. } => format!("rejected {reason}"),
            other => panic!("{other:?}"),
        };
        format!("file {number}: {kept} | {raw}")
    };
    (0..DAMAGED).map(one).collect()
}

const CHILD: &str = "DDLP_REPORT_OF_PORTABLE_CODE";

/// Runs in a child process of the test below, and does nothing elsewhere.
#[test]
fn report_of_this_process() {
    if std::env::var_os(CHILD).is_some() {
        println!("abilities {:?}", ddlp_pixels::abilities_without_forms());
        report().iter().for_each(|line| println!("{line}"));
    }
}

/// Returns a command that runs this program again, by cargo's runner for this architecture if one is set.
fn this_test() -> Command {
    let program = std::env::current_exe().unwrap();
    let prefix = format!("CARGO_TARGET_{}_", std::env::consts::ARCH.to_uppercase());
    let is_runner = |name: &str| name.starts_with(&prefix) && name.ends_with("_RUNNER");
    let Some((_, runner)) = std::env::vars().find(|(name, _)| is_runner(name)) else { return Command::new(program) };
    let mut words = runner.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).arg(program);
    command
}

#[test]
fn simd_and_portable_code_agree_on_what_is_kept() {
    let child = this_test()
        .args(["--exact", "inspect::report_of_this_process", "--nocapture"])
        .env("JSIMD_FORCENONE", "1")
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let simd = report();
    let child = child.wait_with_output().unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    let text = String::from_utf8(child.stdout).unwrap();
    assert!(text.contains(&format!("abilities {:?}", ddlp_pixels::abilities_without_forms())));
    let portable: Vec<&str> = text.lines().filter(|line| line.starts_with("file ")).collect();
    assert_eq!(simd.len(), portable.len());
    let mut verdicts = BTreeMap::new();
    let mut raw_differ = 0;
    for (simd, portable) in simd.iter().zip(portable) {
        let ((kept, raw), (portable_kept, portable_raw)) =
            (simd.split_once(" | ").unwrap(), portable.split_once(" | ").unwrap());
        assert_eq!(kept, portable_kept);
        raw_differ += usize::from(raw != portable_raw);
        *verdicts.entry(kept.split(' ').nth(2).unwrap()).or_insert(0) += 1;
    }
    println!("{verdicts:?}, {raw_differ} unchecked files differ");
    assert!(["intact", "repaired", "rejected"].iter().all(|verdict| verdicts[verdict] > 10), "{verdicts:?}");
    if cfg!(target_arch = "x86_64") {
        assert!(raw_differ > 0, "no unchecked file differs, so the test proves nothing");
    }
}

#[test]
fn what_an_encoder_makes_is_intact() {
    let mut preparer = Preparer::new(Limits::default());
    for layout in Layout::ALL {
        for progressive in [false, true] {
            assert_eq!(preparer.inspect(&file(layout, progressive, 1)), Verdict::Intact, "{layout:?}");
        }
    }
    for quality in [1, 5, 30, 100] {
        let noise: Vec<u8> = {
            let mut rng = Rng::from_key([u64::from(quality), 0, 0, 0]);
            (0..SIDE * SIDE * 3).map(|_| if rng.below(2) == 0 { 0 } else { 255 }).collect()
        };
        let options = JpegOptions { quality, ..JpegOptions::default() };
        let file = encode::jpeg(&noise, SIDE, SIDE, &options).unwrap();
        assert_eq!(preparer.inspect(&file), Verdict::Intact, "noise of quality {quality}");
    }
}

#[test]
fn repairing_keeps_orientation_and_coding() {
    let mut preparer = Preparer::new(Limits::default());
    for progressive in [false, true] {
        let restart_rows = if progressive { 0 } else { 2 };
        let options = JpegOptions { progressive, orientation: Some(6), restart_rows, ..JpegOptions::default() };
        let good = encode::jpeg(&synthetic::photo(SIDE, SIDE, 1), SIDE, SIDE, &options).unwrap();
        // Bytes between two markers are skipped with a warning.
        let scan = good.windows(2).position(|two| two == [0xFF, 0xDA]).unwrap();
        let warned = [&good[..scan], &[0, 0, 0], &good[scan..]].concat();
        let Verdict::Repaired { bytes, warnings, clamped: 0 } = preparer.inspect(&warned) else { panic!() };
        assert!(warnings > 0);
        let info = preparer.info(&bytes).unwrap();
        assert_eq!(info, preparer.info(&good).unwrap());
        assert_eq!(info.orientation, 6);
        assert_eq!(pixels_of(&mut preparer, &bytes), pixels_of(&mut preparer, &good));
    }
}

/// Returns a good file with other bytes behind the marker of a segment and the segment's length.
fn with_segment(good: &[u8], marker: u8, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = good.to_vec();
    let start = file.windows(2).position(|two| two == [0xFF, marker]).unwrap() + 4 + at;
    file[start..start + bytes.len()].copy_from_slice(bytes);
    file
}

#[test]
fn what_does_not_decode_is_rejected_with_its_reason() {
    let (frame, scan) = (0xC0, 0xDA);
    let good = file(Layout::Yuv420, false, 1);
    let progressive = file(Layout::Yuv420, true, 1);
    let cut = |file: &[u8], bytes: usize| file[..bytes].to_vec();
    let png = [&b"\x89PNG\r\n\x1a\n"[..], &[0; 8]].concat();
    // Decoding a progressive file ends behind its last scan.
    let end = progressive.len() - 2;
    let fatal = [&progressive[..end], &[0xFF, 0xC5], &progressive[end..]].concat();
    let few = Limits { pixels: 100, ..Limits::default() };
    let one_scan = Limits { scans: 1, ..Limits::default() };
    let any = Limits::default();
    let unsupported = CorruptReason::Unsupported;
    for (limits, file, reason, message) in [
        (any, Vec::new(), CorruptReason::Empty, "the sample has no bytes"),
        (any, b"no image".to_vec(), CorruptReason::UnknownFormat, "no known image format begins with the bytes [6e,"),
        (any, b"II+\0 no more".to_vec(), CorruptReason::UnknownFormat, "BigTIFF is not decoded"),
        (any, cut(&good, good.len() / 2), CorruptReason::Truncated, "the file ends before its image does: "),
        (any, cut(&good, 20), CorruptReason::Truncated, "the file ends before its image does: "),
        (
            any,
            cut(&progressive, progressive.len() / 2),
            CorruptReason::Truncated,
            "the file ends before its image does",
        ),
        (any, fatal, unsupported, "unsupported: Unsupported JPEG process: SOF type 0xc5"),
        (any, png, CorruptReason::Malformed, "malformed: "),
        (any, with_segment(&good, frame, 0, &[12]), unsupported, "unsupported: 12 bits per component"),
        (any, with_segment(&good, scan, 1, &[9]), CorruptReason::Malformed, "malformed: Invalid component ID 9 in SOS"),
        (few, good.clone(), CorruptReason::TooManyPixels, "the image has 96x96 pixels, more than the limit of 100"),
        (one_scan, progressive.clone(), CorruptReason::TooManyScans, "the image has more than 1 scans"),
    ] {
        match Preparer::new(limits).inspect(&file) {
            Verdict::Rejected { reason: found, message: said } => {
                println!("{said}");
                assert_eq!(found, reason, "{said}");
                assert!(said.starts_with(message), "{said}; expected: {message}");
            }
            other => panic!("{message}: {other:?}"),
        }
    }
}
