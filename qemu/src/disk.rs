//! Disk images: ext4 with files in it, made without root.

use crate::tools::{need, said};
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// Free room beside the content.
const ROOM_BYTES: u64 = 512 << 20;

/// Makes an image with the contents of a folder.
pub fn make(disk: &Path, folder: &Path) -> Result<()> {
    let size = size_of(folder)? * 5 / 4 + ROOM_BYTES;
    File::create(disk).and_then(|file| file.set_len(size)).context("cannot make a disk")?;
    let mke2fs = need("mke2fs", "e2fsprogs")?;
    said(Command::new(mke2fs).args(["-q", "-F", "-t", "ext4", "-d"]).arg(folder).arg(disk)).map(drop)
}

/// Copies a file or a folder.
pub fn copy(source: &Path, place: &Path) -> Result<()> {
    said(Command::new("cp").args(["-rL", "--reflink=auto"]).arg(source).arg(place)).map(drop)
}

fn size_of(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        bytes +=
            if kind.is_dir() { 4096 + size_of(&entry.path())? } else { entry.metadata()?.len().next_multiple_of(4096) };
    }
    Ok(bytes)
}
