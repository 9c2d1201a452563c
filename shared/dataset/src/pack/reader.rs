//! Reading samples from a pack.

use super::bundles::{BundleIndex, check_record};
use super::contents::{ClassNames, LabelCheck, Labels};
use super::file::PackFile;
use super::format::{FormatError, IndexPart};
use super::index::Index;
use super::names::text_for;
use super::read_ahead::{ReadAhead, extents_around};
use super::record::{IndexRecord, RecordProblem, StoredVerdict};
use super::records::{Records, ShortRecord};
use super::store::{Blocks, BlocksRead, Store};
use super::superblock::PackLayout;
use crate::{
    Ahead, CacheUse, Corrupt, Dataset, Decoder, Decoders, ExtentRead, FetchDepth, Header, Identity, Location, Piece,
    ReadError, Reading, Requests, SAMPLE_BYTES_MAX, Silences, Stored, Unavailable, inputs, sample_reader,
};
use ddlp_pixels::{Fidelity, Format, ScanGroups};
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::path::Path;

/// Most samples whose records are kept in memory. In a longer pack, each read of a sample first reads its record.
const KEPT_RECORDS_MAX: u64 = 1 << 21;

/// Most samples of a pack that does not open if a record is damaged. A longer pack opens: its records are then not kept
/// in memory, and only the samples whose records are damaged are lost.
pub(super) const WHOLE_RECORDS_MAX: u64 = 1 << 17;

/// Smallest read that is announced. A smaller one would cost more than it saves: the disk's readahead fetches its
/// neighbours anyway.
const ANNOUNCED_BYTES_MIN: u64 = 16 << 10;

/// Size of a pack, relative to memory, beyond which it is read past the page cache. If a file is c times as large as a
/// cache that drops the least recently used pages, epochs in random order find 1 − (1 − 1/c)(1 − ln(1 − 1/c)) of it
/// there: 15 % at 2, 69 % at 1.1.
const PAST_CACHE_TIMES: u64 = 2;

/// Number of samples that are looked at to find out whether a pack holds pixels.
const TRIED: u64 = 64;

/// Number of records, spread over the pack, that tell which decoders its samples need. The pack may lie in a drive, so
/// each costs a read.
const DECODERS_OF: u64 = 16;

/// An open pack.
///
/// Opening reads and checks superblock, labels and class names, and the records of up to 2 million samples. Everything
/// else is checked when it is used; [`verify`](super::verify) checks everything.
pub struct Pack {
    pub(super) index: Index,
    labels: Labels,
    classes: Vec<String>,
    /// The bundles of a pack whose samples are in pieces.
    pub(super) bundles: Option<BundleIndex>,
    /// The records, if they stay in memory.
    pub(super) records: Option<Records>,
    pub(super) ahead: ReadAhead,
}

