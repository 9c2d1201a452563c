use super::*;
use crate::draw::Draw;
use crate::encode::{self, JpegOptions, Layout};
use crate::inspect::Verdict;
use crate::ops::CenterCrop;
use crate::pipeline::Pipeline;
use crate::preparer::Preparer;
use crate::source::Source;
use crate::synthetic;
use proptest::prelude::*;

fn file(layout: Layout, options: &JpegOptions, (width, height): (u32, u32)) -> Vec<u8> {
    let pixels = synthetic::photo(width, height * 2, 4);
    let pixels = &pixels[..(width * height * layout.channels()) as usize];
    encode::jpeg(pixels, width, height, &JpegOptions { layout, ..options.clone() }).unwrap()
}

fn baseline(layout: Layout) -> Vec<u8> {
    file(layout, &JpegOptions::default(), (75, 53))
}

fn cut(file: &[u8]) -> Result<Pieces, NotCut> {
    Preparer::new(Limits::default()).cut(file, &ScanGroups::each_scan())
}

fn pixels(file: &[u8]) -> Result<Vec<u8>, PixelError> {
    let mut pixels = Vec::new();
    Preparer::new(Limits::default()).decode(Source::Encoded(file), None, &mut pixels).map(|_| pixels)
}

fn segment(code: u8, payload: &[u8]) -> Vec<u8> {
    [&[0xFF, code][..], &(payload.len() as u16 + 2).to_be_bytes(), payload].concat()
}

fn places_of(file: &[u8], code: u8) -> Vec<usize> {
    (0..file.len()).filter(|&at| file[at..].starts_with(&[0xFF, code])).collect()
}

/// Checks what every cut file has: all pieces give the source's image, and the first ones an image without a warning.
fn check(file: &[u8], pieces: &Pieces) {
    let expected = pixels(file).unwrap();
    let whole = pieces.whole();
    assert!(pixels(&whole).unwrap() == expected, "other pixels");
    assert_eq!(orientation::of(&whole), orientation::of(file));
    assert_eq!(pieces.orientation, orientation::of(file));
    assert!(pixels(&pieces.prefix(pieces.groups())).unwrap() == expected, "markers change pixels");
    for (groups, markers) in [(pieces.groups(), &[][..]), (pieces.groups(), pieces.markers()), (1, &[])] {
        let groups = pieces.up_to(groups);
        let mut memory = [groups, markers, &[0; JOINING_BYTES + 3]].concat();
        let length = join_in_place(&mut memory, groups.len(), markers.len());
        assert!(memory[..length] == join(groups, markers), "another file");
    }
    for groups in 1..=pieces.groups() {
        let prefix = pieces.prefix(groups);
        assert_eq!(pixels(&prefix).unwrap().len(), expected.len());
        assert_eq!(Preparer::new(Limits::default()).inspect(&prefix), Verdict::Intact, "{groups} groups");
    }
}

