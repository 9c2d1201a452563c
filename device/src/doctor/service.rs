//! The service's sandbox: what the agent will not see or may not write there, though the same user may everywhere else.

use super::finding::Finding;
use super::system::System;
use crate::agent::Settings;
use crate::agent::settings::IdentitySource;
use crate::slots::Backing;
use std::fs;
use std::path::{Path, PathBuf};

const SUBJECT: &str = "service";

/// Where the service's configuration lies.
const CONFIGURATION: &str = "/etc/ddlp-device";
/// Where the service may write (`StateDirectory=`).
const STATE: &str = "/var/lib/ddlp-device";
/// Folders that the service finds empty, and the setting that hides them.
const HIDDEN: [(&str, &str); 5] = [
    ("/home", "ProtectHome="),
    ("/root", "ProtectHome="),
    ("/run/user", "ProtectHome="),
    ("/tmp", "PrivateTmp="),
    ("/var/tmp", "PrivateTmp="),
];
/// What the administrator changed of the service (`systemctl edit`).
const CHANGES: &str = "etc/systemd/system/ddlp-device.service.d";

/// Warns of paths of the service's configuration that its sandbox hides or makes read-only.
pub fn findings(system: &System, config: Option<&Path>, settings: &Settings) -> Vec<Finding> {
    if !config.is_some_and(|config| config.starts_with(CONFIGURATION)) {
        return Vec::new();
    }
    let changed = changes(system);
    let state = match &settings.identity {
        IdentitySource::Directory(directory) => Some(directory.as_path()),
        IdentitySource::Ephemeral => None,
    };
    let results = match &settings.results {
        Backing::File(path) => Some(path.as_path()),
        Backing::Memory | Backing::Inherited(_) => None,
    };
    let dataset = Some(settings.dataset.as_path()).filter(|path| !path.as_os_str().is_empty());
    let paths = [("dataset", dataset, false), ("state", state, true), ("results", results, true)];
    let found = paths.into_iter().filter_map(|(key, path, is_written)| about(key, path?, is_written, &changed));
    found.collect()
}

fn about(key: &str, path: &Path, is_written: bool, changed: &str) -> Option<Finding> {
    let real = resolved(path);
    let is_below = |(folder, _): &(&str, &str)| path.starts_with(folder) || real.starts_with(folder);
    if let Some((folder, setting)) = HIDDEN.into_iter().find(is_below) {
        let text = format!(
            "`{key}` is below {folder}, where the service sees nothing ({setting} in its unit): {}",
            real.display()
        );
        let advice = format!("move it, to {STATE} for example, or change {setting} by sudo systemctl edit ddlp-device");
        return (!changed.contains(setting)).then(|| Finding::warning(SUBJECT, text, advice));
    }
    let is_closed = is_written && !real.starts_with(STATE) && !changed.contains("ReadWritePaths=");
    is_closed.then(|| {
        let text = format!("`{key}` is outside of {STATE}, where the service may not write: {}", real.display());
        let folder = real.parent().unwrap_or(&real).display();
        let advice =
            format!("move it there, or put ReadWritePaths={folder} below [Service] by sudo systemctl edit ddlp-device");
        Finding::warning(SUBJECT, text, advice)
    })
}

/// The path without links, as far as it can be looked at.
fn resolved(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    match there {
        Some((part, real)) if part == path => real,
        Some((part, real)) => path.strip_prefix(part).map_or_else(|_| path.to_owned(), |rest| real.join(rest)),
        None => path.to_owned(),
    }
}

/// The text of all changes to the service, comments left out.
fn changes(system: &System) -> String {
    let names = system.names(CHANGES).into_iter().filter(|name| name.ends_with(".conf"));
    let texts = names.filter_map(|name| fs::read_to_string(system.path(CHANGES).join(name)).ok());
    let lines = |text: String| {
        text.lines().filter(|line| !line.starts_with(['#', ';'])).fold(String::new(), |all, line| all + line + "\n")
    };
    texts.map(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::super::system::board_with;
    use super::*;
    use crate::agent::ServeArgs;

    const CONFIG: Option<&str> = Some("/etc/ddlp-device/drive.toml");

    fn texts(system: &System, config: Option<&str>, [dataset, state, results]: [&str; 3]) -> Vec<String> {
        let args = ServeArgs {
            dataset: Some(dataset.into()),
            state: Some(state.into()),
            results: Some(results.into()),
            ..ServeArgs::default()
        };
        let findings = findings(system, config.map(Path::new), &Settings::from_args(args).unwrap());
        findings.into_iter().map(|finding| format!("{} -> {}", finding.text, finding.advice.unwrap())).collect()
    }

    #[test]
    fn what_the_sandbox_hides_or_closes_is_named() {
        let (_root, system) = board_with(&[]);
        let hidden = ["/home/ann/train.ddlp", "/run/user/1000/id", "/var/tmp/slots"];
        let said = texts(&system, CONFIG, hidden);
        assert!(said[0].starts_with("`dataset` is below /home,") && said[0].contains("ProtectHome="), "{said:?}");
        assert!(said[1].starts_with("`state` is below /run/user,"), "{said:?}");
        assert!(said[2].starts_with("`results` is below /var/tmp,") && said[2].contains("PrivateTmp="), "{said:?}");
        let said = texts(&system, CONFIG, ["/data/train.ddlp", "/data/id", "ram"]);
        assert!(said.len() == 1 && said[0].contains("ReadWritePaths=/data below"), "a dataset is only read: {said:?}");
        let good = ["/data/train.ddlp", "/var/lib/ddlp-device/identity", "/var/lib/ddlp-device/slots"];
        assert!(texts(&system, CONFIG, good).is_empty());
        for config in [None, Some("/home/ann/drive.toml")] {
            assert!(texts(&system, config, hidden).is_empty(), "that is not the service's");
        }
    }

    #[test]
    fn links_are_followed_and_changes_of_the_service_heeded() {
        let (root, system) = board_with(&[(
            "etc/systemd/system/ddlp-device.service.d/override.conf",
            "[Service]\nProtectHome=read-only\nReadWritePaths=/data\n# PrivateTmp=no\n",
        )]);
        let link = root.path().join("train.ddlp");
        std::os::unix::fs::symlink("/var/tmp", &link).unwrap();
        let said = texts(&system, CONFIG, [link.to_str().unwrap(), "/home/ann/id", "/data/slots"]);
        assert!(said.len() == 1 && said[0].contains("(PrivateTmp= in its unit): /var/tmp -> "), "{said:?}");
    }
}
