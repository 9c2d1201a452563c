//! Who this machine is to controllers.
//!
//! A controller knows a host by two things. Its list of allowed hosts names the host NQN: that is the machine's, kept in a file, so
//! that an owner of drives can name it once. What a host holds there (result slots, programs in work) belongs to NQN and host
//! identifier together. So each way to a drive is a host of its own where it has to be:
//!
//! - [`Host::identity`]: the machine's NQN with a new identifier, for one user-space run. Two runs on one machine are two hosts, and
//!   neither touches what the other has.
//! - [`Host::kernel_identity`]: NQN and identifier as a fixed pair, which is what Linux insists on for all its associations. The
//!   runs that go through the kernel keep apart by locks on its nodes.
//!
//! The NQN is that of nvme-cli (`/etc/nvme/hostnqn`), else the one in `/var/lib/ddlp/hostnqn`, else the user's own, in
//! `$XDG_STATE_HOME/ddlp/hostnqn` or `~/.local/state/ddlp/hostnqn`. Where there is none, one is made and kept in the first of the
//! latter two that can be written.
//!
//! An NQN is a name and no secret: nothing here proves to a controller that a host is who it says.

use ddlp_nvme::text::check_nqn;
use nix::fcntl::OFlag;
use nix::unistd::{Uid, User, geteuid};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use uuid::fmt::Hyphenated;
use uuid::{Builder, Uuid};

/// Most that is read of a file with an NQN.
const FILE_BYTES_MAX: u64 = 4096;
const NQN_FILE: &str = "etc/nvme/hostnqn";
const ID_FILE: &str = "etc/nvme/hostid";
const KEPT_FILE: &str = "var/lib/ddlp/hostnqn";
/// Below the folder for a user's state.
const USER_FILE: &str = "ddlp/hostnqn";

/// A host as it names itself in Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Host NQN: what a controller's list of allowed hosts names.
    pub nqn: String,
    /// Host identifier, not zero.
    pub id: [u8; 16],
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file that may have it cannot be read.
    #[error("cannot read the host NQN in {path}: {1}", path = .0.display())]
    Read(PathBuf, io::Error),
    /// There is none yet, and nowhere to keep one.
    #[error("cannot keep a host NQN for this machine in {path}: {1}", path = .0.display())]
    Keep(PathBuf, io::Error),
    /// What there is is none: which, where, and what to do.
    #[error("{0}")]
    Wrong(String),
    /// The system has no random numbers.
    #[error("no random host identity: {0}")]
    Random(getrandom::Error),
}

impl HostIdentity {
    /// The identity of a UUID: `nqn.2014-08.org.nvmexpress:uuid:…`.
    pub fn from_uuid(id: [u8; 16]) -> Self {
        Self { nqn: format!("nqn.2014-08.org.nvmexpress:uuid:{}", Uuid::from_bytes(id)), id }
    }

    /// The identifier as text, in five groups.
    pub fn id_text(&self) -> String {
        Uuid::from_bytes(self.id).to_string()
    }

    /// A new identity (UUID version 4).
    pub fn random() -> Result<Self, HostError> {
        random_uuid().map(Self::from_uuid)
    }

    /// The identity of an NQN, and of an identifier (UUID) where the NQN does not end in one. `origin` says in errors where they
    /// come from, `remedy` what to do about a missing or wrong identifier.
    pub fn of(nqn: &str, id: Option<&str>, origin: &str, remedy: &str) -> Result<Self, HostError> {
        check(nqn, origin)?;
        let Some(text) = id.or_else(|| nqn.rsplit_once(":uuid:").map(|(_, uuid)| uuid)) else {
            return Err(HostError::Wrong(format!(
                "the host NQN of {origin}, {nqn}, ends in no UUID, so a host identifier is needed: {remedy}"
            )));
        };
        match uuid(text) {
            Some(id) => Ok(Self { nqn: nqn.to_owned(), id }),
            None => Err(HostError::Wrong(format!(
                "the host identifier {text:?} of {origin} is no UUID, or is zero: {remedy}"
            ))),
        }
    }
}

