//! One sample of a dataset: its record, and facts from its image's header.

use super::{row, verdict_text};
use crate::text;
use ddlp_cause::with_causes;
use ddlp_dataset::pack::{IndexRecord, Pack, StoredVerdict, verify_sample};
use ddlp_dataset::{Dataset, Piece};
use ddlp_pixels::{ImageInfo, Limits, Preparer, Source};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;

/// A sample.
#[derive(Serialize)]
pub struct DescribedSample {
    sample: u64,
    name: String,
    label: u32,
    class: String,
    file: PathBuf,
    offset: u64,
    length: u64,
    record: Option<RecordPart>,
    /// Pieces, one after the other, of a sample in pieces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pieces: Vec<PiecePart>,
    /// Facts from the image's header.
    image: Option<ImagePart>,
    /// The reason why the sample cannot be read, or the damage in it.
    problem: Option<String>,
}

/// Facts that only a pack's index has.
#[derive(Serialize)]
struct RecordPart {
    crc32c: String,
    width: u32,
    height: u32,
    form: &'static str,
    /// Bytes of the detail.
    detail_bytes: u32,
    /// What the detail is called.
    #[serde(skip)]
    detail: &'static str,
    /// EXIF orientation of the pixels, if pixels are stored.
    orientation: u8,
    /// Whether the source's image was larger.
    was_shrunk: bool,
    /// Whether the sample had to be repaired. (Which files were rewritten without loss, for checkpoints, is not
    /// recorded.)
    was_repaired: bool,
    verdict: String,
}

#[derive(Serialize)]
struct PiecePart {
    /// The scan group; `None` for the markers.
    group: Option<u8>,
    offset: u64,
    length: u64,
    crc32c: String,
}

#[derive(Serialize)]
struct ImagePart {
    format: String,
    width: u32,
    height: u32,
    components: u32,
    orientation: u8,
    subsampling: Option<&'static str>,
    progressive: Option<bool>,
    restart_interval: Option<u32>,
}

impl From<IndexRecord> for RecordPart {
    fn from(record: IndexRecord) -> Self {
        Self {
            crc32c: format!("{:08x}", record.crc32c),
            width: record.width,
            height: record.height,
            form: record.form.name(),
            detail_bytes: record.detail_length,
            detail: record.form.detail().unwrap_or_default(),
            orientation: record.orientation,
            was_shrunk: record.was_shrunk,
            was_repaired: record.verdict == StoredVerdict::Repaired,
            verdict: verdict_text(record.verdict),
        }
    }
}

impl From<ImageInfo> for ImagePart {
    fn from(info: ImageInfo) -> Self {
        let jpeg = info.jpeg.as_ref();
        Self {
            format: info.format.name().to_string(),
            width: info.width,
            height: info.height,
            components: info.components,
            orientation: info.orientation,
            subsampling: jpeg.and_then(|jpeg| jpeg.subsampling()),
            progressive: jpeg.map(|jpeg| jpeg.progressive),
            restart_interval: jpeg.map(|jpeg| jpeg.restart_interval),
        }
    }
}

/// Returns the pieces of a sample in pieces.
fn pieces_of(pack: &Pack, index: u64) -> anyhow::Result<Vec<PiecePart>> {
    let mut pieces = Vec::new();
    if let Ok(header) = pack.header(index) {
        pack.pieces(index, &header, None, &mut pieces)?;
    }
    let groups = pack.scan_groups().map_or(&[][..], |groups| groups.numbers());
    let part = |(number, Piece { extent, crc32c }): (usize, Piece)| PiecePart {
        group: groups.get(number).copied(),
        offset: extent.start,
        length: extent.end - extent.start,
        crc32c: format!("{crc32c:08x}"),
    };
    Ok(pieces.into_iter().enumerate().map(part).collect())
}

