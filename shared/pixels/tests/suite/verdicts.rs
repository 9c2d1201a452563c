//! Compares the verdict on thousands of damaged files with the decoder: a file that decodes whole is kept.

use std::collections::BTreeMap;

use ddlp_pixels::draw::Rng;
use ddlp_pixels::encode::{self, JpegOptions, Layout};
use ddlp_pixels::ops::RandomResizedCrop;
use ddlp_pixels::{CorruptReason, Decoded, Draw, Limits, Pipeline, Preparer, Source, Verdict, synthetic};

const WIDTH: u32 = 56;
const HEIGHT: u32 = 40;
const DAMAGED: u64 = 4000;

/// Returns layouts and codings of the intact files.
fn kinds() -> Vec<JpegOptions> {
    let plain = JpegOptions { quality: 85, ..JpegOptions::default() };
    let of = |layout| JpegOptions { layout, ..plain.clone() };
    let mut kinds: Vec<JpegOptions> = Layout::ALL.map(of).into();
    kinds.extend([
        JpegOptions { progressive: true, orientation: Some(8), ..plain.clone() },
        JpegOptions { progressive: true, ..of(Layout::Yuv444) },
        JpegOptions { progressive: true, ..of(Layout::Gray) },
        JpegOptions { progressive: true, ..of(Layout::Cmyk) },
        JpegOptions { arithmetic: true, ..plain.clone() },
        JpegOptions { restart_rows: 1, optimize: true, orientation: Some(6), ..plain.clone() },
        JpegOptions { quality: 100, ..of(Layout::Yuv444) },
    ]);
    kinds
}

fn intact(options: &JpegOptions, seed: u32) -> Vec<u8> {
    let rgb = synthetic::photo(WIDTH, HEIGHT, seed);
    let pixels = match options.layout.channels() {
        1 => rgb.iter().copied().step_by(3).collect(),
        4 => rgb.chunks_exact(3).flat_map(|pixel| [pixel[0], pixel[1], pixel[2], pixel[1]]).collect(),
        _ => rgb,
    };
    encode::jpeg(&pixels, WIDTH, HEIGHT, options).unwrap()
}

/// Returns the beginning and the end of each segment of an intact file; a scan belongs to its header.
fn segments(file: &[u8]) -> Vec<(usize, usize)> {
    let is_marker = |at: usize| file[at] == 0xFF && !matches!(file[at + 1], 0 | 0xD0..=0xD7 | 0xFF);
    let mut segments = Vec::new();
    let mut at = 2;
    while at + 4 <= file.len() {
        let length = usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
        let mut end = at + 2 + length;
        if file[at + 1] == 0xDA {
            end = (end..file.len() - 1).find(|&at| is_marker(at)).unwrap();
        }
        segments.push((at, end));
        at = end;
    }
    segments
}

/// Returns a file with one kind of damage.
fn damaged(number: u64, kinds: &[JpegOptions]) -> Vec<u8> {
    let mut rng = Rng::from_key([0xF01D, number, 0, 0]);
    let mut file = intact(&kinds[(number % kinds.len() as u64) as usize], number as u32 % 3);
    let segments = segments(&file);
    let mut below = |limit: usize| rng.below(limit as u64) as usize;
    let (start, end) = segments[below(segments.len())];
    let (other, _) = segments[below(segments.len())];
    let scan = segments.iter().find(|&&(start, _)| file[start + 1] == 0xDA).unwrap().0;
    match below(10) {
        0 => (0..=below(3)).for_each(|_| file[2 + below(scan)] ^= 1 << below(8)),
        1 => (0..=below(3)).for_each(|_| {
            let at = scan + 10 + below(file.len() - scan - 12);
            file[at] ^= 1 << below(8);
        }),
        2 => file.truncate(2 + below(file.len() - 2)),
        3 => drop(file.drain(start..end)),
        4 => {
            let copy = file[start..end].to_vec();
            file.splice(other..other, copy);
        }
        5 => {
            let (copy, at) = (file[start..end].to_vec(), file.len() - 2 * below(2));
            file.splice(at..at, copy);
        }
        6 => {
            let marker = [0xFF, below(256) as u8, 0, below(12) as u8, below(256) as u8, below(256) as u8];
            let at = if below(2) == 0 { file.len() - 2 } else { other };
            file.splice(at..at, marker[..2 + below(5)].iter().copied());
        }
        7 => {
            let bytes: Vec<u8> = (0..=below(8)).map(|_| below(256) as u8).collect();
            let at = if below(2) == 0 { file.len() - 2 } else { below(file.len()) };
            file.splice(at..at, bytes);
        }
        8 => file.truncate(file.len() - 1 - below(2)),
        _ => {
            // Only the headers of the segment.
            let at = start + 2 + below((end - start - 2).min(20));
            file[at] = below(256) as u8;
        }
    }
    file
}

