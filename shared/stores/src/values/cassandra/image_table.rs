//! Tables that others made: each row has an encoded image.
//!
//! `schema`: the columns of a table. `key`: the keys of rows. `layout`: what is asked of which columns. `listing`: the
//! rows with their labels and times of writing, which are listed once. `kept_list`: the list in a cache.
//!
//! A run asks for each image by the key of its row, and for the time at which the image was written.

mod kept_list;
mod key;
mod layout;
mod listing;
mod schema;

use super::address::ClusterAddress;
use super::cluster::{Cluster, Query};
use super::frame::{Answer, Consistency, Execution};
use crate::cache::{Cache, CacheOptions};
use crate::cached::unusable;
use crate::values::NotOpened;
use crate::values::cassandra::ring::Token;
use ddlp_dataset::image_table::{ImageTable, RowImage, RowRead, TableRows};
use ddlp_dataset::{CacheUse, OpenOptions, Reading, Requests, Silences};
use futures_util::future::try_join_all;
use kept_list::KeptList;
use layout::Layout;
pub use schema::columns_in_words;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes of an image, as long as its length is not known: for how long a request may take.
const IMAGE_BYTES: usize = 128 << 10;
/// Place of an image in the cache: the index of its sample, shifted by this. No answer has as many bytes.
const IMAGE_SHIFT: u32 = 32;
/// Room for the images of answers, in units of bytes: 256 MiB.
const UNIT_BYTES: usize = 64 << 10;
const ROOM_UNITS: u32 = 4096;
/// Room for an image as long as none has come: 4 MiB.
const FIRST_UNITS: u32 = 64;
/// Bytes of the length in front of a cached image.
const LENGTH_BYTES: usize = 4;

/// Opens the table at a URL.
pub fn open(url: &str, options: &OpenOptions, cache: Option<&CacheOptions>) -> Result<ImageTable, NotOpened> {
    let address = ClusterAddress::parse_table(url).map_err(NotOpened::Server)?;
    let cluster = Cluster::new(address).map_err(NotOpened::Server)?;
    let layout = cluster.path.first(|| Layout::find(&cluster, options)).map_err(NotOpened::Server)?;
    let open_kept = |options: &CacheOptions| {
        let opened = KeptList::open(options, &cluster.address, &layout);
        opened.map_err(|error| NotOpened::Cache(unusable(&options.folder, &error)))
    };
    let kept = cache.map(open_kept).transpose()?;
    let (listed, digest) = match kept.as_ref().and_then(KeptList::rows) {
        Some(found) => found,
        None => {
            let rows = cluster.path.wait(0, listing::rows(&cluster, &layout));
            let rows = rows.map_err(|error| NotOpened::Server(error.to_string()))?.map_err(NotOpened::Server)?;
            let place = kept.as_ref().filter(|_| !rows.is_empty());
            let digest = kept_list::keep(place, &rows);
            (rows, digest)
        }
    };
    // An image is cached under its table and column, and the list that says when it was written.
    let key = *blake3::Hasher::new_derive_key("ddlp table images 1")
        .update(&kept_list::key(&cluster.address, &layout))
        .update(&digest)
        .finalize()
        .as_bytes();
    let open_images = |options: &CacheOptions| {
        Cache::open(options, key).map_err(|error| NotOpened::Cache(unusable(&options.folder, &error)))
    };
    let images = cache.map(open_images).transpose()?;
    let has_labels = layout.label.is_some();
    // A run looks at the times that images take.
    cluster.path.forget_requests();
    let (url, room) = (PathBuf::from(url), ImageRoom::new());
    let rows = Box::new(CassandraRows { url, cluster, layout, kept, images, room });
    ImageTable::new(rows, listed, has_labels, options).map_err(|error| NotOpened::Server(error.to_string()))
}

/// The rows of a table.
struct CassandraRows {
    url: PathBuf,
    cluster: Cluster,
    layout: Layout,
    kept: Option<KeptList>,
    images: Option<Cache>,
    room: ImageRoom,
}

/// Memory for the images that are asked for: nobody knows how large one is before it comes, so each may be as large as
/// the largest so far.
struct ImageRoom {
    units: Semaphore,
    /// Units of the largest image; 0 until one has come.
    largest: AtomicU32,
}

impl ImageRoom {
    fn new() -> Self {
        Self { units: Semaphore::new(ROOM_UNITS as usize), largest: AtomicU32::new(0) }
    }

    /// Waits for room for an image.
    async fn take(&self) -> SemaphorePermit<'_> {
        let units = match self.largest.load(Ordering::Relaxed) {
            0 => FIRST_UNITS,
            largest => largest.min(ROOM_UNITS),
        };
        self.units.acquire_many(units).await.expect("the room is never closed")
    }

    fn came(&self, bytes: usize) {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(ROOM_UNITS).max(1);
        self.largest.fetch_max(units, Ordering::Relaxed);
    }
}