/// This machine, or whoever a person says that it is.
#[derive(Clone, Debug)]
pub struct Host(Source);

#[derive(Clone, Debug)]
enum Source {
    /// `invoker`: the state of the user who became root for this command (sudo).
    Files {
        root: PathBuf,
        state: Option<PathBuf>,
        invoker: Option<PathBuf>,
    },
    Named(String),
}

/// The NQN of a machine, and where it was found.
struct Found {
    nqn: String,
    file: PathBuf,
}

impl Host {
    /// This machine, to the user whom the process runs as.
    pub fn system() -> Self {
        // The XDG base directory specification has relative paths ignored.
        let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = folder("XDG_STATE_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/state")));
        let sudo = std::env::var("SUDO_UID").ok().and_then(|id| id.parse().ok()).map(Uid::from_raw);
        let invoker = sudo.filter(|user| !user.is_root() && geteuid().is_root());
        let invoker = invoker.and_then(|user| User::from_uid(user).ok().flatten());
        let invoker = invoker.map(|user| user.dir.join(".local/state"));
        Self(Source::Files { root: "/".into(), state, invoker })
    }

    /// The machine whose `/etc` and `/var/lib` lie below `root`, to a user whose state is in `state`.
    pub fn at(root: impl Into<PathBuf>, state: Option<PathBuf>) -> Self {
        Self(Source::Files { root: root.into(), state, invoker: None })
    }

    /// A host of this NQN; nothing is read or kept.
    pub fn named(nqn: &str) -> Result<Self, HostError> {
        check(nqn, "this run")?;
        Ok(Self(Source::Named(nqn.to_owned())))
    }

    /// The NQN, without making one; `None` as well when it cannot be read.
    pub fn known(&self) -> Option<String> {
        match &self.0 {
            Source::Named(nqn) => Some(nqn.clone()),
            Source::Files { root, state, .. } => find(root, state.as_deref()).ok().flatten().map(|found| found.nqn),
        }
    }

    /// The NQN, made and kept if there is none yet, with a new identifier: for one association and those that follow it when it is
    /// lost.
    ///
    /// # Errors
    /// [`HostError::Keep`] when a new NQN cannot be kept; a run may then go by [`HostIdentity::random`].
    pub fn identity(&self) -> Result<HostIdentity, HostError> {
        let nqn = match &self.0 {
            Source::Named(nqn) => nqn.clone(),
            Source::Files { root, state, invoker } => {
                let found = find_or_make(root, state.as_deref(), invoker.as_deref())?;
                check(&found.nqn, &found.file.display().to_string())?;
                found.nqn
            }
        };
        Ok(HostIdentity { nqn, id: random_uuid()? })
    }

    /// The NQN, made and kept if there is none yet, with the identifier that always goes with it.
    pub fn kernel_identity(&self) -> Result<HostIdentity, HostError> {
        let (root, state, invoker) = match &self.0 {
            Source::Named(nqn) => return HostIdentity::of(nqn, None, "this run", "name one that does"),
            Source::Files { root, state, invoker } => (root, state, invoker),
        };
        let Found { nqn, file } = find_or_make(root, state.as_deref(), invoker.as_deref())?;
        let origin = file.display().to_string();
        if file != root.join(NQN_FILE) {
            return HostIdentity::of(&nqn, None, &origin, "remove the file, and another one is made");
        }
        let id_file = root.join(ID_FILE);
        let id = line(&id_file).map_err(|error| HostError::Read(id_file.clone(), error))?;
        HostIdentity::of(&nqn, id.as_deref(), &origin, &format!("put it into {}", id_file.display()))
    }
}

/// Where an NQN may be kept, the better place first.
fn places(root: &Path, state: Option<&Path>) -> Vec<PathBuf> {
    std::iter::once(root.join(KEPT_FILE)).chain(state.map(|state| state.join(USER_FILE))).collect()
}

