//! Images through `ddlp l3`.

use crate::{fail, refuse, succeed};
use std::fs;

/// Returns a PPM file of `width` × `height` pixels whose bytes differ, and its pixels.
fn ppm(width: usize, height: usize) -> (Vec<u8>, Vec<u8>) {
    let pixels: Vec<u8> = (0..width * height * 3).map(|byte| (byte * 37 + byte / 255) as u8).collect();
    ([format!("P6\n{width} {height}\n255\n").as_bytes(), &pixels].concat(), pixels)
}

#[test]
fn an_image_comes_back_whole_and_in_part() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let (file, pixels) = ppm(100, 70);
    fs::write(folder.join("in.ppm"), &file).unwrap();
    let said = succeed(folder, "l3 encode in.ppm a.l3");
    assert!(said.starts_with("a.l3: ") && said.ends_with(" % of the pixels' bytes)\n"), "{said}");
    let said = succeed(folder, "l3 decode a.l3 back.ppm");
    assert_eq!(said, "back.ppm: 100×70, 21.0 kB\n");
    assert_eq!(succeed(folder, "l3 encode in.ppm /dev/null"), "");
    let back = fs::read(folder.join("back.ppm")).unwrap();
    assert!(back.starts_with(b"P6") && back.ends_with(&pixels));
    succeed(folder, "l3 decode a.l3 a.png --threads 1");
    succeed(folder, "l3 encode a.png b.l3 --patch 32");
    succeed(folder, "l3 decode b.l3 part.ppm --region 60,30,40,2");
    let part = fs::read(folder.join("part.ppm")).unwrap();
    let rows = [30, 31].map(|y| &pixels[(y * 100 + 60) * 3..][..40 * 3]).concat();
    assert!(part.ends_with(&rows));
    let said = succeed(folder, "l3 info b.l3");
    assert!(said.contains("100×70 RGB, patches of 32×32") && said.contains("intact"), "{said}");
}

#[test]
fn what_cannot_be_done_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    fs::write(folder.join("in.ppm"), ppm(9, 9).0).unwrap();
    fs::write(folder.join("wide.pgm"), b"P5\n1 1\n65535\nxx").unwrap();
    fs::write(folder.join("text"), "no image").unwrap();
    fs::write(folder.join("photo.jpg"), b"\xFF\xD8\xFF\xE0").unwrap();
    succeed(folder, "l3 encode in.ppm a.l3");
    let mut damaged = fs::read(folder.join("a.l3")).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(folder.join("damaged.l3"), damaged).unwrap();
    let said = refuse(folder, "l3 encode in.ppm in.ppm");
    assert!(said.contains("would be overwritten"), "{said}");
    let said = refuse(folder, "l3 decode a.l3 b.jpg");
    assert!(said.contains("its ending must be png, bmp, ppm or pgm"), "{said}");
    let said = refuse(folder, "l3 decode a.l3 b.png --region 0,0,10");
    assert!(said.contains("four whole numbers"), "{said}");
    let failures = [
        ("l3 encode text b.l3", "not a PNG, BMP, PPM, PGM or WebP image"),
        ("l3 encode photo.jpg b.l3", "`ddlp pack` stores JPEGs as they are"),
        ("l3 encode wide.pgm b.l3", "more than 8 bits"),
        ("l3 encode none.png b.l3", "cannot read none.png"),
        ("l3 decode a.l3 b.png --region 0,0,10,1", "extends beyond the image of 9×9"),
        ("l3 decode in.ppm b.png", "not an L3 image: its first bytes are"),
        ("l3 info damaged.l3", "patch 0 of the L3 image is damaged"),
    ];
    for (command, expected) in failures {
        let said = fail(folder, command);
        assert!(said.contains(expected), "{command}: {said}");
    }
    assert!(!folder.join("b.l3").exists() && !folder.join("b.png").exists());
}
