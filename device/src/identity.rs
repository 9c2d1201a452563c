//! Identity of an agent: generated once, kept over restarts, never derived from the dataset.
//!
//! Linux removes a namespace whose identifiers change over a reconnect, and ignores the namespaces of a second agent
//! with the same identifiers. So the identity lives in a state folder that one agent at a time may use.
//!
//! `prospect`: a look at the folder that changes nothing. `remedy`: advice when the agent cannot have an identity.

mod prospect;
mod remedy;

pub use prospect::Prospect;
pub(crate) use remedy::user_name;

use crate::{lock, replace};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use uuid::{Builder, Uuid};

/// Number of namespaces that carry identifiers.
pub const NAMESPACES: usize = 3;
/// Longest NQN in bytes (NVMe Base, "NVMe Qualified Names").
pub const NQN_BYTES_MAX: usize = 223;
/// Largest identity file that is read.
const FILE_BYTES_MAX: u64 = 16 * 1024;

const FILE: &str = "identity.toml";
const LOCK: &str = "lock";

/// Identifiers of one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceIdentity {
    /// Namespace globally unique identifier.
    pub nguid: [u8; 16],
    /// Namespace UUID.
    pub uuid: [u8; 16],
}

/// Identifiers of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentIdentity {
    /// NQN of the subsystem.
    pub nqn: String,
    /// Serial number, at most 20 ASCII characters.
    pub serial: String,
    /// Identifiers of namespaces 1 to 3.
    pub namespaces: [NamespaceIdentity; NAMESPACES],
}

/// An identity, and the lock that keeps other agents from using it.
#[derive(Debug)]
pub struct LockedIdentity {
    /// The identity.
    pub identity: AgentIdentity,
    _lock: Option<File>,
}

/// Reason why the agent cannot have an identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The folder or a file in it cannot be used.
    #[error("cannot {what} {path} for the agent's identity")]
    Io {
        /// The attempted action, as a verb.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another agent holds the identity.
    #[error("another running agent has the identity in {0}")]
    InUse(PathBuf),
    /// The file is not an identity.
    #[error("{path} is not an identity: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The system has no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
}

impl IdentityError {
    fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredIdentity {
    nqn: String,
    serial: String,
    namespaces: Vec<StoredNamespace>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredNamespace {
    nguid: String,
    uuid: String,
}

impl AgentIdentity {
    /// Makes a new identity from random numbers.
    pub fn generate() -> Result<Self, IdentityError> {
        let subsystem = random_uuid()?;
        let serial: [u8; 8] = random()?;
        let mut namespaces = [NamespaceIdentity { nguid: [0; 16], uuid: [0; 16] }; NAMESPACES];
        for namespace in &mut namespaces {
            *namespace = NamespaceIdentity { nguid: random()?, uuid: random_uuid()? };
        }
        Ok(Self {
            nqn: format!("nqn.2014-08.org.nvmexpress:uuid:{}", Uuid::from_bytes(subsystem)),
            serial: hex(&serial),
            namespaces,
        })
    }

    fn to_stored(&self) -> StoredIdentity {
        let namespaces = self.namespaces.iter();
        StoredIdentity {
            nqn: self.nqn.clone(),
            serial: self.serial.clone(),
            namespaces: namespaces
                .map(|ns| StoredNamespace { nguid: hex(&ns.nguid), uuid: Uuid::from_bytes(ns.uuid).to_string() })
                .collect(),
        }
    }

    fn from_stored(stored: StoredIdentity) -> Result<Self, String> {
        if !stored.nqn.starts_with("nqn.") || stored.nqn.len() > NQN_BYTES_MAX {
            return Err(format!("`{}` is not an NQN of at most {NQN_BYTES_MAX} bytes", stored.nqn));
        }
        let printable = |text: &str| text.bytes().all(|byte| (0x20..0x7F).contains(&byte));
        if stored.serial.is_empty() || stored.serial.len() > 20 || !printable(&stored.serial) {
            return Err(format!("`{}` is not a serial number of 1 to 20 ASCII characters", stored.serial));
        }
        let found = stored.namespaces.len();
        let parsed: Vec<_> = stored
            .namespaces
            .iter()
            .map(|ns| {
                Some(NamespaceIdentity { nguid: unhex(&ns.nguid)?, uuid: Uuid::try_parse(&ns.uuid).ok()?.into_bytes() })
            })
            .collect::<Option<_>>()
            .ok_or("an NGUID or UUID is not 16 bytes in hexadecimal")?;
        let namespaces = parsed.try_into().map_err(|_| format!("{found} namespaces, {NAMESPACES} expected"))?;
        Ok(Self { nqn: stored.nqn, serial: stored.serial, namespaces })
    }
}

impl LockedIdentity {
    /// Makes an identity that lives as long as the process, for agents that a loader starts.
    pub fn ephemeral() -> Result<Self, IdentityError> {
        Ok(Self { identity: AgentIdentity::generate()?, _lock: None })
    }

    /// Returns the identity in a folder, and holds the folder's lock. Generates an identity if there is none yet. Waits
    /// shortly for an agent that is just ending.
    pub fn persistent(directory: &Path) -> Result<Self, IdentityError> {
        make(directory)?;
        let lock_path = directory.join(LOCK);
        let mut options = File::options();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock_file = options.open(&lock_path).map_err(IdentityError::io("open", &lock_path))?;
        match lock::lock(&lock_file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(IdentityError::InUse(directory.to_owned())),
            Err(TryLockError::Error(source)) => return Err(IdentityError::io("lock", &lock_path)(source)),
        }
        let path = directory.join(FILE);
        let identity = match read(&path)? {
            Some(identity) => identity,
            None => {
                let identity = AgentIdentity::generate()?;
                store(directory, &path, &identity).map_err(IdentityError::io("write", &path))?;
                identity
            }
        };
        Ok(Self { identity, _lock: Some(lock_file) })
    }
}

fn make(directory: &Path) -> Result<(), IdentityError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(IdentityError::io("make or enter", directory))
}

fn read(path: &Path) -> Result<Option<AgentIdentity>, IdentityError> {
    let failed = |source| IdentityError::io("read", path)(source);
    let damaged = |what: String| IdentityError::Damaged { path: path.to_owned(), what };
    let metadata = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed)?,
    };
    if metadata.len() > FILE_BYTES_MAX {
        return Err(damaged(format!("it has {} bytes", metadata.len())));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let stored: StoredIdentity = toml::from_str(&text).map_err(|error| damaged(error.message().to_owned()))?;
    AgentIdentity::from_stored(stored).map(Some).map_err(damaged)
}