impl Pack {
    /// Opens a pack.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let file = File::open(path).map_err(|source| FormatError::Io { path: path.to_owned(), source })?;
        Self::from_file(file, path)
    }

    /// Opens a pack from an open file; messages call it `path`.
    pub fn from_file(file: File, path: &Path) -> Result<Self, FormatError> {
        let failed = |source| FormatError::Io { path: path.to_owned(), source };
        Self::from_store(Store::of_file(file, path).map_err(failed)?)
    }

    /// Opens a pack that does not lie in a local file; messages call it `place`.
    pub fn from_blocks(blocks: Box<dyn Blocks>, place: &Path) -> Result<Self, FormatError> {
        Self::from_store(Store::of_blocks(blocks, place.to_owned()))
    }

    fn from_store(store: Store) -> Result<Self, FormatError> {
        let index = Index::read(store)?;
        let labels = read_labels(&index)?;
        let classes = read_classes(&index)?;
        let samples = index.layout.samples;
        let bundles = if index.has_bundles() { Some(BundleIndex::read(&index)?) } else { None };
        let records = if samples <= WHOLE_RECORDS_MAX {
            Some(Records::read(&index, bundles.as_ref())?)
        } else if samples <= KEPT_RECORDS_MAX {
            unless_damaged(Records::read(&index, bundles.as_ref()))?
        } else {
            None
        };
        let pack = Self { index, labels, classes, bundles, records, ahead: ReadAhead::default() };
        if pack.layout().data_bytes / pack.layout().samples >= ANNOUNCED_BYTES_MIN {
            pack.index.file.expect_random();
        }
        Ok(pack)
    }

    /// Returns the contents of the superblock.
    pub fn layout(&self) -> &PackLayout {
        &self.index.layout
    }

    /// Reads a sample's index record.
    pub fn record(&self, index: u64) -> Result<IndexRecord, ReadError> {
        self.check_index(index)?;
        self.index.record(index).map_err(|problem| self.bad_record(index, problem))
    }

    /// Returns a sample's record without the name: from memory, if the records stay there.
    fn short_record(&self, index: u64) -> Result<ShortRecord, ReadError> {
        self.check_index(index)?;
        match &self.records {
            Some(records) => Ok(*records.get(index)),
            None => {
                let record = self.record(index)?;
                let checked = check_record(self.bundles.as_ref(), index, &record);
                checked.map_err(|problem| self.bad_record(index, problem.into()))?;
                Ok(ShortRecord::of(&record))
            }
        }
    }

    fn check_index(&self, index: u64) -> Result<(), Unavailable> {
        let samples = self.layout().samples;
        if index < samples { Ok(()) } else { Err(Unavailable::OutOfRange { index, samples }) }
    }

    pub(super) fn bad_record(&self, index: u64, problem: RecordProblem) -> ReadError {
        let file = self.index.file.path().to_owned();
        if let Err(unavailable) = self.index.check(true) {
            return unavailable.into();
        }
        match problem {
            RecordProblem::UnknownForm(form) => Unavailable::UnknownForm { index, file, form }.into(),
            RecordProblem::Damaged(problem) => Corrupt::Record { index, file, problem }.into(),
            RecordProblem::Unreadable(source) => {
                let location = Location { file, offset: 0, length: 0 };
                ReadError::of_sample(format!("#{index} (its record)"), location, source)
            }
        }
    }

    /// Announces whole extents of these samples' bundles, if samples are read from a few bundles at a time. Returns
    /// false if samples have to be announced one by one.
    fn announces_bundles(&self, indices: &[u64], ahead: Ahead) -> bool {
        let (Some(bundles), Some(window)) = (&self.bundles, ahead.window) else { return false };
        let (file, groups) = (self.index.file.file(), bundles.groups_of(ahead.fidelity));
        let most = Ahead::memory(window, bundles.largest(groups));
        // What is read of a file lies in the page cache, which has bounds of its own.
        if file.is_none() && most > Ahead::BYTES_MAX {
            return false;
        }
        for &index in indices {
            let bundle = bundles.prefix(index, groups);
            for piece in bundles.pieces(index).take(groups) {
                for extent in extents_around(&bundle, &piece.extent) {
                    if self.ahead.announce(extent.clone(), most)
                        && let Some(file) = file
                    {
                        file.will_need(extent.start, extent.end - extent.start);
                    }
                }
            }
        }
        true
    }

    /// Turns an operating system's error for a sample's bytes into the sample's error.
    fn unread(&self, index: u64, source: io::Error) -> ReadError {
        match self.index.check(true) {
            Err(unavailable) => unavailable.into(),
            Ok(()) => ReadError::of_sample(self.name(index), self.location(index), source),
        }
    }
}

impl Dataset for Pack {
    fn len(&self) -> u64 {
        self.layout().samples
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: u64) -> u32 {
        self.labels.get(index)
    }

    fn name(&self, index: u64) -> String {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        match self.record(index) {
            Ok(record) => self.index.name_or_number(index, &record),
            Err(problem) => text_for(index, &problem),
        }
    }

    fn names(&self, samples: Range<u64>) -> Result<Vec<String>, ReadError> {
        self.names_of(samples)
    }

