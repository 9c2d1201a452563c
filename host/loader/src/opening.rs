//! Opening a dataset: from files of this machine, from the drive that alone holds it (`blocks`), or from a store or
//! server ([`ddlp_stores`]).

mod blocks;

use crate::drive::Endpoint;
use crate::error::{DriveError, LoaderError};
use blocks::DriveBlocks;
use ddlp_dataset::pack::{Blocks, FormatError, Pack};
use ddlp_dataset::{Dataset, Kind, OpenError, OpenOptions};
use ddlp_driver::{Host, Target};
use ddlp_stores::{CacheError, CacheOptions, CachedBlocks, StoreError};
use std::path::Path;
use std::sync::Arc;

/// Opens a dataset: a path of files; the URL of a pack (`s3://`, `gs://`, `az://`, `https://`, `http://`), which is
/// read by ranges; the URL of one in Redis or Valkey (`redis://HOST:PORT/DB/NAME`, `rediss://…`,
/// `redis+sentinel://HOST:PORT/SERVICE/DB/NAME`, `rediss+sentinel://…`), or in Cassandra or ScyllaDB
/// (`cql://HOST/KEYSPACE/NAME`, `cqls://…`), or of a table that others made there, whose columns the options name; or
/// the address of a drive (`tcp://HOST:PORT/NQN`, or `/dev/nvmeX` if the kernel is connected to it), whose dataset the
/// host then reads over NVMe. Towards the drive, this machine is `host`.
///
/// # Errors
///
/// [`LoaderError::Options`] if the address is malformed, [`LoaderError::Dataset`] if the files are not a dataset,
/// [`LoaderError::Store`] if the URL's object cannot be read, and [`LoaderError::Drive`] if the drive cannot be reached
/// or holds no pack that this version reads.
pub fn open_dataset(place: &Path, host: &Host) -> Result<Arc<dyn Dataset>, LoaderError> {
    open_dataset_with(place, host, &OpenOptions::default(), None)
}

/// Opens a dataset as [`open_dataset`] does, with these options. What is read over a network goes through the cache, if
/// there is one.
///
/// # Errors
///
/// As [`open_dataset`], and [`LoaderError::Options`] if the dataset of a drive is to be of a kind that drives do not
/// hold, or the cache's folder cannot be used.
pub fn open_dataset_with(
    place: &Path,
    host: &Host,
    options: &OpenOptions,
    cache: Option<&CacheOptions>,
) -> Result<Arc<dyn Dataset>, LoaderError> {
    if options.table.is_given() {
        return open_table(place, options, cache);
    }
    if remote_address(place).is_none() {
        check_no_address(place)?;
        return Ok(ddlp_dataset::open_with(place, options).map_err(LoaderError::Dataset)?.into());
    }
    if let Some(kind) = options.kind.filter(|kind| *kind != Kind::Pack) {
        let message = format!("`kind` is {kind}, but a drive and a URL have a pack: leave `kind` out");
        return Err(LoaderError::Options(message));
    }
    Ok(Arc::new(open_pack_with(place, host, cache)?))
}

/// Opens a pack: a file, the URL of one, or the pack in the drive with this address. Towards the drive, this machine is
/// `host`.
///
/// # Errors
///
/// As [`open_dataset`] of the place.
pub fn open_pack(place: &Path, host: &Host) -> Result<Pack, LoaderError> {
    open_pack_with(place, host, None)
}

fn open_pack_with(place: &Path, host: &Host, cache: Option<&CacheOptions>) -> Result<Pack, LoaderError> {
    if let Some(address) = drive_address(place) {
        return open_drive_pack(address, host, cache);
    }
    let pack = |opened: Result<Pack, FormatError>| opened.map_err(|error| LoaderError::Dataset(OpenError::Pack(error)));
    match remote_address(place) {
        None => pack(Pack::open(place)),
        Some(url) => pack(Pack::from_blocks(ddlp_stores::open(url, cache).map_err(not_opened)?, place)),
    }
}

fn open_table(
    place: &Path,
    options: &OpenOptions,
    cache: Option<&CacheOptions>,
) -> Result<Arc<dyn Dataset>, LoaderError> {
    let Some(url) = place.to_str().filter(|place| ddlp_stores::may_have_tables(place)) else {
        let place = place.display();
        return Err(LoaderError::Options(format!(
            "`data_column`, `label_column` and `metadata_table` are for tables in Cassandra and ScyllaDB \
             (cql://HOST/KEYSPACE/TABLE), and {place} is no such table"
        )));
    };
    Ok(ddlp_stores::open_table(url, options, cache).map_err(not_opened)?.into())
}

fn not_opened(error: StoreError) -> LoaderError {
    match error {
        StoreError::Unread { url, reason } => LoaderError::Store { url, reason },
        StoreError::Pack(error) => LoaderError::Dataset(OpenError::Pack(error)),
        StoreError::Cache(what) => LoaderError::Options(what),
    }
}