fn store(directory: &Path, path: &Path, identity: &AgentIdentity) -> io::Result<()> {
    let text = toml::to_string(&identity.to_stored()).map_err(io::Error::other)?;
    replace::file(path, text.as_bytes(), 0o600)?;
    File::open(directory)?.sync_all()
}

fn random<const N: usize>() -> Result<[u8; N], IdentityError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(IdentityError::Random)?;
    Ok(bytes)
}

/// Makes a random UUID: version 4, variant 1 (RFC 9562).
fn random_uuid() -> Result<[u8; 16], IdentityError> {
    Ok(Builder::from_random_bytes(random()?).into_uuid().into_bytes())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    Some(u128::from_str_radix(text, 16).ok()?.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_a_restart_and_has_one_holder() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("a/b");
        let first = LockedIdentity::persistent(&directory).unwrap();
        assert!(matches!(LockedIdentity::persistent(&directory), Err(IdentityError::InUse(_))));
        let identity = first.identity.clone();
        drop(first);
        assert_eq!(LockedIdentity::persistent(&directory).unwrap().identity, identity);
        assert!(!directory.join(".identity.toml.partial").exists());
    }

    #[test]
    fn two_identities_differ_in_every_part() {
        let (a, b) = (AgentIdentity::generate().unwrap(), AgentIdentity::generate().unwrap());
        assert_ne!(a.nqn, b.nqn);
        assert_ne!(a.serial, b.serial);
        let mut ids: Vec<_> = [&a, &b].iter().flat_map(|id| id.namespaces).flat_map(|ns| [ns.nguid, ns.uuid]).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 12);
        assert!(a.serial.len() <= 20);
    }

    #[test]
    fn a_damaged_file_is_named_and_kept() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(FILE);
        let good = toml::to_string(&AgentIdentity::generate().unwrap().to_stored()).unwrap();
        let serial = good.lines().find(|line| line.starts_with("serial")).unwrap();
        let damaged = [
            "nqn = 3".to_owned(),
            good.replacen("nqn.", "nqm.", 1),
            good.replace(serial, "serial = \"123456789012345678901\""),
            good.replacen("[[namespaces]]", "[[other]]", 1),
            good.rsplit_once("[[namespaces]]").unwrap().0.to_owned(),
            good.replacen("nguid = \"", "nguid = \"x", 1),
        ];
        for text in damaged {
            std::fs::write(&path, &text).unwrap();
            let error = LockedIdentity::persistent(root.path()).unwrap_err();
            assert!(matches!(error, IdentityError::Damaged { .. }), "{text}: {error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        std::fs::write(&path, good).unwrap();
        LockedIdentity::persistent(root.path()).unwrap();
    }
}