#[test]
fn scans_of_libjpegs_script_go_to_the_groups_of_their_precision() {
    let all: &[usize] = &[1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
    for (layout, expected) in [
        (Layout::Gray, &[1, 1, 0, 0, 1, 1, 1, 0, 0, 1][..]),
        (Layout::Yuv420, all),
        (Layout::Yuv444, all),
        (Layout::Rgb, &[1, 3, 0, 0, 3, 3, 1, 0, 0, 3]),
        (Layout::Cmyk, &[1, 4, 0, 0, 4, 4, 1, 0, 0, 4]),
        (Layout::Ycck420, &[1, 4, 0, 0, 4, 4, 1, 0, 0, 4]),
    ] {
        let pieces = cut(&baseline(layout)).unwrap();
        let scans: Vec<usize> = (0..10).map(|group| places_of(pieces.piece(group), 0xDA).len()).collect();
        assert_eq!(scans, expected, "{layout:?}");
        assert!(pieces.is_rewritten);
    }
}

#[test]
fn default_groups_have_the_bytes_of_their_scans() {
    let file = baseline(Layout::Yuv420);
    let each = cut(&file).unwrap();
    let groups = Preparer::new(Limits::default()).cut(&file, &ScanGroups::default()).unwrap();
    assert_eq!(groups.groups(), 4);
    for (group, scans) in [0..1, 1..2, 2..5, 5..10].into_iter().enumerate() {
        assert_eq!(groups.piece(group), scans.map(|scan| each.piece(scan)).collect::<Vec<_>>().concat());
    }
    assert_eq!(groups.whole(), each.whole());
    check(&file, &groups);
}

#[test]
fn every_layout_is_cut_without_loss() {
    for layout in Layout::ALL {
        for restart_rows in [0, 1] {
            for progressive in [false, true] {
                let options = JpegOptions { progressive, restart_rows, orientation: Some(6), ..JpegOptions::default() };
                let file = file(layout, &options, (75, 53));
                let pieces = cut(&file).unwrap_or_else(|why| panic!("{layout:?}: {why}"));
                assert_eq!(pieces.is_rewritten, !progressive);
                check(&file, &pieces);
            }
        }
    }
}

#[test]
fn a_progressive_file_is_cut_as_it_is() {
    let options = JpegOptions { progressive: true, restart_mcus: 3, orientation: Some(3), ..JpegOptions::default() };
    let file = file(Layout::Yuv422, &options, (75, 53));
    let pieces = cut(&file).unwrap();
    assert_eq!(pieces.whole(), file);
    assert!(places_of(pieces.markers(), 0xE1) == [0] && places_of(pieces.piece(0), 0xE1).is_empty());
}

#[test]
fn markers_lie_behind_the_groups_and_come_back_in_front() {
    let thumbnail = baseline(Layout::Yuv420);
    let exif = segment(0xE1, &[&b"Exif\0\0"[..], &thumbnail].concat());
    let comment = segment(0xFE, b"a comment \xFF\xDA with a marker");
    let profile = segment(0xE2, b"ICC_PROFILE\0 of a camera");
    for (layout, progressive) in [(Layout::Yuv444, false), (Layout::Yuv444, true), (Layout::Cmyk, false)] {
        let mut file = file(layout, &JpegOptions { progressive, ..JpegOptions::default() }, (40, 30));
        let at = end_of_color_markers(&file);
        file.splice(at..at, [&exif[..], &comment, &profile].concat());
        let pieces = cut(&file).unwrap();
        assert_eq!(pieces.markers(), [&exif[..], &comment, &profile].concat());
        let color_marker = if layout == Layout::Cmyk { 0xEE } else { 0xE0 };
        assert_eq!(places_of(pieces.piece(0), color_marker), [2]);
        assert!(pieces.whole()[end_of_color_markers(pieces.piece(0))..].starts_with(pieces.markers()));
        check(&file, &pieces);
    }
}

/// A sequential file with a scan for each component.
#[test]
fn several_sequential_scans_become_progressive_ones() {
    let planes = [Layout::Gray; 3].map(baseline);
    let scan = |plane: &[u8], component: u8| {
        let at = places_of(plane, 0xDA)[0];
        let mut scan = plane[at..plane.len() - 2].to_vec();
        scan[5] = component;
        scan
    };
    let gray = &planes[0];
    let [frame, first] = [0xC0, 0xDA].map(|code| places_of(gray, code)[0]);
    let behind = frame + 2 + usize::from(gray[frame + 3]);
    let size = &gray[frame + 4..frame + 9];
    let components = [3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0];
    let file = [
        &gray[..frame],
        &segment(0xC0, &[size, &components].concat()),
        &gray[behind..first],
        &scan(&planes[0], 1),
        &scan(&planes[1], 2),
        &scan(&planes[2], 3),
        &END,
    ]
    .concat();
    let pieces = cut(&file).unwrap();
    assert!(pieces.is_rewritten);
    check(&file, &pieces);
}

#[test]
fn what_is_not_cut_says_why() {
    let plain = baseline(Layout::Yuv420);
    let options = JpegOptions::default();
    let arithmetic = file(Layout::Yuv420, &JpegOptions { arithmetic: true, ..options.clone() }, (40, 30));
    assert_eq!(cut(&arithmetic), Err(NotCut::Arithmetic));
    let png = encode::png(&synthetic::photo(9, 9, 1), 9, 9).unwrap();
    for other in [&png[..], b"", b"\xFF\xD8"] {
        assert_eq!(cut(other), Err(NotCut::OtherFormat));
    }
    let frame = places_of(&plain, 0xC0)[0];
    let mut deep = plain.clone();
    deep[frame + 4] = 12;
    assert_eq!(cut(&deep), Err(NotCut::NotDecoded), "12 bits");
    let mut without_height = plain.clone();
    without_height[frame + 5..frame + 7].copy_from_slice(&[0, 0]);
    let end = without_height.len() - 2;
    without_height.splice(end..end, segment(0xDC, &[0, 53]));
    assert_eq!(cut(&without_height), Err(NotCut::NotDecoded), "DNL");
    let mut garbage = plain.clone();
    garbage.splice(frame..frame, [1, 2, 3]);
    assert_eq!(cut(&garbage), Err(NotCut::NotDecoded), "bytes between markers");
    for progressive in [false, true] {
        let whole = file(Layout::Yuv420, &JpegOptions { progressive, ..options.clone() }, (40, 30));
        for length in [whole.len() - 2, whole.len() / 2, 100] {
            assert_eq!(cut(&whole[..length]), Err(NotCut::NotDecoded), "{length} bytes");
        }
    }
    let limits = Limits { pixels: 100, ..Limits::default() };
    assert_eq!(Preparer::new(limits).cut(&plain, &ScanGroups::default()), Err(NotCut::NotDecoded));
}

/// A marker between two scans has no effect there, and would have one in front of the first scan.
#[test]
fn a_file_that_would_change_is_not_cut() {
    let options = JpegOptions { progressive: true, ..JpegOptions::default() };
    let plain = file(Layout::Yuv444, &options, (40, 30));
    let scans = places_of(&plain, 0xDA);
    let at = places_of(&plain, 0xC4).into_iter().find(|&table| table > scans[0]).unwrap();
    let turned = segment(0xE1, &crate::jpeg::exif::app1_of_orientation(6));
    let adobe = segment(0xEE, b"Adobe\0\x64\0\0\0\0\0");
    let comment = segment(0xFE, b"harmless");
    let unusual = Some(NotCut::Unusual);
    for (segment, why) in [(turned, unusual), (adobe, unusual), (comment, None)] {
        let mut between = plain.clone();
        between.splice(at..at, segment);
        assert!(pixels(&between).unwrap() == pixels(&plain).unwrap());
        assert_eq!(cut(&between).err(), why);
    }
}

#[test]
fn bytes_behind_the_end_marker_and_fill_bytes_do_not_matter() {
    let options = JpegOptions { progressive: true, ..JpegOptions::default() };
    let plain = file(Layout::Yuv420, &options, (40, 30));
    let mut odd = [&plain[..], b"appended by a camera"].concat();
    for code in [0xC4, 0xDA, 0xC2] {
        let at = places_of(&odd, code)[0];
        odd.splice(at..at, [0xFF; 3]);
    }
    let pieces = cut(&odd).unwrap();
    check(&odd, &pieces);
    assert_eq!(pieces.whole().len(), plain.len() + 9);
}

/// 10 000 files of damaged pieces: an error or other pixels.
#[test]
fn damaged_pieces_give_an_error_or_other_pixels() {
    let mut preparer = Preparer::new(Limits { pixels: 1 << 16, ..Limits::default() });
    let pipeline = Pipeline::of([CenterCrop::to(17).into()]);
    let mut out = vec![0; pipeline.output().bytes()];
    let files = [Layout::Gray, Layout::Yuv420, Layout::Rgb, Layout::Cmyk]
        .map(|layout| cut(&file(layout, &JpegOptions { orientation: Some(6), ..JpegOptions::default() }, (40, 30))))
        .map(Result::unwrap);
    let (mut errors, mut changes) = (0, 0);
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for round in 0..10_000 {
        let pieces = &files[random(files.len())];
        let groups = 1 + random(pieces.groups());
        let mut bytes = pieces.up_to(groups).to_vec();
        let mut markers = if random(2) == 0 { Vec::new() } else { pieces.markers().to_vec() };
        let intact = join(&bytes, &markers);
        if round % 4 == 0 {
            bytes.truncate(random(bytes.len()));
        }
        for damaged in [&mut bytes, &mut markers].into_iter().filter(|bytes| !bytes.is_empty()) {
            let at = random(damaged.len());
            damaged[at] ^= 1 << random(8);
        }
        let mut prepare = |file: &[u8]| {
            let prepared = preparer.prepare(Source::Encoded(file), &pipeline, Draw::default(), &mut out);
            prepared.map(|_| out.clone())
        };
        let damaged = join(&bytes, &markers);
        match prepare(&damaged) {
            Err(_) => errors += 1,
            Ok(pixels) => changes += usize::from(Ok(pixels) != prepare(&intact)),
        }
        let _ = preparer.cut(&damaged, &ScanGroups::default());
    }
    assert!(errors > 500 && changes > 500, "{errors} errors, {changes} changes");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_encoded_image_is_cut_without_loss(
        (layout, quality) in (0..Layout::ALL.len(), 1u8..=100),
        (width, height) in (1u32..80, 1u32..80),
        (progressive, optimize, restart_mcus) in (any::<bool>(), any::<bool>(), 0u32..9),
        orientation in proptest::option::of(1u8..=8),
    ) {
        let options =
            JpegOptions { quality, progressive, optimize, restart_mcus, orientation, ..JpegOptions::default() };
        let file = file(Layout::ALL[layout], &options, (width, height));
        check(&file, &cut(&file).unwrap());
    }
}