fn open_drive_pack(address: &str, host: &Host, cache: Option<&CacheOptions>) -> Result<Pack, LoaderError> {
    Target::parse(address).map_err(|error| {
        let help = "a drive is tcp://HOST:PORT/NQN or /dev/nvmeX";
        LoaderError::Options(format!("{address} is not the address of a drive: {error}; {help}"))
    })?;
    let refused = |source| LoaderError::Drive { drive: address.to_owned(), source };
    let endpoint = Endpoint::remote(address, host).map_err(refused)?;
    let mut blocks: Box<dyn Blocks> = Box::new(DriveBlocks::open(endpoint, address).map_err(refused)?);
    if let Some(options) = cache {
        blocks = Box::new(CachedBlocks::new(blocks, options).map_err(|error| match error {
            CacheError::Unread(error) => refused(DriveError::of(error)),
            CacheError::Folder(what) => LoaderError::Options(what),
        })?);
    }
    match Pack::from_blocks(blocks, Path::new(address)) {
        Ok(pack) => Ok(pack),
        Err(FormatError::NotAPack { .. }) => Err(refused(
            "it serves no pack, so no host can read its dataset: let its agent serve a pack (`ddlp pack`)"
                .to_owned()
                .into(),
        )),
        Err(error) => Err(LoaderError::Dataset(OpenError::Pack(error))),
    }
}

/// Returns the place of a dataset as text if it is the address of a drive: `tcp://HOST:PORT/NQN`, or the node of a
/// controller, `/dev/nvmeX`.
pub fn drive_address(place: &Path) -> Option<&str> {
    let is_controller = |place: &str| {
        let instance = place.strip_prefix("/dev/nvme").map(|rest| rest.split('?').next().unwrap_or_default());
        instance.is_some_and(|instance| !instance.is_empty() && instance.bytes().all(|byte| byte.is_ascii_digit()))
    };
    place.to_str().filter(|place| place.starts_with("tcp://") || is_controller(place))
}

/// Returns the place of a dataset as text if it lies neither in a file nor in a folder: the address of a drive, or the
/// URL of a pack.
pub fn remote_address(place: &Path) -> Option<&str> {
    drive_address(place).or_else(|| place.to_str().filter(|place| ddlp_stores::is_url(place)))
}

/// Refuses a path that looks like a drive's address but is not one.
fn check_no_address(place: &Path) -> Result<(), LoaderError> {
    let Some(text) = place.to_str() else { return Ok(()) };
    let is_node = ["/dev/nvme", "/dev/ng"].iter().any(|node| text.starts_with(node));
    let reason = if is_node {
        "the dataset of a drive is named by the drive's controller, /dev/nvmeX (`ddlp devices` lists drives)"
    } else if text.contains("://") && !place.exists() {
        "a dataset is a path, the URL of a pack (s3://, gs://, az://, https://, http://, redis://, rediss://, \
         redis+sentinel://, rediss+sentinel://, cql://, cqls://), or the address of a drive: tcp://HOST:PORT/NQN, or \
         /dev/nvmeX"
    } else {
        return Ok(());
    };
    Err(LoaderError::Options(format!("{text} is not a dataset: {reason}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_drive_is_told_from_a_file() {
        for drive in ["tcp://10.0.0.7:4420/nqn.2024-01.a:b", "/dev/nvme0", "/dev/nvme12", "/dev/nvme0?ioctl"] {
            assert_eq!(drive_address(Path::new(drive)), Some(drive));
        }
        for file in ["/dev/nvme0n1", "/dev/nvme", "/dev/ng0n1", "/data/nvme0", "tcp", "photos.ddlp"] {
            assert_eq!(drive_address(Path::new(file)), None, "{file}");
        }
    }

    #[test]
    fn what_is_almost_the_address_of_a_drive_is_refused_with_what_helps() {
        for (place, part) in [
            ("/dev/nvme0n1", "`ddlp devices`"),
            ("/dev/ng0n1", "/dev/nvmeX"),
            ("rdma://10.0.0.7", "tcp://HOST:PORT/NQN"),
            ("ftp://10.0.0.7/photos.ddlp", "a path"),
            ("tcp://127.0.0.1:1/", "qualified name"),
        ] {
            let error = open_dataset(Path::new(place), &Host::system()).map(drop).expect_err(place);
            let said = error.to_string();
            assert!(matches!(error, LoaderError::Options(_)), "{said}");
            assert!(said.contains(place) && said.contains(part), "{said}");
        }
        let options = OpenOptions { kind: Some(Kind::Tar), ..OpenOptions::default() };
        let drive = Path::new("tcp://127.0.0.1:1/nqn.2024-01.a:b");
        let said = open_dataset_with(drive, &Host::system(), &options, None).map(drop).unwrap_err().to_string();
        assert!(said.contains("`kind` is tar, but a drive and a URL have a pack"), "{said}");
        let error = open_dataset(Path::new("/no/such.ddlp"), &Host::system()).map(drop).unwrap_err();
        assert!(matches!(error, LoaderError::Dataset(_)), "{error}");
    }
}
