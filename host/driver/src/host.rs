//! The identity of this machine towards controllers.
//!
//! A controller knows a host by two things. Its list of allowed hosts contains the host NQN, which belongs to the
//! machine and is kept in a file, so that an owner of drives can name it once. The things that a host holds there
//! (result slots, programs in work) belong to NQN and host identifier together. So some ways to a drive need a host
//! identity of their own:
//!
//! - [`Host::identity`]: the machine's NQN with a new identifier, for one user-space run. Two runs on one machine are
//!   two hosts, and neither touches the slots or programs of the other.
//! - [`Host::kernel_identity`]: NQN and identifier as a fixed pair, as Linux requires for all its associations. Runs
//!   through the kernel keep apart by locks on its nodes.
//!
//! The NQN is nvme-cli's (`/etc/nvme/hostnqn`), else the one in `/var/lib/ddlp/hostnqn`, else the user's own, in
//! `$XDG_STATE_HOME/ddlp/hostnqn` or `~/.local/state/ddlp/hostnqn`. If there is none, one is made and kept in the first
//! of the latter two that can be written.
//!
//! An NQN is a name and not a secret: nothing here proves a host's identity to a controller.

use ddlp_nvme::text::check_nqn;
use nix::fcntl::OFlag;
use nix::unistd::{Uid, User, geteuid};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use uuid::fmt::Hyphenated;
use uuid::{Builder, Uuid};

/// Most bytes that are read of a file with an NQN.
const FILE_BYTES_MAX: u64 = 4096;
const NQN_FILE: &str = "etc/nvme/hostnqn";
const ID_FILE: &str = "etc/nvme/hostid";
const KEPT_FILE: &str = "var/lib/ddlp/hostnqn";
/// Path below the folder for a user's state.
const USER_FILE: &str = "ddlp/hostnqn";

/// Identity of a host in Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Host NQN, which a controller's list of allowed hosts names.
    pub nqn: String,
    /// Host identifier, not zero.
    pub id: [u8; 16],
}