/// Offset behind the frame's header in a file of [`in_scans`].
const END_OF_FRAME: usize = 21;

/// Returns a file of three components with these sampling factors, and with a scan for each of the first components:
/// one per quality. Each scan has a quantisation table of that quality in front.
fn in_scans(factors: u8, qualities: &[u8]) -> Vec<u8> {
    let gray = |seed: usize| {
        let options = JpegOptions { quality: qualities[seed], layout: Layout::Gray, ..JpegOptions::default() };
        intact(&options, seed as u32)
    };
    let (width, height) = (WIDTH.to_be_bytes(), HEIGHT.to_be_bytes());
    let mut file = vec![0xFF, 0xD8, 0xFF, 0xC0, 0, 17, 8, height[2], height[3], width[2], width[3], 3];
    (1..=3).for_each(|id| file.extend([id, factors, 0]));
    for id in 0..qualities.len() {
        let gray = gray(id);
        for (start, end) in segments(&gray) {
            let mut segment = gray[start..end].to_vec();
            match segment[1] {
                0xDB | 0xC4 => file.append(&mut segment),
                0xDA => {
                    segment[5] = id as u8 + 1;
                    file.append(&mut segment);
                }
                _ => {}
            }
        }
    }
    file.extend([0xFF, 0xD9]);
    file
}

/// Decodes a file to pixels, their size and their orientation.
fn decoded(preparer: &mut Preparer, file: &[u8]) -> Option<(Decoded, Vec<u8>)> {
    let mut pixels = Vec::new();
    preparer.decode(Source::Encoded(file), None, &mut pixels).ok().map(|decoded| (decoded, pixels))
}

