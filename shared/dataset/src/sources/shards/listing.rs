//! Grouping the members of one shard into samples.

use super::ShardError;
use super::members::{Member, Members};
use crate::CLASSES_MAX;
use crate::extent::make_room;
use crate::label_text::LabelTexts;
use crate::sources::left_out::LeftOut;
use crate::stamp::Stamp;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Extensions of a sample's image, after the first dot of its name, in any case.
pub const IMAGE_EXTENSIONS: [&str; 9] = ["jpg", "jpeg", "png", "ppm", "pgm", "bmp", "tif", "tiff", "webp"];

/// Extensions of images that a shard is not read for.
const OTHER_IMAGES: [&str; 8] = ["gif", "jfif", "jpe", "pbm", "pnm", "pam", "avif", "heic"];

/// Extension of a sample's label.
const LABEL_EXTENSION: &str = "cls";

/// Most bytes of a `.cls` member.
const LABEL_BYTES_MAX: u64 = 32;

/// The samples of one shard, in order.
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
    /// Reason why the first image that makes no sample is lost, if the samples have no labels. Beside samples with
    /// labels, it is left out.
    pub(super) lost: Option<ShardError>,
    pub(super) left_out: LeftOut,
}

#[derive(Clone, Copy)]
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
    /// Path and content of the image.
    image: Option<(Vec<u8>, Range<u64>)>,
    label: Option<u32>,
    /// Paths of the members that are neither the image nor the label.
    others: Vec<Vec<u8>>,
}

/// Lists the samples of a shard, and at most `names_max` names of members that are left out.
pub(super) fn list_shard(path: &Path, file: &File, names_max: usize) -> Result<ShardListing, ShardError> {
    let stamp = Stamp::of(file).map_err(|source| ShardError::Io { path: path.to_owned(), source })?;
    let mut listing = ShardListing {
        stamp,
        paths: Vec::new(),
        samples: Vec::new(),
        unlabelled: None,
        has_labels: false,
        lost: None,
        left_out: LeftOut::new(names_max),
    };
    let mut members = Members::new(file, stamp.bytes);
    let mut group = Group::default();
    while let Some(member) = members.next().map_err(|error| ShardError::tar(path, error))? {
        let Some((key, extension)) = split_name(&member.path) else {
            listing.leave_out(path, &member.path);
            continue;
        };
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
        let Some(role) = Role::of(extension) else {
            let no_memory = |source| ShardError::Io { path: path.to_owned(), source };
            make_room(&mut self.others, 1, "the members of a sample").map_err(no_memory)?;
            self.others.push(member.path);
            return Ok(());
        };
        let content = member.content.map_err(|what| {
            let name = String::from_utf8_lossy(&member.path);
            self.problem(path, &format!("a member {name} that is {what}"))
        })?;
        match role {
            Role::Label if self.label.is_some() => return Err(self.problem(path, "two labels (.cls)")),
            Role::Label => self.label = Some(self.read_label(path, file, content)?),
            Role::Image if self.image.is_some() => {
                return Err(self.problem(path, "two images, but a sample has only one"));
            }
            Role::Image => self.image = Some((member.path, content)),
        }
        Ok(())
    }

    fn read_label(&self, path: &Path, file: &File, content: Range<u64>) -> Result<u32, ShardError> {
        let length = content.end - content.start;
        if length > LABEL_BYTES_MAX {
            return Err(self.problem(path, &format!("a label of {length} bytes")));
        }
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, content.start)
            .map_err(|source| ShardError::Io { path: path.to_owned(), source })?;
        let texts = LabelTexts::new(CLASSES_MAX as u64 - 1);
        let label = std::str::from_utf8(&bytes).ok().and_then(|text| texts.index(text)).map(|label| label as u32);
        let text = bytes.escape_ascii();
        label.ok_or_else(|| {
            self.problem(path, &format!("a label \"{text}\", which is not a number below {CLASSES_MAX}"))
        })
    }

    /// Refuses a complete group that loses members of a sample: a label without an image, or names in which the key
    /// should have ended at the last dot. Beside an image of the group, an image without a label, such as a mask, is
    /// not lost. Without one, returns the reason why such an image may be lost.
    fn refuse_lost_sample(&self, path: &Path) -> Result<Option<ShardError>, ShardError> {
        let mut parts: Vec<(&[u8], Role, &[u8])> = self.others.iter().filter_map(|other| part_by_end(other)).collect();
        parts.sort_unstable();
        let whole = parts.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1);
        let lost = match self.image {
            None => whole.map(|pair| &pair[0]).or(parts.first()),
            Some(_) => whole.map(|pair| &pair[0]),
        };
        if let Some((stem, _, extension)) = lost {
            let [key, rest, extension] =
                [&self.key, &stem[self.key.len() + 1..], extension].map(|part| String::from_utf8_lossy(part));
            let problem = format!(
                "a member {key}.{rest}.{extension} that makes no sample, since the key ends at the first dot: rename \
                 the members, such as {key}_{}.{extension}",
                rest.replace('.', "_")
            );
            let has_label = self.label.is_some() || parts.iter().any(|(_, role, _)| *role == Role::Label);
            let problem = self.problem(path, &problem);
            return if has_label { Err(problem) } else { Ok(Some(problem)) };
        }
        let other_image = self.others.iter().find(|other| is_other_image(other)).filter(|_| self.image.is_none());
        if let Some(other) = other_image {
            let problem = format!(
                "an image {} and none with an extension of which images are read ({}): rename it if it is a JPEG, and \
                 convert it otherwise",
                String::from_utf8_lossy(other),
                IMAGE_EXTENSIONS.join(" ")
            );
            let problem = self.problem(path, &problem);
            return if self.label.is_some() { Err(problem) } else { Ok(Some(problem)) };
        }
        if self.image.is_none() && self.label.is_some() {
            return Err(self.problem(path, "a label and no image: its members must follow each other"));
        }
        Ok(None)
    }

    fn problem(&self, path: &Path, problem: &str) -> ShardError {
        let key = String::from_utf8_lossy(&self.key).into_owned();
        ShardError::Sample { path: path.to_owned(), key, problem: problem.to_owned() }
    }
}

