//! The drive's identity: whether the agent could have the one that is kept, or make one.

use super::finding::Finding;
use crate::agent::settings::IdentitySource;
use crate::identity::{IdentityError, Prospect, user_name};
use serde::Serialize;
use std::path::PathBuf;

const SUBJECT: &str = "identity";

/// Where the identity is kept, and what is there.
#[derive(Clone, Debug, Serialize)]
pub struct Kept {
    /// Its folder.
    pub directory: PathBuf,
    /// The drive's NQN, if there is one already.
    pub nqn: Option<String>,
    /// Whether a running agent has it.
    pub in_use: bool,
    /// Why the agent could not have it.
    pub obstacle: Option<String>,
    #[serde(skip)]
    remedy: Option<String>,
}

impl Kept {
    /// Tries what the agent would do, and leaves nothing. `None` for an agent that keeps no identity.
    pub fn read(source: &IdentitySource) -> Option<Self> {
        let IdentitySource::Directory(directory) = source else { return None };
        let kept = Self { directory: directory.clone(), nqn: None, in_use: false, obstacle: None, remedy: None };
        Some(match Prospect::of(directory) {
            Ok(found) => Self { nqn: found.identity.map(|identity| identity.nqn), in_use: found.in_use, ..kept },
            Err(error) => {
                let remedy = Some(error.remedy(directory));
                // «cannot open …» needs somebody who cannot.
                let who = match &error {
                    IdentityError::Io { .. } => format!("the user {} ", user_name()),
                    _ => String::new(),
                };
                Self { obstacle: Some(format!("{who}{:#}", anyhow::Error::from(error))), remedy, ..kept }
            }
        })
    }

    /// What there is to say.
    pub fn findings(&self) -> Vec<Finding> {
        if let Some(obstacle) = &self.obstacle {
            return vec![Finding::failure(SUBJECT, obstacle, self.remedy.clone().unwrap_or_default())];
        }
        let directory = self.directory.display();
        let text = match (&self.nqn, self.in_use) {
            (Some(nqn), false) => format!("{nqn}, kept in {directory}"),
            (Some(nqn), true) => format!("{nqn}, kept in {directory}: a running agent has it"),
            (None, false) => format!("none yet: the first start makes one in {directory}"),
            (None, true) => format!("a running agent is making one in {directory}"),
        };
        vec![Finding::fine(SUBJECT, text)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use crate::identity::Held;
    use std::path::Path;

    fn finding(directory: &Path) -> Finding {
        Kept::read(&IdentitySource::Directory(directory.into())).unwrap().findings().remove(0)
    }

    #[test]
    fn an_identity_is_told_wherever_it_comes_from() {
        assert!(Kept::read(&IdentitySource::Ephemeral).is_none());
        let root = tempfile::tempdir().unwrap();
        assert!(finding(root.path()).text.starts_with("none yet"));
        let held = Held::persistent(root.path()).unwrap();
        let running = finding(root.path());
        assert_eq!(running.level, Level::Fine);
        assert!(running.text.starts_with(&held.identity.nqn) && running.text.ends_with("a running agent has it"));
        drop(held);
        assert!(finding(root.path()).text.ends_with(root.path().to_str().unwrap()));
    }

    #[test]
    fn where_there_can_be_none_the_agent_cannot_serve() {
        let finding = finding(Path::new("/proc/nope/identity"));
        assert_eq!(finding.level, Level::Failure);
        let whole = format!("the user {} cannot make or enter /proc/nope/identity", user_name());
        assert!(finding.text.starts_with(&whole), "{}", finding.text);
        assert!(finding.advice.unwrap().contains("`state`"));
    }
}