    fn location(&self, index: u64) -> Location {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        match self.short_record(index) {
            Ok(record) => {
                let (bytes, bundles) = (record.bytes(), self.bundles.as_ref().filter(|_| record.form.is_in_pieces()));
                let length = bundles.map_or(bytes.end - bytes.start, |bundles| bundles.sample_bytes(index));
                self.index.location(bytes.start..bytes.start + length)
            }
            Err(_) => Location { file: self.index.file.path().to_owned(), offset: 0, length: 0 },
        }
    }

    fn sample_in(&self, found: &Metadata) -> Option<u64> {
        inputs::is_same_file(self.index.file.file()?.path(), found).then_some(0)
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        let record = self.short_record(index)?;
        if let StoredVerdict::Rejected(reason) = record.verdict {
            let location = self.index.location(record.bytes());
            return Err(Corrupt::Rejected { name: self.name(index), location, reason }.into());
        }
        Ok(record.header())
    }

    fn pieces(
        &self,
        index: u64,
        header: &Header,
        fidelity: Option<Fidelity>,
        pieces: &mut Vec<Piece>,
    ) -> Result<u64, ReadError> {
        let Some(bundles) = &self.bundles else { return Ok(0) };
        if !header.form.is_in_pieces() {
            return Ok(0);
        }
        let groups = bundles.groups().numbers();
        // The first group is always read, and the markers only with everything.
        let read = |at: usize| {
            let group = groups.get(at);
            fidelity.is_none_or(|fidelity| at == 0 || group.is_some_and(|&group| group <= fidelity.number()))
        };
        let mut bytes = 0;
        for (at, piece) in bundles.pieces(index).enumerate() {
            bytes += piece.extent.end - piece.extent.start;
            if read(at) {
                pieces.push(piece);
            }
        }
        if bytes > SAMPLE_BYTES_MAX {
            let problem = format!("its pieces have {bytes} bytes, at most {SAMPLE_BYTES_MAX} are possible");
            return Err(self.bad_record(index, problem.into()));
        }
        Ok(bytes)
    }

    fn scan_groups(&self) -> Option<&ScanGroups> {
        self.bundles.as_ref().map(BundleIndex::groups)
    }

    fn read(&self, index: u64, header: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        let whole = 0..out.len();
        self.read_within(index, header, offset, out, whole)
    }

    fn read_within(
        &self,
        index: u64,
        header: &Header,
        offset: u64,
        memory: &mut [u8],
        place: Range<usize>,
    ) -> Result<(), ReadError> {
        let is_pixels = header.form.is_decoded() && header.bytes.contains(&offset);
        let read = match self.index.file.blocks() {
            Some(blocks) => self.ahead.read_many(blocks, &mut [BlocksRead { offset, memory, place }]),
            None => self.index.file.read_within(is_pixels, offset, memory, place),
        };
        read.map_err(|source| self.unread(index, source))
    }

    fn header_extent(&self, index: u64) -> Range<u64> {
        // The reason of a rejected sample is not in memory, nor is its name.
        let is_known = |records: &Records| !matches!(records.get(index).verdict, StoredVerdict::Rejected(_));
        if self.records.as_ref().is_some_and(is_known) { 0..0 } else { self.index.record_extent(index) }
    }

    fn header_in(&self, index: u64, bytes: &[u8]) -> Option<Header> {
        let record = IndexRecord::parse(bytes.try_into().ok()?, self.layout()).ok()?;
        check_record(self.bundles.as_ref(), index, &record).ok()?;
        let is_rejected = matches!(record.verdict, StoredVerdict::Rejected(_));
        (!is_rejected).then(|| ShortRecord::of(&record).header())
    }