impl ShardListing {
    /// Adds a complete group to the listing. A group with neither image nor label is not a sample.
    fn close(&mut self, path: &Path, group: Group) -> Result<(), ShardError> {
        let lost = group.refuse_lost_sample(path)?;
        if self.lost.is_none() {
            self.lost = lost;
        }
        let Group { key, image, label, others } = group;
        let Some((name, content)) = image else {
            others.iter().for_each(|other| self.leave_out(path, other));
            return Ok(());
        };
        others.iter().filter(|other| part_by_end(other).is_some()).for_each(|other| self.leave_out(path, other));
        if label.is_none() && self.unlabelled.is_none() {
            self.unlabelled = Some(String::from_utf8_lossy(&key).into_owned());
        }
        self.has_labels |= label.is_some();
        let no_memory = |source| ShardError::Io { path: path.to_owned(), source };
        make_room(&mut self.paths, name.len(), "the paths of its samples").map_err(no_memory)?;
        make_room(&mut self.samples, 1, "the list of its samples").map_err(no_memory)?;
        self.paths.extend_from_slice(&name);
        self.samples.push(ListedSample {
            path_end: self.paths.len() as u64,
            offset: content.start,
            length: content.end - content.start,
            label: label.unwrap_or(0),
        });
        Ok(())
    }

    fn leave_out(&mut self, path: &Path, member: &[u8]) {
        let shard = Path::new(path.file_name().unwrap_or_default());
        self.left_out.add(|| format!("{}:{}", shard.display(), String::from_utf8_lossy(member)));
    }
}

/// What a member is in its sample.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Image,
    Label,
}

impl Role {
    fn of(extension: &str) -> Option<Self> {
        match extension {
            LABEL_EXTENSION => Some(Self::Label),
            _ => IMAGE_EXTENSIONS.contains(&extension).then_some(Self::Image),
        }
    }
}

/// Returns whether a member is an image that no sample can have.
fn is_other_image(path: &[u8]) -> bool {
    split_name(path).is_some_and(|(_, extension)| OTHER_IMAGES.contains(&extension.as_str()))
}

/// Returns the key, role and extension of a member whose key would end at the last dot.
fn part_by_end(path: &[u8]) -> Option<(&[u8], Role, &[u8])> {
    let dot = path.iter().rposition(|&byte| byte == b'.')?;
    let (stem, extension) = (&path[..dot], &path[dot + 1..]);
    Some((stem, Role::of(&String::from_utf8_lossy(extension).to_ascii_lowercase())?, extension))
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
