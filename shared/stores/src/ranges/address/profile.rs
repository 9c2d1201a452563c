//! Keys of a profile in `~/.aws`, as Amazon's own programs read them.
//!
//! Format: <https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-files.html>. Only keys that stand in the
//! files are taken: profiles that name a role, a process or single sign-on are refused by name.

use super::variable;
use object_store::aws::AmazonS3Builder;
use std::collections::HashMap;
use std::path::PathBuf;
use std::{fs, io};

/// Variables that name credentials which come before a profile's.
const BEFORE: [&str; 2] = ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"];
/// Settings that name credentials which are not in the files.
const ELSEWHERE: [&str; 5] = ["role_arn", "credential_process", "sso_session", "sso_start_url", "source_profile"];

/// The settings of a profile.
pub struct Keys(HashMap<String, String>);

impl Keys {
    /// Gives a client the profile's keys, and the region and server unless the environment names others.
    pub fn apply(&self, mut builder: AmazonS3Builder) -> AmazonS3Builder {
        let setting = |name: &str| self.0.get(name);
        if let (Some(id), Some(secret)) = (setting("aws_access_key_id"), setting("aws_secret_access_key")) {
            builder = builder.with_access_key_id(id).with_secret_access_key(secret);
            if let Some(token) = setting("aws_session_token") {
                builder = builder.with_token(token);
            }
        }
        let is_named = |names: [&str; 2]| names.into_iter().any(|name| variable(name).is_some());
        if let Some(region) = setting("region").filter(|_| !is_named(["AWS_REGION", "AWS_DEFAULT_REGION"])) {
            builder = builder.with_region(region);
        }
        if let Some(server) = setting("endpoint_url").filter(|_| !is_named(["AWS_ENDPOINT_URL", "AWS_ENDPOINT"])) {
            builder = builder.with_endpoint(server);
        }
        builder
    }
}

/// Returns the profile that `AWS_PROFILE` names, or `default`; `None` without such a profile, or if the environment has
/// credentials. The error says what to do.
pub fn keys() -> Result<Option<Keys>, String> {
    if BEFORE.into_iter().any(|name| variable(name).is_some()) {
        return Ok(None);
    }
    let name = variable("AWS_PROFILE");
    let mut found = HashMap::new();
    for (file, variable_name) in [("config", "AWS_CONFIG_FILE"), ("credentials", "AWS_SHARED_CREDENTIALS_FILE")] {
        let in_home = || variable("HOME").map(|home| PathBuf::from(home).join(".aws").join(file));
        let Some(path) = variable(variable_name).map(PathBuf::from).or_else(in_home) else { continue };
        match fs::read_to_string(&path) {
            Ok(text) => found.extend(settings(&text, name.as_deref().unwrap_or("default"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{}: {error}", path.display())),
        }
    }
    match name {
        Some(name) if found.is_empty() => Err(format!("AWS_PROFILE is {name}, but ~/.aws has no profile of this name")),
        _ if !found.contains_key("aws_access_key_id") => {
            match ELSEWHERE.into_iter().find(|key| found.contains_key(*key)) {
                Some(key) => Err(format!(
                    "the profile in ~/.aws has `{key}`, which is not read: set AWS_ACCESS_KEY_ID, \
                     AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, for example by `aws configure export-credentials \
                     --format env`"
                )),
                None => Ok((!found.is_empty()).then_some(Keys(found))),
            }
        }
        _ => Ok(Some(Keys(found))),
    }
}

/// Returns the settings of a profile in the text of a file.
fn settings(text: &str, profile: &str) -> HashMap<String, String> {
    let mut is_in = false;
    let mut found = HashMap::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(section) = trimmed.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(name, _)| name) {
            let section = section.trim();
            is_in = section.strip_prefix("profile ").map_or(section, str::trim) == profile;
        // A line that begins with a space belongs to the setting above it.
        } else if let Some((key, value)) = trimmed.split_once('=').filter(|_| is_in && !line.starts_with([' ', '\t'])) {
            found.insert(key.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_found_among_others() {
        let text = "# mine\n[default]\naws_access_key_id = A\n[profile work]\naws_access_key_id=B\n s3 =\n  x = 1\n\
                    aws_secret_access_key = c=d\n; no\n[sso-session work]\nregion = r\n[other]\nregion = q\n";
        let found = |name| {
            let mut found: Vec<_> = settings(text, name).into_iter().collect();
            found.sort();
            found
        };
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(found("default"), [pair("aws_access_key_id", "A")]);
        assert_eq!(found("work"), [pair("aws_access_key_id", "B"), pair("aws_secret_access_key", "c=d")]);
        assert_eq!(found("other"), [pair("region", "q")]);
        assert!(found("none").is_empty());
    }
}