impl CassandraRows {
    /// Gets an image, from the cache if that has it.
    async fn image(&self, read: RowRead<'_>) -> io::Result<()> {
        let place = read.index << IMAGE_SHIFT;
        if let Some(image) = self.images.as_ref().and_then(|cache| cached(cache, place)) {
            *read.image = RowImage::Image(image);
            return Ok(());
        }
        let room = self.room.take().await;
        *read.image = self.ask(read.key, read.version).await?;
        if let RowImage::Image(image) = &*read.image {
            self.room.came(image.len());
        }
        drop(room);
        if let (Some(cache), RowImage::Image(image)) = (&self.images, &*read.image) {
            cache.keep(place, &[&(image.len() as u32).to_be_bytes()[..], image].concat());
        }
        Ok(())
    }

    /// Asks for an image. What one replica does not have, or has in an older version, may be at others.
    async fn ask(&self, key: &[u8], version: i64) -> io::Result<RowImage> {
        let cells: Vec<&[u8]> = key::cells(key).collect();
        let values: Vec<Option<&[u8]>> = cells.iter().copied().map(Some).collect();
        let token = Some(Token::of(&self.layout.partition_key(&cells)));
        let mut image = RowImage::Gone;
        for consistency in [Consistency::LocalOne, Consistency::LocalQuorum] {
            let execution = Some(Execution::reading(&values, consistency));
            let query = Query { statement: &self.layout.select_image, execution, token, bytes: IMAGE_BYTES };
            let sized = |image: &RowImage| if let RowImage::Image(image) = image { image.len() } else { 0 };
            image = self.cluster.ask_sized(&query, |answer| row_image(&answer, version), sized).await?;
            if matches!(image, RowImage::Image(_)) {
                break;
            }
        }
        Ok(image)
    }
}

/// Reads an image and the time at which it was written.
fn row_image(answer: &Answer<'_>, version: i64) -> Option<RowImage> {
    let Answer::Rows(rows) = answer else { return None };
    Some(match rows.first().map(Vec::as_slice) {
        Some(&[Some(image), Some(written)]) => match i64::from_be_bytes(written.try_into().ok()?) == version {
            true => RowImage::Image(image.to_vec()),
            false => RowImage::Changed,
        },
        Some([_, _]) | None => RowImage::Gone,
        Some(_) => return None,
    })
}

/// Returns the image at a place of the cache.
fn cached(cache: &Cache, place: u64) -> Option<Vec<u8>> {
    let mut length = [0; LENGTH_BYTES];
    if !cache.fill(place, &mut length).is_empty() {
        return None;
    }
    let mut image = Vec::new();
    let length = u32::from_be_bytes(length) as usize;
    image.try_reserve_exact(length).ok()?;
    image.resize(length, 0);
    cache.fill(place + LENGTH_BYTES as u64, &mut image).is_empty().then_some(image)
}

impl TableRows for CassandraRows {
    fn url(&self) -> &Path {
        &self.url
    }

    fn images(&self) -> &str {
        &self.layout.select_image
    }

    fn name(&self, key: &[u8]) -> String {
        self.layout.name(key)
    }

    fn start_reads<'r>(&'r self, reads: Vec<RowRead<'r>>) -> Reading<'r, io::Error> {
        let bytes = reads.len() * IMAGE_BYTES;
        let all = try_join_all(reads.into_iter().map(|read| self.image(read)));
        Box::pin(self.cluster.path.make(bytes, async { all.await.map(drop) }))
    }

    fn read_again(&self, index: u64) {
        let place: Range<u64> = index << IMAGE_SHIFT..(index + 1) << IMAGE_SHIFT;
        self.images.iter().for_each(|cache| cache.forget(place.clone()));
    }

    fn list_is_old(&self) {
        self.kept.iter().for_each(KeptList::forget);
    }

    fn requests(&self) -> Requests {
        self.cluster.path.requests()
    }

    fn cache_use(&self) -> Option<CacheUse> {
        self.images.as_ref().map(Cache::usage)
    }

    fn interrupt(&self) {
        self.cluster.path.interrupt();
    }

    fn silences(&self) -> Silences {
        self.cluster.path.silences(&*self.cluster.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn images_that_are_asked_for_have_bounded_memory_however_large_they_are() {
        let room = ImageRoom::new();
        let at_once = || std::iter::from_fn(|| room.take().now_or_never()).collect::<Vec<_>>().len();
        assert_eq!(at_once(), 64, "256 MiB, and nobody knows how large they are");
        room.came(100 << 10);
        assert_eq!(at_once(), 2048);
        room.came(30 << 20);
        assert_eq!(at_once(), 8);
        room.came(1 << 30);
        assert_eq!(at_once(), 1, "one may always come");
        room.came(1);
        assert_eq!(at_once(), 1, "the largest counts");
    }
}
