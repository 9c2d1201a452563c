//! The drive's identity: whether the agent can use the stored one, or make one.

use super::finding::Finding;
use crate::agent::settings::IdentitySource;
use crate::identity::{IdentityError, Prospect, user_name};

const SUBJECT: &str = "identity";

/// Tries what the agent would do, and leaves no trace. Returns `None` for an agent that keeps no identity.
pub fn finding(source: &IdentitySource) -> Option<Finding> {
    let IdentitySource::Directory(directory) = source else { return None };
    let found = match Prospect::of(directory) {
        Ok(found) => found,
        Err(error) => {
            let remedy = error.remedy(directory);
            // Completes “cannot open …” with its subject, the user.
            let who = match &error {
                IdentityError::Io { .. } => format!("the user {} ", user_name()),
                _ => String::new(),
            };
            return Some(Finding::failure(SUBJECT, format!("{who}{:#}", anyhow::Error::from(error)), remedy));
        }
    };
    let directory = directory.display();
    let text = match (found.identity.map(|identity| identity.nqn), found.in_use) {
        (Some(nqn), false) => format!("{nqn}, kept in {directory}"),
        (Some(nqn), true) => format!("{nqn}, kept in {directory}: a running agent has it"),
        (None, false) => format!("none yet: the first start makes one in {directory}"),
        (None, true) => format!("a running agent is making one in {directory}"),
    };
    Some(Finding::fine(SUBJECT, text))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;
    use crate::identity::LockedIdentity;
    use std::path::Path;

    fn at(directory: &Path) -> Finding {
        finding(&IdentitySource::Directory(directory.into())).unwrap()
    }

    #[test]
    fn the_finding_says_where_the_identity_is() {
        assert!(finding(&IdentitySource::Ephemeral).is_none());
        let root = tempfile::tempdir().unwrap();
        assert!(at(root.path()).text.starts_with("none yet"));
        let held = LockedIdentity::persistent(root.path()).unwrap();
        let running = at(root.path());
        assert_eq!(running.level, Severity::Fine);
        assert!(running.text.starts_with(&held.identity.nqn) && running.text.ends_with("a running agent has it"));
        drop(held);
        assert!(at(root.path()).text.ends_with(root.path().to_str().unwrap()));
    }

    #[test]
    fn a_directory_that_cannot_hold_an_identity_is_a_failure() {
        let finding = at(Path::new("/proc/nope/identity"));
        assert_eq!(finding.level, Severity::Failure);
        let whole = format!("the user {} cannot make or enter /proc/nope/identity", user_name());
        assert!(finding.text.starts_with(&whole), "{}", finding.text);
        assert!(finding.advice.unwrap().contains("`state`"));
    }
}