fn repaired(preparer: &mut Preparer, file: &[u8]) -> (Vec<u8>, u32) {
    match preparer.inspect(file) {
        Verdict::Repaired { bytes, warnings, clamped } => {
            assert!(warnings > 0 || clamped > 0);
            assert_eq!(preparer.inspect(&bytes), Verdict::Intact);
            (bytes, clamped)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_an_encoder_does_not_make_is_repaired_to_the_same_pixels() {
    let mut preparer = Preparer::new(Limits::default());
    for (what, file) in [
        ("a scan for each component", in_scans(0x11, &[85; 3])),
        ("a component without a scan", in_scans(0x11, &[85; 2])),
        ("two components without a scan", in_scans(0x22, &[85])),
        ("more blocks than one scan may have", in_scans(0x22, &[85; 3])),
        ("a table that changes for the next scan", in_scans(0x11, &[85, 50, 20])),
    ] {
        let pixels = decoded(&mut preparer, &file);
        assert!(pixels.is_some(), "{what}");
        assert_eq!(preparer.inspect(&file), Verdict::Intact, "{what}");
        // Bytes between two markers are skipped with a warning.
        let warned = [&file[..END_OF_FRAME], &[0; 3], &file[END_OF_FRAME..]].concat();
        let (kept, clamped) = repaired(&mut preparer, &warned);
        assert_eq!((clamped, decoded(&mut preparer, &kept)), (0, pixels), "{what}");
    }
    // A component may name a table that does not exist, if no scan holds the component.
    let mut no_table = in_scans(0x11, &[85; 2]);
    no_table[END_OF_FRAME - 1] = 77;
    let pixels = decoded(&mut preparer, &no_table);
    no_table.splice(END_OF_FRAME..END_OF_FRAME, [0; 3]);
    let (kept, clamped) = repaired(&mut preparer, &no_table);
    assert_eq!((clamped, decoded(&mut preparer, &kept)), (0, pixels));
}

#[test]
fn what_is_repaired_stays_as_upright_as_it_was() {
    let mut preparer = Preparer::new(Limits::default());
    for progressive in [false, true] {
        let good = intact(&JpegOptions { progressive, orientation: Some(6), ..JpegOptions::default() }, 1);
        let scan = good.windows(2).position(|two| two == [0xFF, 0xDA]).unwrap();
        for (start, _) in segments(&good).into_iter().skip(1).filter(|&(start, _)| start <= scan) {
            let warned = [&good[..start], &[0, 1, 2], &good[start..]].concat();
            let pixels = decoded(&mut preparer, &warned);
            let (kept, clamped) = repaired(&mut preparer, &warned);
            assert_eq!((clamped, decoded(&mut preparer, &kept)), (0, pixels), "{start}");
        }
    }
}

#[test]
fn what_follows_the_scan_loses_no_image() {
    let mut preparer = Preparer::new(Limits::default());
    let good = intact(&JpegOptions { orientation: Some(6), ..JpegOptions::default() }, 1);
    let pixels = decoded(&mut preparer, &good);
    assert_eq!(pixels.as_ref().map(|(decoded, _)| decoded.orientation), Some(6));
    let (end, segments) = (good.len() - 2, segments(&good));
    let copy_of = |marker: u8| {
        let &(start, end) = segments.iter().find(|&&(start, _)| good[start + 1] == marker).unwrap();
        good[start..end].to_vec()
    };
    for tail in
        [vec![0xFF, 0x5D], copy_of(0xC0), copy_of(0xDA), vec![0xFF, 0xC5], vec![0xFF, 0xDB, 0, 1], vec![0xFF, 0xE0]]
    {
        let file = [&good[..end], &tail, &good[end..]].concat();
        let (kept, clamped) = repaired(&mut preparer, &file);
        assert_eq!((clamped, decoded(&mut preparer, &kept)), (0, pixels.clone()), "{tail:02x?}");
    }
}

#[test]
fn what_no_encoder_can_write_is_limited_and_kept() {
    let mut preparer = Preparer::new(Limits::default());
    let [mut clamped_files, mut decode] = [0; 2];
    for number in 0..1200u32 {
        let layout = [Layout::Gray, Layout::Yuv420, Layout::Yuv444][number as usize % 3];
        let progressive = number % 2 == 1;
        let mut file = intact(&JpegOptions { quality: 100, layout, progressive, ..JpegOptions::default() }, number % 5);
        let mut rng = Rng::from_key([0x100, number.into(), 0, 0]);
        let scan = file.windows(2).position(|two| two == [0xFF, 0xDA]).unwrap();
        let at = scan + 14 + rng.below(file.len() as u64 - scan as u64 - 16) as usize;
        file[at] ^= 1 << rng.below(8);
        if decoded(&mut preparer, &file).is_none() {
            continue;
        }
        decode += 1;
        match preparer.inspect(&file) {
            Verdict::Repaired { bytes, clamped, .. } => {
                assert_eq!(preparer.inspect(&bytes), Verdict::Intact, "file {number}");
                clamped_files += u32::from(clamped > 0);
            }
            Verdict::Intact => {}
            other => panic!("file {number}: {other:?}"),
        }
    }
    println!("{decode} of 1200 decode, {clamped_files} are clamped");
    assert!(clamped_files > 20);
}

#[test]
fn what_decodes_whole_is_kept_with_its_pixels() {
    let mut preparer = Preparer::new(Limits::default());
    let kinds = kinds();
    let mut counts = BTreeMap::new();
    let mut lost = Vec::new();
    for number in 0..DAMAGED {
        let file = damaged(number, &kinds);
        let whole = decoded(&mut preparer, &file);
        let verdict = preparer.inspect(&file);
        let name = match (&verdict, &whole) {
            (Verdict::Intact, Some(_)) => "intact",
            (Verdict::Repaired { bytes, clamped, .. }, Some(whole)) => {
                let kept = decoded(&mut preparer, bytes);
                assert_eq!(preparer.inspect(bytes), Verdict::Intact, "file {number}");
                assert!(*clamped > 0 || kept.as_ref() == Some(whole), "file {number}: its pixels differ");
                if *clamped > 0 { "clamped" } else { "repaired" }
            }
            (Verdict::Rejected { message, .. }, Some(_)) => {
                lost.push(format!("file {number}: {message}"));
                "lost"
            }
            (Verdict::Rejected { .. }, None) => "rejected",
            (_, None) => "kept though it does not decode",
            other => panic!("{other:?}"),
        };
        *counts.entry(name).or_insert(0) += 1;
    }
    println!("{counts:?}");
    assert!(lost.is_empty(), "{} files decode and are rejected:\n{}", lost.len(), lost.join("\n"));
    assert!(["intact", "repaired", "clamped", "rejected"].iter().all(|name| counts[name] > 20), "{counts:?}");
}

#[test]
fn a_file_whose_coefficients_exceed_the_limit_is_judged_by_its_pixels() {
    let mut preparer = Preparer::new(Limits { memory_bytes: 2 << 20, ..Limits::default() });
    // 2.9 MB of coefficients, 1.1 MB of pixels.
    let options = JpegOptions { layout: Layout::Cmyk, ..JpegOptions::default() };
    let good = encode::jpeg(&[77; 600 * 600 * 4], 600, 600, &options).unwrap();
    assert!(decoded(&mut preparer, &good).is_some());
    assert_eq!(preparer.inspect(&good), Verdict::Intact);
    let rejection = |preparer: &mut Preparer, file: &[u8]| match preparer.inspect(file) {
        Verdict::Rejected { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    // The file decodes with a warning, and there is no memory to repair it.
    let scan = segments(&good).last().unwrap().0;
    let warned = [&good[..scan], &[0; 3], &good[scan..]].concat();
    assert!(decoded(&mut preparer, &warned).is_some());
    assert_eq!(rejection(&mut preparer, &warned), CorruptReason::TooMuchMemory);
    let cut = &good[..scan + (good.len() - scan) / 2];
    assert_eq!(rejection(&mut preparer, cut), CorruptReason::Truncated);
    // Decoding to pixels needs all coefficients of a file of several scans.
    let options = JpegOptions { progressive: true, ..options };
    let progressive = encode::jpeg(&[77; 600 * 600 * 4], 600, 600, &options).unwrap();
    assert!(decoded(&mut preparer, &progressive).is_none());
    assert_eq!(rejection(&mut preparer, &progressive), CorruptReason::TooMuchMemory);
}

/// A truncated file is an error for every crop, even for one above the missing rows. A file with padding behind it is
/// good for every crop, and so is a baseline file that lacks only its end marker.
#[test]
fn the_end_of_a_file_counts_whatever_is_read_of_it() {
    let mut preparer = Preparer::new(Limits::default());
    let pipeline = Pipeline::of([RandomResizedCrop::within(8, [0.05, 0.1], [1.0, 1.0]).into()]);
    let mut prepare = |file: &[u8], sample_id| {
        let mut out = vec![0; pipeline.output().bytes()];
        let draw = Draw { seed: 1, epoch: 0, sample_id };
        let prepared = preparer.prepare(Source::Encoded(file), &pipeline, draw, &mut out);
        prepared.map(|_| out).map_err(|error| error.reason())
    };
    for kind in kinds() {
        let file = intact(&kind, 1);
        let (start, end) = *segments(&file).last().unwrap();
        for sample_id in 0..20 {
            let whole = prepare(&file, sample_id);
            assert!(whole.is_ok(), "{kind:?}");
            if !kind.progressive && !kind.arithmetic {
                assert_eq!(prepare(&file[..file.len() - 2], sample_id), whole, "without its end marker: {kind:?}");
            }
            assert_eq!(
                prepare(&[&file, &b"made by a camera"[..]].concat(), sample_id),
                whole,
                "with a trailer: {kind:?}"
            );
            let cut = start + (end - start) * 9 / 10;
            assert_eq!(prepare(&file[..cut], sample_id), Err(CorruptReason::Truncated), "cut at {cut}: {kind:?}");
        }
    }
}
