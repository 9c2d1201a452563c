//! The servers of this machine: sockets in a folder that only one user can enter. The folder lists the programs of that
//! user that have figures, so that another program finds them without knowing an address.

use crate::Figures;
use crate::answering::Answering;
use crate::scrape::{self, Scrape};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names that a server tries: killed processes may have left theirs behind.
const NAMES_MAX: usize = 64;

/// Number of the next server of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A server of figures for programs of the same user on this machine. Dropping it ends it, and removes its socket.
#[derive(Debug)]
pub struct LocalServer {
    path: PathBuf,
    answering: Answering,
}

impl LocalServer {
    /// Serves figures at a socket of its own, `ddlp/PID-NUMBER` in `$XDG_RUNTIME_DIR`, or `/tmp/ddlp-UID/PID-NUMBER`.
    ///
    /// # Errors
    ///
    /// The folder cannot be made, or is not this user's alone; the system refuses a socket or a thread.
    pub fn start(figures: impl Figures) -> io::Result<Self> {
        Self::start_in(&folder()?, figures)
    }

    fn start_in(folder: &Path, figures: impl Figures) -> io::Result<Self> {
        make_own(folder)?;
        let (listener, path) = bind(folder)?;
        let socket = listener.try_clone()?.into();
        let answering = Answering::start(socket, move || Ok(listener.accept()?.0), figures);
        let unused = |_: &io::Error| drop(fs::remove_file(&path));
        Ok(Self { answering: answering.inspect_err(unused)?, path })
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        if !self.answering.is_forked() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A socket at which a program of this user has figures, or had.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalSocket {
    /// The program's process.
    pub process: u32,
    path: PathBuf,
}

impl LocalSocket {
    /// Reads the figures. Removes the socket and returns `None` if its program was killed.
    ///
    /// # Errors
    ///
    /// The program does not answer.
    pub fn read(&self) -> io::Result<Option<Scrape>> {
        match UnixStream::connect(&self.path) {
            Ok(server) => scrape::read(server).map(Some),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let _ = fs::remove_file(&self.path);
                Ok(None)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the sockets of this user's programs on this machine, ordered by process.
///
/// # Errors
///
/// The folder cannot be read, or is not this user's alone.
pub fn local_sockets() -> io::Result<Vec<LocalSocket>> {
    sockets_in(&folder()?)
}

fn sockets_in(folder: &Path) -> io::Result<Vec<LocalSocket>> {
    if !folder.try_exists()? {
        return Ok(Vec::new());
    }
    check_own(folder)?;
    let mut sockets = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let process = path.file_name().and_then(|name| name.to_str()?.split_once('-')?.0.parse().ok());
        sockets.extend(process.map(|process| LocalSocket { process, path }));
    }
    sockets.sort();
    Ok(sockets)
}

/// Returns the folder of this user's sockets.
fn folder() -> io::Result<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
    Ok(match runtime {
        Some(folder) => folder.join("ddlp"),
        None => PathBuf::from(format!("/tmp/ddlp-{}", own_user()?)),
    })
}

/// Returns the user as whom this process makes files.
fn own_user() -> io::Result<u32> {
    Ok(fs::metadata("/proc/self")?.uid())
}

/// Makes the folder if it is missing, and checks it.
fn make_own(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => check_own(folder),
    }
}

/// Checks that nobody else can put a socket into the folder, or reach one in it.
fn check_own(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    if found.is_dir() && found.uid() == own_user()? && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let message =
        format!("{} is not a folder of this user alone: remove it, or change its mode to 700", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

fn bind(folder: &Path) -> io::Result<(UnixListener, PathBuf)> {
    let mut refused = None;
    for _ in 0..NAMES_MAX {
        let path = folder.join(format!("{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        match UnixListener::bind(&path) {
            Ok(listener) => return Ok((listener, path)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => refused = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(refused.expect("several names were tried"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Counted;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ddlp-metrics-{name}-{}", process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn sockets(&self) -> Vec<LocalSocket> {
            sockets_in(&self.0).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn served(folder: &Folder) -> LocalServer {
        LocalServer::start_in(&folder.0, Arc::<Counted>::default()).unwrap()
    }

    #[test]
    fn servers_are_found_as_long_as_they_live() {
        let folder = Folder::new("live");
        assert_eq!(folder.sockets(), []);
        let (first, second) = (served(&folder), served(&folder));
        let sockets = folder.sockets();
        assert_eq!(sockets.iter().map(|socket| socket.process).collect::<Vec<_>>(), [process::id(); 2]);
        for asked in 0..2 {
            for socket in &sockets {
                let scrape = socket.read().unwrap().unwrap();
                assert_eq!(scrape.value("asked"), Some(f64::from(asked)));
                assert_eq!(scrape.by_prong("rate").collect::<Vec<_>>(), [("cpu", 1.5), ("csd \"1\"", 2.0)]);
            }
        }
        drop(first);
        assert_eq!(folder.sockets().len(), 1);
        drop(second);
        assert_eq!(folder.sockets(), []);
        assert!(sockets.iter().all(|socket| socket.read().unwrap().is_none()));
    }

    #[test]
    fn the_socket_of_a_killed_program_is_removed() {
        let folder = Folder::new("killed");
        make_own(&folder.0).unwrap();
        drop(UnixListener::bind(folder.0.join("77-0")).unwrap());
        fs::write(folder.0.join("something"), "else").unwrap();
        let sockets = folder.sockets();
        assert_eq!(sockets.iter().map(|socket| socket.process).collect::<Vec<_>>(), [77]);
        assert!(sockets[0].read().unwrap().is_none());
        assert_eq!(folder.sockets(), []);
        assert!(folder.0.join("something").exists());
    }

    #[test]
    fn a_name_that_is_taken_is_left_alone() {
        let folder = Folder::new("taken");
        make_own(&folder.0).unwrap();
        let next = NEXT.load(Ordering::Relaxed);
        let taken = |number: u64| folder.0.join(format!("{}-{}", process::id(), next + number));
        // Tests that run at the same time may take some of these numbers.
        (0..8).for_each(|number| drop(UnixListener::bind(taken(number)).unwrap()));
        let _server = served(&folder);
        assert!((0..8).all(|number| taken(number).exists()));
        assert_eq!(folder.sockets().iter().filter_map(|socket| socket.read().unwrap()).count(), 1);
    }

    #[test]
    fn a_folder_that_others_can_enter_is_refused() {
        let folder = Folder::new("open");
        make_own(&folder.0).unwrap();
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
        let refused = LocalServer::start_in(&folder.0, Arc::<Counted>::default()).unwrap_err();
        assert!(refused.to_string().contains("is not a folder of this user alone"), "{refused}");
        assert!(sockets_in(&folder.0).is_err());
    }
}