impl DescribedSample {
    /// Examines a sample of a dataset. In a pack, it checks all checksums of the sample.
    pub fn new(dataset: &dyn Dataset, pack: Option<&Pack>, index: u64) -> anyhow::Result<Self> {
        let record = pack.map(|pack| pack.record(index)).transpose()?;
        let label = dataset.label(index);
        let location = dataset.location(index);
        let mut bytes = Vec::new();
        let (image, problem) = match dataset.sample(index, &mut bytes) {
            Ok(Source::Encoded(file)) => match Preparer::new(Limits::default()).info(file) {
                Ok(info) => (Some(info.into()), None),
                Err(error) => (None, Some(with_causes(&error))),
            },
            Ok(_) => (None, None),
            Err(error) => (None, Some(with_causes(&error))),
        };
        let broken = pack.map_or(Vec::new(), |pack| verify_sample(pack, index));
        let damage = broken.iter().map(ToString::to_string).reduce(|all, next| format!("{all}; {next}"));
        Ok(Self {
            sample: index,
            name: dataset.name(index),
            label,
            class: dataset.classes().get(label as usize).cloned().unwrap_or_default(),
            file: location.file,
            offset: location.offset,
            length: location.length,
            record: record.map(RecordPart::from),
            pieces: pack.map_or(Ok(Vec::new()), |pack| pieces_of(pack, index))?,
            image,
            problem: damage.or(problem),
        })
    }

    /// Returns lines of text for people.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "sample {}: {}", self.sample, text::printable(&self.name));
        row(&mut out, "class", &format!("{} (label {})", text::printable(&self.class), self.label));
        let place =
            format!("{}, {} bytes at {}", self.file.display(), text::count(self.length), text::count(self.offset));
        // Pieces lie apart, and each has a checksum of its own.
        let is_one = self.pieces.is_empty();
        if is_one {
            row(&mut out, "place", &place);
        } else {
            row(&mut out, "place", &self.file.display().to_string());
        }
        if let Some(record) = &self.record {
            row(&mut out, "verdict", &record.verdict);
            row(&mut out, "form", &record.form_text());
            if is_one {
                row(&mut out, "crc32c", &record.crc32c);
            }
        }
        for PiecePart { group, offset, length, crc32c } in &self.pieces {
            let name = group.map_or("markers".to_owned(), |group| format!("group {group}"));
            let (length, offset) = (text::count(*length), text::count(*offset));
            row(&mut out, &name, &format!("{length} bytes at {offset}, crc32c {crc32c}"));
        }
        if let Some(image) = &self.image {
            row(&mut out, "image", &image.to_text());
        }
        if let Some(problem) = &self.problem {
            row(&mut out, "problem", &text::printable(problem));
        }
        out
    }
}

impl RecordPart {
    fn form_text(&self) -> String {
        let mut description = format!("{}, {} × {} pixels", self.form, self.width, self.height);
        if self.was_repaired {
            description.push_str(", repaired when it was packed");
        }
        if self.was_shrunk {
            description.push_str(", shrunk when it was packed");
        }
        if self.orientation > 1 {
            let _ = write!(description, ", EXIF orientation {}", self.orientation);
        }
        if self.detail_bytes > 0 {
            let _ = write!(description, ", {} of {}", text::bytes(self.detail_bytes.into()), self.detail);
        }
        description
    }
}

impl ImagePart {
    fn to_text(&self) -> String {
        let mut text = format!("{}, {} × {}, {} components", self.format, self.width, self.height, self.components);
        if let Some(subsampling) = self.subsampling {
            let _ = write!(text, ", {subsampling}");
        }
        if self.progressive == Some(true) {
            text.push_str(", progressive");
        }
        if let Some(interval) = self.restart_interval.filter(|interval| *interval > 0) {
            let _ = write!(text, ", a restart marker every {interval} MCUs");
        }
        if self.orientation > 1 {
            let _ = write!(text, ", EXIF orientation {}", self.orientation);
        }
        text
    }
}