    fn read_many(&self, reads: &mut [ExtentRead<'_>]) -> Result<(), ReadError> {
        let Some(blocks) = self.index.file.blocks() else {
            return reads.iter_mut().try_for_each(|read| {
                self.read_within(read.index, read.header, read.offset, read.memory, read.place.clone())
            });
        };
        let first = reads.first().map_or(0, |read| read.index);
        let mut of_blocks = Vec::with_capacity(reads.len());
        for ExtentRead { offset, memory, place, .. } in reads {
            of_blocks.push(BlocksRead { offset: *offset, memory, place: place.clone() });
        }
        self.ahead.read_many(blocks, &mut of_blocks).map_err(|source| self.unread(first, source))
    }

    fn start_reads<'r>(&'r self, mut reads: Vec<ExtentRead<'r>>) -> Reading<'r, ReadError> {
        let Some(blocks) = self.index.file.blocks() else {
            return Box::pin(async move { self.read_many(&mut reads) });
        };
        let of_blocks = |ExtentRead { offset, memory, place, .. }| BlocksRead { offset, memory, place };
        let reading = self.ahead.start_reads(blocks, reads.into_iter().map(of_blocks).collect());
        // A sample's name would have to be read.
        Box::pin(async move { reading.await.map_err(|source| self.index.unread(source).into()) })
    }

    fn requests(&self) -> Option<Requests> {
        self.index.file.blocks().and_then(Blocks::requests)
    }

    fn cache_use(&self) -> Option<CacheUse> {
        self.index.file.blocks().and_then(Blocks::cache_use)
    }

    fn fetch_depth(&self) -> FetchDepth {
        self.index.file.blocks().map_or(FetchDepth::NONE, Blocks::fetch_depth)
    }

    fn comes_over_network(&self) -> bool {
        self.index.file.comes_over_network()
    }

    fn stored<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<Stored<'a>, ReadError> {
        let record = self.record(index)?;
        let name =
            self.index.name(&record).map_err(|error| self.bad_record(index, RecordProblem::Unreadable(error)))?;
        name.map_err(|problem| {
            let file = self.index.file.path().to_owned();
            Corrupt::Record { index, file, problem }
        })?;
        match record.verdict {
            StoredVerdict::Rejected(reason) => {
                let bytes = sample_reader::file(self, index, ShortRecord::of(&record).header(), buf)?;
                Ok(Stored::Rejected { bytes, reason })
            }
            _ => self.sample(index, buf).map(Stored::Source),
        }
    }

    fn announce(&self, indices: &[u64], ahead: Ahead) {
        if self.announces_bundles(indices, ahead) {
            return;
        }
        // Only a file can be read ahead; in blocks, each record would cost a read.
        let Some(file) = self.index.file.file() else { return };
        for &index in indices {
            let Ok(record) = self.short_record(index) else { continue };
            let pieces = self.bundles.as_ref().filter(|_| record.form.is_in_pieces());
            let pieces = pieces.map(|bundles| bundles.pieces(index).take(bundles.groups_of(ahead.fidelity)));
            let pieces: Vec<_> = pieces.into_iter().flatten().map(|piece| piece.extent).collect();
            // Which bytes a crop reads beyond these is not known yet.
            let extents = if pieces.is_empty() { vec![record.form.first_bytes(&record.header())] } else { pieces };
            if extents.iter().map(|extent| extent.end - extent.start).sum::<u64>() >= ANNOUNCED_BYTES_MIN {
                extents.into_iter().for_each(|Range { start, end }| file.will_need(start, end - start));
            }
        }
    }

    /// Decides for pixels only: files are announced, which needs the page cache, and decoding them takes far longer
    /// than copying.
    fn fit_memory(&self, available_bytes: u64) -> io::Result<bool> {
        let Some(file) = self.index.file.file() else { return Ok(false) };
        let is_decoded = |index| self.short_record(index).is_ok_and(|record| record.form.is_decoded());
        let (samples, bytes) = (self.layout().samples, self.layout().data_bytes);
        if bytes / PAST_CACHE_TIMES <= available_bytes || !(0..samples.min(TRIED)).any(is_decoded) {
            return Ok(false);
        }
        file.pass_cache()?;
        Ok(true)
    }

