//! Advice for the user when the agent cannot have an identity.

use super::IdentityError;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat, geteuid};
use std::io;
use std::path::Path;

impl IdentityError {
    /// Returns advice for whoever runs the agent. `directory` is the one where the identity should be.
    pub fn remedy(&self, directory: &Path) -> String {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => permission(directory),
            Self::Io { .. } => "name another folder by --state DIR, or by `state` in the configuration".into(),
            Self::InUse(_) => "stop that agent, or give this one another --state DIR or --name, or --ephemeral".into(),
            Self::Damaged { .. } => {
                "restore the file, or remove it: the drive then becomes a new one to its hosts".into()
            }
            Self::Random(_) => "start again once the system gives random numbers".into(),
        }
    }
}

/// Returns advice that gives this process's user the right to use the folder.
fn permission(directory: &Path) -> String {
    let (user, shown) = (user_name(), directory.display());
    // A folder that this user may not enter hides even the metadata of its contents.
    match directory.ancestors().find(|path| path.metadata().is_ok()) {
        Some(nearest) if nearest == directory => {
            format!("give the folder to the user that the agent runs as: sudo chown -R {user}: {shown}")
        }
        Some(nearest) if faccessat(AT_FDCWD, nearest, AccessFlags::X_OK, AtFlags::AT_EACCESS).is_err() => {
            let nearest = nearest.display();
            format!(
                "let the user that the agent runs as enter {nearest} (sudo chmod o+x {nearest}), or name another folder"
            )
        }
        _ => format!("make the folder for the user that the agent runs as: sudo install -d -o {user} -m 0700 {shown}"),
    }
}

/// Returns the user that this process runs as: the name from the machine's own list, or else the number.
pub(crate) fn user_name() -> String {
    // Not by getpwuid, for which a static program would load the C library's modules.
    let uid = geteuid().to_string();
    let list = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut users = list.lines().map(|line| line.split(':'));
    let name = users.find_map(|mut fields| {
        let name = fields.next()?;
        (fields.nth(1) == Some(uid.as_str())).then(|| name.to_owned())
    });
    name.unwrap_or(uid)
}
