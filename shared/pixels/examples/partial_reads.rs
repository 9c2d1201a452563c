//! Counts the bytes that training crops need of the JPEGs in a folder, by their row indices:
//! `cargo run --release -p ddlp-pixels --example partial_reads -- FOLDER [EPOCHS]`.
//!
//! The crops come from the pipeline `imagenet-train`. A file without a row index is read whole. For the count in blocks
//! of 4 KiB, the files lie one after the other without gaps; blocks of header and rows that coincide count once.

use std::error::Error;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ddlp_pixels::{CompiledPipeline, Draw, Limits, Pipeline, PlanMemory, Preparer, RowIndex, SamplePlan};

const BLOCK_BYTES: u64 = 4096;

/// Returns all files under a folder.
fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}

/// Returns the blocks that hold these bytes, if there are any bytes.
fn blocks(bytes: Range<u64>) -> Range<u64> {
    bytes.start / BLOCK_BYTES..if bytes.is_empty() {
        bytes.start / BLOCK_BYTES
    } else {
        bytes.end.div_ceil(BLOCK_BYTES)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("a folder is missing")?);
    let epochs: u32 = arguments.next().map_or(Ok(4), |text| text.parse())?;
    let (mut preparer, mut memory) = (Preparer::new(Limits::default()), PlanMemory::default());
    let pipeline = CompiledPipeline::of(&Pipeline::imagenet_train())?;
    let (mut whole, mut indices, mut headers, mut rows, mut in_blocks) = (0, 0, 0, 0, 0);
    let (mut offset, mut count) = (0, 0u64);
    for (sample_id, path) in (0..).zip(files(&folder)?) {
        let file = fs::read(path)?;
        let length = file.len() as u64;
        whole += length;
        let index = preparer.index_rows(&file).ok().filter(|indexed| indexed.transcoded.is_none());
        if let Some(indexed) = index {
            let index = RowIndex::parse(&indexed.row_index)?;
            count += 1;
            indices += indexed.row_index.len() as u64;
            for epoch in 0..epochs {
                let draw = Draw { seed: 0, epoch, sample_id };
                let reads = SamplePlan::crop(&pipeline, draw, &mut memory).bytes_of_jpeg(&index)?;
                headers += index.header_bytes();
                rows += reads.end - reads.start;
                let header = blocks(offset..offset + index.header_bytes());
                let reads = blocks(offset + reads.start..offset + reads.end);
                let shared = header.end.min(reads.end).saturating_sub(reads.start);
                in_blocks += BLOCK_BYTES * (header.end - header.start + reads.end - reads.start - shared);
            }
        } else {
            rows += length * u64::from(epochs);
            let all = blocks(offset..offset + length);
            in_blocks += BLOCK_BYTES * (all.end - all.start) * u64::from(epochs);
        }
        offset += length;
    }
    let times = f64::from(epochs);
    let share = |bytes: u64| bytes as f64 / whole as f64;
    println!("{count} files with a row index, {whole} bytes in all, {epochs} epochs; shares of the files' bytes:");
    println!("row indices            {:.5}", share(indices));
    println!("headers                {:.4}", share(headers) / times);
    println!("rows                   {:.4}", share(rows) / times);
    println!("all three              {:.4}", share(indices) + (share(headers) + share(rows)) / times);
    println!("headers, rows: blocks  {:.4}", share(in_blocks) / times);
    println!("with the indices       {:.4}", share(indices) + share(in_blocks) / times);
    Ok(())
}