/// Why a host has no identity.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A file that may hold the NQN cannot be read.
    #[error("cannot read the host NQN in {path}", path = .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// There is no NQN yet, and no place to keep one.
    #[error("cannot keep a host NQN for this machine in {path}", path = .0.display())]
    Keep(PathBuf, #[source] io::Error),
    /// The NQN or the identifier is invalid: which one, where it comes from, and the remedy.
    #[error("{0}")]
    Wrong(String),
    /// The system has no random numbers.
    #[error("the system has no random numbers for a host identity")]
    Random(#[source] getrandom::Error),
}

impl HostIdentity {
    /// Makes the identity of a UUID: `nqn.2014-08.org.nvmexpress:uuid:…`.
    pub fn from_uuid(id: [u8; 16]) -> Self {
        Self { nqn: format!("nqn.2014-08.org.nvmexpress:uuid:{}", Uuid::from_bytes(id)), id }
    }

    /// Returns the identifier as text, in five groups.
    pub fn id_text(&self) -> String {
        Uuid::from_bytes(self.id).to_string()
    }

    /// Makes a new identity (UUID version 4).
    pub fn random() -> Result<Self, HostError> {
        random_uuid().map(Self::from_uuid)
    }

    /// Makes the identity of an NQN. The identifier is the UUID at the end of the NQN, or `id` if that is given. Errors
    /// name `origin` as the source of both, and `remedy` as the remedy for a missing or wrong identifier.
    pub fn of(nqn: &str, id: Option<&str>, origin: &str, remedy: &str) -> Result<Self, HostError> {
        check(nqn, origin)?;
        let Some(text) = id.or_else(|| nqn.rsplit_once(":uuid:").map(|(_, uuid)| uuid)) else {
            return Err(HostError::Wrong(format!(
                "the host NQN of {origin}, {nqn}, does not end in a UUID, so a host identifier is needed: {remedy}"
            )));
        };
        match uuid(text) {
            Some(id) => Ok(Self { nqn: nqn.to_owned(), id }),
            None => Err(HostError::Wrong(format!(
                "the host identifier {text:?} of {origin} is not a UUID, or is zero: {remedy}"
            ))),
        }
    }
}

/// This machine, or a host that the user names.
#[derive(Clone, Debug)]
pub struct Host(NqnSource);

#[derive(Clone, Debug)]
enum NqnSource {
    /// Below `root` lie the machine's files, in `state` the user's, in `invoker` those of the user who became root by
    /// sudo.
    Files {
        root: PathBuf,
        state: Option<PathBuf>,
        invoker: Option<PathBuf>,
    },
    Named(String),
}

/// The NQN of a machine, and the file that holds it.
struct FoundNqn {
    nqn: String,
    file: PathBuf,
}

impl Host {
    /// Returns this machine, as the user of this process sees it.
    pub fn system() -> Self {
        // The XDG base directory specification says to ignore relative paths.
        let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = folder("XDG_STATE_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/state")));
        let sudo = std::env::var("SUDO_UID").ok().and_then(|id| id.parse().ok()).map(Uid::from_raw);
        let invoker = sudo.filter(|user| !user.is_root() && geteuid().is_root());
        let invoker = invoker.and_then(|user| User::from_uid(user).ok().flatten());
        let invoker = invoker.map(|user| user.dir.join(".local/state"));
        Self(NqnSource::Files { root: "/".into(), state, invoker })
    }

    /// Returns the machine whose `/etc` and `/var/lib` lie below `root`, for a user whose state is in `state`.
    pub fn at(root: impl Into<PathBuf>, state: Option<PathBuf>) -> Self {
        Self(NqnSource::Files { root: root.into(), state, invoker: None })
    }

    /// Returns a host with this NQN. Reads and keeps no file.
    pub fn named(nqn: &str) -> Result<Self, HostError> {
        check(nqn, "this run")?;
        Ok(Self(NqnSource::Named(nqn.to_owned())))
    }

    /// Returns the NQN without making one, or `None` if there is none or it cannot be read.
    pub fn known(&self) -> Option<String> {
        match &self.0 {
            NqnSource::Named(nqn) => Some(nqn.clone()),
            NqnSource::Files { root, state, .. } => find(root, state.as_deref()).ok().flatten().map(|found| found.nqn),
        }
    }

    /// Returns the NQN with a new identifier, for one association and those that replace it when it is lost. Makes and
    /// keeps an NQN if there is none yet.
    ///
    /// # Errors
    ///
    /// [`HostError::Keep`] if a new NQN cannot be kept; a run may then use [`HostIdentity::random`].
    pub fn identity(&self) -> Result<HostIdentity, HostError> {
        let nqn = match &self.0 {
            NqnSource::Named(nqn) => nqn.clone(),
            NqnSource::Files { root, state, invoker } => {
                let found = find_or_make(root, state.as_deref(), invoker.as_deref())?;
                check(&found.nqn, &found.file.display().to_string())?;
                found.nqn
            }
        };
        Ok(HostIdentity { nqn, id: random_uuid()? })
    }

    /// Returns the NQN with the identifier that always belongs to it. Makes and keeps an NQN if there is none yet.
    pub fn kernel_identity(&self) -> Result<HostIdentity, HostError> {
        let (root, state, invoker) = match &self.0 {
            NqnSource::Named(nqn) => return HostIdentity::of(nqn, None, "this run", "name an NQN that does"),
            NqnSource::Files { root, state, invoker } => (root, state, invoker),
        };
        let FoundNqn { nqn, file } = find_or_make(root, state.as_deref(), invoker.as_deref())?;
        let origin = file.display().to_string();
        if file != root.join(NQN_FILE) {
            return HostIdentity::of(&nqn, None, &origin, "remove the file, and another one is made");
        }
        let id_file = root.join(ID_FILE);
        let id = line(&id_file).map_err(|error| HostError::Read(id_file.clone(), error))?;
        HostIdentity::of(&nqn, id.as_deref(), &origin, &format!("put it into {}", id_file.display()))
    }
}

/// Returns the files that may keep an NQN, the preferred one first.
fn places(root: &Path, state: Option<&Path>) -> Vec<PathBuf> {
    std::iter::once(root.join(KEPT_FILE)).chain(state.map(|state| state.join(USER_FILE))).collect()
}

