//! Reading the members beside the images of shards, such as `.json`.

use super::listing::split_name;
use super::members::Members;
use super::{ShardError, shard_paths};
use crate::stamp::Stamp;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Most bytes of a member.
const BYTES_MAX: u64 = 1 << 20;

/// A member beside an image.
pub(crate) struct MemberBeside {
    /// Path of the shard.
    pub(crate) shard: PathBuf,
    /// The key, which the image's member has too.
    pub(crate) key: String,
    /// Name of the image's sample without the extension.
    pub(crate) sample: String,
    pub(crate) bytes: Vec<u8>,
}

/// Calls `take` with each member of this extension, in the order of the shards and their members.
///
/// # Errors
///
/// An error of `take`, or the reason why a shard cannot be read.
pub(crate) fn each_beside<E: From<ShardError>>(
    path: &Path,
    extension: &str,
    mut take: impl FnMut(MemberBeside) -> Result<(), E>,
) -> Result<(), E> {
    for shard in shard_paths(path)? {
        let failed = |source| ShardError::Io { path: shard.clone(), source };
        let file = File::open(&shard).map_err(failed)?;
        let mut members = Members::new(&file, Stamp::of(&file).map_err(failed)?.bytes);
        while let Some(member) = members.next().map_err(|error| ShardError::tar(&shard, error))? {
            let Some((key, _)) = split_name(&member.path).filter(|(_, found)| found == extension) else { continue };
            let key = String::from_utf8_lossy(key).into_owned();
            let content = member.content.map_err(|what| format!("a .{extension} that is {what}"));
            let content = content.and_then(|content| match content.end - content.start {
                0..=BYTES_MAX => Ok(content),
                bytes => Err(format!("a .{extension} of {bytes} bytes, more than the limit of {BYTES_MAX}")),
            });
            let problem = |problem| ShardError::Sample { path: shard.clone(), key: key.clone(), problem };
            let content = content.map_err(problem)?;
            let mut bytes = vec![0; (content.end - content.start) as usize];
            file.read_exact_at(&mut bytes, content.start).map_err(failed)?;
            let sample = format!("{}:{key}", Path::new(shard.file_name().unwrap_or_default()).display());
            take(MemberBeside { shard: shard.clone(), key, sample, bytes })?;
        }
    }
    Ok(())
}
