//! Grouping the members of one shard into samples.

use super::ShardError;
use super::members::{Member, Members};
use crate::CLASSES_MAX;
use crate::extent::make_room;
use crate::stamp::Stamp;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Extensions of a sample's image, after the first dot of its name.
pub const IMAGE_EXTENSIONS: [&str; 9] = ["jpg", "jpeg", "png", "ppm", "pgm", "bmp", "tif", "tiff", "webp"];

/// Most bytes of a `.cls` member.
const LABEL_BYTES_MAX: u64 = 32;

/// The samples of one shard, in order.
#[derive(Debug)]
pub(super) struct ShardListing {
    /// The file's state when it was listed.
    pub(super) stamp: Stamp,
    /// Paths of the images' members, one after the other.
    pub(super) paths: Vec<u8>,
    pub(super) samples: Vec<ListedSample>,
    /// Key of the first sample without a label.
    pub(super) unlabelled: Option<String>,
    /// Whether a sample has a label.
    pub(super) has_labels: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ListedSample {
    /// End of the path in the listing.
    pub(super) path_end: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
    /// 0 if the sample has no label.
    pub(super) label: u32,
}

/// Members of the same key that have been seen so far.
#[derive(Default)]
struct Group {
    key: Vec<u8>,
    image: Option<Member>,
    label: Option<u32>,
}

/// Lists the samples of a shard.
pub(super) fn list_shard(path: &Path, file: &File) -> Result<ShardListing, ShardError> {
    let stamp = Stamp::of(file).map_err(|source| ShardError::Io { path: path.to_owned(), source })?;
    let mut listing =
        ShardListing { stamp, paths: Vec::new(), samples: Vec::new(), unlabelled: None, has_labels: false };
    let mut members = Members::new(file, stamp.bytes);
    let mut group = Group::default();
    while let Some(member) = members.next().map_err(|error| ShardError::tar(path, error))? {
        let Some((key, extension)) = split_name(&member.path) else { continue };
        if key != group.key {
            let next = Group { key: key.to_vec(), ..Group::default() };
            listing.close(path, std::mem::replace(&mut group, next))?;
        }
        group.take(path, file, &extension, member)?;
    }
    listing.close(path, group)?;
    Ok(listing)
}

impl Group {
    fn take(&mut self, path: &Path, file: &File, extension: &str, member: Member) -> Result<(), ShardError> {
        if extension == "cls" {
            if self.label.is_some() {
                return Err(self.problem(path, "two labels (.cls)"));
            }
            self.label = Some(self.read_label(path, file, &member)?);
        } else if IMAGE_EXTENSIONS.contains(&extension) {
            if self.image.is_some() {
                return Err(self.problem(path, "two images, but a sample has only one"));
            }
            self.image = Some(member);
        }
        Ok(())
    }

    fn read_label(&self, path: &Path, file: &File, member: &Member) -> Result<u32, ShardError> {
        if member.length > LABEL_BYTES_MAX {
            return Err(self.problem(path, &format!("a label of {} bytes", member.length)));
        }
        let mut bytes = vec![0; member.length as usize];
        file.read_exact_at(&mut bytes, member.offset)
            .map_err(|source| ShardError::Io { path: path.to_owned(), source })?;
        let label = std::str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse::<u32>().ok());
        let label = label.filter(|&label| (label as usize) < CLASSES_MAX);
        let text = bytes.escape_ascii();
        label.ok_or_else(|| {
            self.problem(path, &format!("a label \"{text}\", which is not a number below {CLASSES_MAX}"))
        })
    }

    fn problem(&self, path: &Path, problem: &str) -> ShardError {
        let key = String::from_utf8_lossy(&self.key).into_owned();
        ShardError::Sample { path: path.to_owned(), key, problem: problem.to_owned() }
    }
}

impl ShardListing {
    /// Adds a complete group to the listing. A group with neither image nor label is not a sample.
    fn close(&mut self, path: &Path, group: Group) -> Result<(), ShardError> {
        match (&group.image, group.label) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(group.problem(path, "a label and no image: its members must follow each other")),
            (Some(image), label) => {
                if label.is_none() && self.unlabelled.is_none() {
                    self.unlabelled = Some(String::from_utf8_lossy(&group.key).into_owned());
                }
                self.has_labels |= label.is_some();
                let label = label.unwrap_or(0);
                let no_memory = |source| ShardError::Io { path: path.to_owned(), source };
                make_room(&mut self.paths, image.path.len(), "the paths of its samples").map_err(no_memory)?;
                make_room(&mut self.samples, 1, "the list of its samples").map_err(no_memory)?;
                self.paths.extend_from_slice(&image.path);
                let path_end = self.paths.len() as u64;
                self.samples.push(ListedSample { path_end, offset: image.offset, length: image.length, label });
                Ok(())
            }
        }
    }
}

/// Splits a member's path into key and extension (in lower case) at the first dot of its last component. Returns `None`
/// for a name that begins with a dot or has none: it belongs to no sample.
pub(super) fn split_name(path: &[u8]) -> Option<(&[u8], String)> {
    let base = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let dot = base + path[base..].iter().position(|&byte| byte == b'.')?;
    if dot == base {
        return None;
    }
    Some((&path[..dot], String::from_utf8_lossy(&path[dot + 1..]).to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::split_name;

    #[test]
    fn keys_end_at_the_first_dot_of_the_last_component() {
        let split = |path: &'static str| split_name(path.as_bytes()).map(|(key, e)| (String::from_utf8_lossy(key), e));
        assert_eq!(split("a/b.c/000.seg.PNG"), Some(("a/b.c/000".into(), "seg.png".to_owned())));
        assert_eq!(split("000.jpg"), Some(("000".into(), "jpg".to_owned())));
        assert_eq!(split("a/.hidden.jpg"), None);
        assert_eq!(split("a.b/README"), None);
        assert_eq!(split(""), None);
    }
}