fn find(root: &Path, state: Option<&Path>) -> Result<Option<FoundNqn>, HostError> {
    for file in std::iter::once(root.join(NQN_FILE)).chain(places(root, state)) {
        match line(&file) {
            Ok(Some(nqn)) => return Ok(Some(FoundNqn { nqn, file })),
            Ok(None) => {}
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotADirectory) => {
                tracing::debug!(file = %file.display(), %error, "cannot look for a host NQN in this file");
            }
            Err(error) => return Err(HostError::Read(file, error)),
        }
    }
    Ok(None)
}

fn find_or_make(root: &Path, state: Option<&Path>, invoker: Option<&Path>) -> Result<FoundNqn, HostError> {
    if let Some(found) = find(root, state)? {
        return Ok(found);
    }
    // Take over the name that the machine has had for this user: a drive may already allow it.
    let known = invoker.and_then(|state| line(&state.join(USER_FILE)).ok().flatten());
    let known = known.filter(|nqn| HostIdentity::of(nqn, None, "", "").is_ok());
    let mut failed = None;
    for file in places(root, state) {
        let nqn = known.clone().map_or_else(|| HostIdentity::random().map(|new| new.nqn), Ok)?;
        match keep(&file, &nqn) {
            Ok(nqn) => return Ok(FoundNqn { nqn, file }),
            Err(error) => {
                tracing::debug!(file = %file.display(), %error, "a host NQN cannot be kept there");
                failed = Some(HostError::Keep(file, error));
            }
        }
    }
    Err(failed.expect("there is a place for it"))
}

/// Returns the first line of a file that is not blank, or `None` if there is no such line or no file. Refuses large
/// files, and files that are not regular ones: opening a pipe would wait, and a device might never end.
fn line(path: &Path) -> io::Result<Option<String>> {
    let read = || {
        let file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidData, "not a regular file"));
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    };
    match read() {
        Ok(text) => Ok(text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a new NQN, and returns the one that the file holds then: if several first runs race, one makes it for all of
/// them.
fn keep(file: &Path, nqn: &str) -> io::Result<String> {
    // All users of this machine are the same host, whatever root's umask is.
    let open_to_all = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    if let Some(folder) = file.parent().filter(|folder| !folder.exists()) {
        fs::create_dir_all(folder)?;
        open_to_all(folder, 0o755)?;
    }
    // A link makes the whole file appear at once, or not at all. The draft's name is unique.
    let draft = file.with_extension(nqn.rsplit(':').next().unwrap_or_default());
    let write = || {
        let mut made = File::create_new(&draft)?;
        made.write_all(format!("{nqn}\n").as_bytes())?;
        made.sync_all()?;
        open_to_all(&draft, 0o644)?;
        fs::hard_link(&draft, file)
    };
    let linked = write();
    // The draft may not exist.
    let _ = fs::remove_file(&draft);
    match linked {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            line(file)?.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "the file exists but is empty: remove it"))
        }
        linked => linked.map(|()| nqn.to_owned()),
    }
}

/// Checks a host NQN. A comma is refused because the kernel separates its options by commas.
fn check(nqn: &str, origin: &str) -> Result<(), HostError> {
    let wrong = |why: String| Err(HostError::Wrong(format!("the host NQN of {origin}, {nqn:?}, {why}")));
    match check_nqn(nqn) {
        Err(error) => wrong(format!("is not a valid NQN: {error}")),
        Ok(()) => match nqn.chars().find(|c| *c == ',' || c.is_whitespace() || c.is_control()) {
            Some(c) => wrong(format!("contains {c:?}, which an NQN cannot contain")),
            None => Ok(()),
        },
    }
}

fn random_uuid() -> Result<[u8; 16], HostError> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(HostError::Random)?;
    Ok(Builder::from_random_bytes(id).into_uuid().into_bytes())
}

/// Parses a UUID of 36 characters that is not zero.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let found = Uuid::try_parse(text).ok().filter(|found| text.len() == Hyphenated::LENGTH && !found.is_nil());
    found.map(Uuid::into_bytes)
}

#[cfg(test)]
mod tests;
