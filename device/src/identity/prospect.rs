//! A look at the folder of an identity that changes nothing there.

use super::{AgentIdentity, FILE, IdentityError, LOCK, make, read};
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

/// State of a folder as [`super::LockedIdentity::persistent`] would find it.
#[derive(Debug)]
pub struct Prospect {
    /// The identity in the folder; an agent would make one if it is `None`.
    pub identity: Option<AgentIdentity>,
    /// Whether a running agent uses the folder.
    pub in_use: bool,
}

impl Prospect {
    /// Tries what [`super::LockedIdentity::persistent`] does, and leaves everything as it was.
    pub fn of(directory: &Path) -> Result<Self, IdentityError> {
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && matches!(path.try_exists(), Ok(false));
        let missing: Vec<&Path> = directory.ancestors().take_while(is_missing).collect();
        if !missing.is_empty() {
            let made = make(directory);
            // Fails, and keeps the folder, if somebody else has put something there meanwhile.
            missing.into_iter().for_each(|path| drop(std::fs::remove_dir(path)));
            return made.map(|()| Self { identity: None, in_use: false });
        }
        let lock = directory.join(LOCK);
        let in_use = match File::options().read(true).write(true).open(&lock) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // A shared lock, held for a moment: the exclusive lock of a running agent is untouched.
            opened => match opened.map_err(IdentityError::io("open", &lock))?.try_lock_shared() {
                Ok(()) => Some(false),
                Err(TryLockError::WouldBlock) => Some(true),
                Err(TryLockError::Error(source)) => return Err(IdentityError::io("lock", &lock)(source)),
            },
        };
        let identity = read(&directory.join(FILE))?;
        if in_use.is_none() || identity.is_none() {
            let trial = directory.join(format!(".ddlp-doctor-{}", std::process::id()));
            File::create_new(&trial)
                .and_then(|_| std::fs::remove_file(&trial))
                .map_err(IdentityError::io("make a file in", directory))?;
        }
        Ok(Self { identity, in_use: in_use == Some(true) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LockedIdentity, user_name};
    use super::*;
    use nix::unistd::{Uid, setfsuid};
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_prospect_leaves_everything_as_it_was() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("a/b");
        let new = Prospect::of(&directory).unwrap();
        assert!(new.identity.is_none() && !new.in_use && names(root.path()).is_empty());
        std::fs::create_dir_all(&directory).unwrap();
        assert!(Prospect::of(&directory).unwrap().identity.is_none() && names(&directory).is_empty());
        let held = LockedIdentity::persistent(&directory).unwrap();
        let found = Prospect::of(&directory).unwrap();
        assert!(found.in_use && found.identity.as_ref() == Some(&held.identity));
        assert!(
            matches!(LockedIdentity::persistent(&directory), Err(IdentityError::InUse(_))),
            "the lock is still its"
        );
        let identity = held.identity.clone();
        drop(held);
        assert!(!Prospect::of(&directory).unwrap().in_use);
        assert_eq!(LockedIdentity::persistent(&directory).unwrap().identity, identity, "and free once it is gone");
        assert_eq!(names(&directory), [FILE, LOCK]);
    }

    #[test]
    fn a_prospect_names_the_missing_right_and_the_remedy() {
        let root = tempfile::tempdir().unwrap();
        let open = |mode| std::fs::set_permissions(root.path(), Permissions::from_mode(mode)).unwrap();
        let denied = |directory: &Path| {
            // The superuser may do everything, so a thread gives up that right for itself.
            let attempt = || {
                setfsuid(Uid::from_raw(65534));
                Prospect::of(directory).map_err(|error| (error.to_string(), error.remedy(directory))).unwrap_err()
            };
            std::thread::scope(|scope| scope.spawn(attempt).join().unwrap())
        };
        let (inside, shown) = (root.path().join("identity"), root.path().display());
        open(0o555);
        let (error, remedy) = denied(&inside);
        assert!(error.contains(&format!("cannot make or enter {shown}/identity")), "{error}");
        assert!(remedy.contains("sudo install -d -o ") && remedy.contains(&format!("{shown}/identity")), "{remedy}");
        let (error, remedy) = denied(root.path());
        assert!(error.contains("make a file in"), "{error}");
        assert!(
            remedy.contains("sudo chown -R ") && remedy.ends_with(&format!("{}: {shown}", user_name())),
            "{remedy}"
        );
        open(0o000);
        let (error, _) = denied(root.path());
        assert!(error.contains(&format!("cannot open {shown}/lock")), "{error}");
        assert!(denied(&inside).1.contains(&format!("sudo chmod o+x {shown})")));
        open(0o700);
        let error = Prospect::of(Path::new("/proc/nope/identity")).unwrap_err();
        assert!(error.remedy(Path::new("/proc/nope/identity")).contains("another folder"), "{error}");
    }
}