    fn check(&self) -> Result<(), Unavailable> {
        self.index.check(false)
    }

    fn check_damage(&self) -> Result<(), Unavailable> {
        // The damage may have come with an extent, and is then not where the bytes are stored.
        self.ahead.forget();
        self.index.check(true)
    }

    fn read_again(&self, index: u64) {
        let (Some(blocks), Ok(record)) = (self.index.file.blocks(), self.short_record(index)) else { return };
        let (header, bundles) = (record.header(), self.bundles.as_ref().filter(|_| record.form.is_in_pieces()));
        let pieces = bundles.into_iter().flat_map(|bundles| bundles.pieces(index)).map(|piece| piece.extent);
        let extents = pieces.chain([header.bytes, header.detail]).filter(|extent| !extent.is_empty());
        extents.for_each(|extent| blocks.forget(extent));
    }

    fn interrupt(&self) {
        self.ahead.interrupt();
        self.index.file.interrupt();
    }

    fn silences(&self) -> Silences {
        self.index.file.blocks().map_or_else(Silences::default, Blocks::silences)
    }

    fn identity(&self) -> Identity {
        self.layout().identity
    }

    fn decoders(&self) -> Decoders {
        let samples = self.len().min(DECODERS_OF);
        let records = (0..samples).filter_map(|number| self.record(number * self.len() / samples).ok());
        let decoder = |record: IndexRecord| {
            let of_file = || self.index.name(&record).ok()?.ok().and_then(|name| Format::of_name(name.as_bytes()));
            record.form.decoder().or_else(|| of_file().map(Decoder::File))
        };
        let intact = records.filter(|record| !matches!(record.verdict, StoredVerdict::Rejected(_)));
        intact.filter_map(decoder).collect()
    }

    /// Samples that are not in pieces lie in the order of their indices, so any neighbours are a bundle.
    fn bundles(&self) -> io::Result<Option<crate::Bundles>> {
        let neighbours = crate::Bundles { samples: crate::Bundles::NEIGHBOURS, indices: None, bytes: 0 };
        self.bundles.as_ref().map_or(Ok(neighbours), BundleIndex::in_order).map(Some)
    }

    fn kind(&self) -> &'static str {
        "pack"
    }

    fn rejected(&self) -> u64 {
        self.records.as_ref().map_or(0, Records::rejected)
    }

    fn export(&self) -> Option<&PackFile> {
        self.index.file.file()
    }

    fn export_blocks(&self) -> Option<&dyn Blocks> {
        self.index.file.blocks()
    }
}

/// Returns no records if one of them cannot be used, or if there is no memory for them. Any other error may be gone
/// when the pack is opened again: without it, each sample would cost one read more.
fn unless_damaged(records: Result<Records, FormatError>) -> Result<Option<Records>, FormatError> {
    use FormatError::{Checksum, Io, Malformed, UnknownForm};
    match records {
        Ok(records) => Ok(Some(records)),
        Err(Malformed { .. } | Checksum { .. } | UnknownForm { .. }) => Ok(None),
        Err(Io { source, .. }) if source.kind() == io::ErrorKind::OutOfMemory => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_labels(index: &Index) -> Result<Labels, FormatError> {
    let new = || (Labels::default(), LabelCheck::new(index.layout.classes));
    let (labels, check) = index.read_section(IndexPart::Labels, new, |(labels, check), piece| {
        check.take(piece);
        Ok(labels.append(piece)?)
    })?;
    check.finish().map_err(|problem| index.malformed(IndexPart::Labels, problem))?;
    Ok(labels)
}

fn read_classes(index: &Index) -> Result<Vec<String>, FormatError> {
    let new = || ClassNames::new(index.layout.classes);
    let classes = index.read_section(IndexPart::Classes, new, |classes, piece| {
        classes.take(piece);
        Ok(())
    })?;
    classes.finish().map_err(|problem| index.malformed(IndexPart::Classes, problem))
}
