//! Open packs whose file is changed by another process.

use super::{Bench, quietly};
use crate::pack::{Pack, PackOptions};
use crate::samples::{silently, write_folder};
use crate::{Corrupt, Dataset, ReadError, Unavailable, beginning_of, open};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Packs another folder into a file of its own.
fn another(bench: &Bench, classes: u32, each: u32) -> PathBuf {
    let (source, out) = (bench.path("another"), bench.path("another.ddlp"));
    write_folder(&source, classes, each);
    quietly(&*open(&source).unwrap(), &out, &PackOptions::default()).unwrap();
    out
}

fn read(pack: &Pack, index: u64) -> Result<(), ReadError> {
    pack.sample(index, &mut Vec::new()).map(drop)
}

fn change(error: ReadError) -> String {
    match error {
        ReadError::Unavailable(error @ Unavailable::Changed { .. }) => error.to_string(),
        other => panic!("{other}"),
    }
}

fn later(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(2)).unwrap();
}

#[test]
fn a_pack_that_is_cut_has_changed() {
    let bench = Bench::new(2, 4);
    let path = bench.packed();
    let pack = Pack::open(&path).unwrap();
    let bytes = pack.layout().file_bytes;
    fs::File::options().write(true).open(&path).unwrap().set_len(pack.layout().data_offset).unwrap();
    let said = change(read(&pack, 3).unwrap_err());
    assert!(said.starts_with("the pack has changed since it was opened: "), "{said}");
    assert!(
        said.ends_with(&format!("out.ddlp had {bytes} bytes, and has {} now", pack.layout().data_offset)),
        "{said}"
    );
    assert!(pack.check().is_err() && pack.check_damage().is_err());
}

#[test]
fn a_pack_that_is_overwritten_has_changed() {
    let bench = Bench::new(2, 4);
    let path = bench.packed();
    let pack = Pack::open(&path).unwrap();
    // The file is filled up, so its length says nothing.
    let mut bytes = fs::read(another(&bench, 2, 3)).unwrap();
    bytes.resize(pack.layout().file_bytes as usize, 0);
    fs::write(&path, &bytes).unwrap();
    later(&path);
    let said = change(read(&pack, 7).unwrap_err());
    assert!(said.contains("is no longer a pack") || said.contains("is another pack now"), "{said}");
    assert!(pack.check().is_err(), "whether a sample that was read had its checksum or not");
}

#[test]
fn another_pack_of_the_same_size_is_known_by_its_identity() {
    let bench = Bench::new(1, 2);
    let path = bench.packed();
    let pack = Pack::open(&path).unwrap();
    // Another label's name changes the identity and no length.
    let source = bench.path("source");
    fs::rename(source.join("class0"), source.join("class9")).unwrap();
    let out = bench.path("another.ddlp");
    quietly(&*open(&source).unwrap(), &out, &PackOptions::default()).unwrap();
    let bytes = fs::read(&out).unwrap();
    assert_eq!(bytes.len() as u64, pack.layout().file_bytes);
    fs::write(&path, bytes).unwrap();
    later(&path);
    let said = pack.check().unwrap_err().to_string();
    assert!(
        said.contains("is another pack now")
            && said.contains(&format!("that of the opened pack with {}", beginning_of(pack.identity().as_bytes()))),
        "{said}"
    );
}

#[test]
fn a_pack_that_is_replaced_by_another_name_is_read_on() {
    let bench = Bench::new(2, 4);
    let path = bench.packed();
    let pack = Pack::open(&path).unwrap();
    fs::rename(another(&bench, 1, 3), &path).unwrap();
    for index in 0..pack.len() {
        read(&pack, index).unwrap();
    }
    pack.check().unwrap();
    fs::remove_file(&path).unwrap();
    read(&pack, 0).unwrap();
    pack.check_damage().unwrap();
}

#[test]
fn damage_and_change_give_different_errors() {
    let bench = Bench::new(2, 4);
    let path = bench.packed();
    let pack = Pack::open(&path).unwrap();
    let at = pack.record(5).unwrap().offset + 3;
    silently(&path, |file| file.write_all_at(&[0x5A], at).unwrap());
    let error = read(&pack, 5).unwrap_err();
    assert!(matches!(error, ReadError::Corrupt(Corrupt::Checksum { .. })), "{error}");
    // Somebody wrote to the file, so nobody knows what the bytes are.
    later(&path);
    let said = change(read(&pack, 5).unwrap_err());
    assert!(said.contains("out.ddlp has been written to"), "{said}");
    // A sample whose checksum is right is what was packed.
    read(&pack, 4).unwrap();
    pack.check().unwrap();
}