fn find(root: &Path, state: Option<&Path>) -> Result<Option<Found>, HostError> {
    for file in std::iter::once(root.join(NQN_FILE)).chain(places(root, state)) {
        match line(&file) {
            Ok(Some(nqn)) => return Ok(Some(Found { nqn, file })),
            Ok(None) => {}
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotADirectory) => {
                tracing::debug!(file = %file.display(), %error, "a host NQN there would not be seen");
            }
            Err(error) => return Err(HostError::Read(file, error)),
        }
    }
    Ok(None)
}

fn find_or_make(root: &Path, state: Option<&Path>, invoker: Option<&Path>) -> Result<Found, HostError> {
    if let Some(found) = find(root, state)? {
        return Ok(found);
    }
    // The machine goes on by the name that it has had for the user, which a drive may allow already.
    let known = invoker.and_then(|state| line(&state.join(USER_FILE)).ok().flatten());
    let known = known.filter(|nqn| HostIdentity::of(nqn, None, "", "").is_ok());
    let mut failed = None;
    for file in places(root, state) {
        let nqn = known.clone().map_or_else(|| HostIdentity::random().map(|new| new.nqn), Ok)?;
        match keep(&file, &nqn) {
            Ok(nqn) => return Ok(Found { nqn, file }),
            Err(error) => {
                tracing::debug!(file = %file.display(), %error, "a host NQN cannot be kept there");
                failed = Some(HostError::Keep(file, error));
            }
        }
    }
    Err(failed.expect("there is a place for it"))
}

/// The first line of a file that has something in it; `None` when there is none, or no file. What is no regular file, or a large one,
/// holds no NQN: opening a pipe would wait, and a device might never end.
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

/// Writes a new NQN, and returns the one that is there then: of several first runs at once, one makes it for all.
fn keep(file: &Path, nqn: &str) -> io::Result<String> {
    // Every user of this machine is the same host, whatever root's umask is.
    let open_to_all = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    if let Some(folder) = file.parent().filter(|folder| !folder.exists()) {
        fs::create_dir_all(folder)?;
        open_to_all(folder, 0o755)?;
    }
    // A file with something in it appears at once, by a link, or not at all. Nobody else has this draft's name.
    let draft = file.with_extension(nqn.rsplit(':').next().unwrap_or_default());
    let write = || {
        let mut made = File::create_new(&draft)?;
        made.write_all(format!("{nqn}\n").as_bytes())?;
        made.sync_all()?;
        open_to_all(&draft, 0o644)?;
        fs::hard_link(&draft, file)
    };
    let linked = write();
    // It may not be there at all.
    let _ = fs::remove_file(&draft);
    match linked {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            line(file)?.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "the file is there, and empty: remove it"))
        }
        linked => linked.map(|()| nqn.to_owned()),
    }
}

/// Checks a host NQN. The kernel takes it in a list that commas divide.
fn check(nqn: &str, origin: &str) -> Result<(), HostError> {
    let wrong = |why: String| Err(HostError::Wrong(format!("the host NQN of {origin}, {nqn:?}, {why}")));
    match check_nqn(nqn) {
        Err(error) => wrong(format!("is none: {error}")),
        Ok(()) => match nqn.chars().find(|c| *c == ',' || c.is_whitespace() || c.is_control()) {
            Some(c) => wrong(format!("has {c:?} in it, which an NQN cannot have")),
            None => Ok(()),
        },
    }
}

fn random_uuid() -> Result<[u8; 16], HostError> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(HostError::Random)?;
    Ok(Builder::from_random_bytes(id).into_uuid().into_bytes())
}

/// A UUID of 36 characters, not zero.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let found = Uuid::try_parse(text).ok().filter(|found| text.len() == Hyphenated::LENGTH && !found.is_nil());
    found.map(Uuid::into_bytes)
}

#[cfg(test)]
mod tests;
