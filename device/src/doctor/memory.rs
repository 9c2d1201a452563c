//! Memory, and whether the result slots fit where the configuration puts them.

use super::finding::{Finding, bytes};
use super::system::System;
use crate::slots::{Backing, Geometry, is_foreign};
use ddlp_csd::memory::{available_bytes, check_room};
use nix::errno::Errno;
use nix::sys::statvfs::statvfs;
use serde::Serialize;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const SUBJECT: &str = "memory";
const SLOTS: &str = "slots";

/// Memory and slots.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// Memory of the machine.
    pub total_bytes: Option<u64>,
    /// Memory that the agent can have, within the limits of its control groups.
    pub available_bytes: Option<u64>,
    /// Number of slots.
    pub slots: u32,
    /// Bytes of one.
    pub slot_bytes: u64,
    /// Slots of that size for which there is room.
    pub slots_that_fit: Option<u64>,
    /// Why the slots cannot be there.
    pub obstacle: Option<String>,
    /// What to do about it.
    #[serde(skip)]
    remedy: &'static str,
    /// The file with the slots; `None` for memory.
    pub file: Option<PathBuf>,
}

/// What to do about slots that do not fit.
const FEWER: &str = "lower `slots` or `slot-bytes` (one slot holds one batch), or put `results` somewhere else";

impl Memory {
    /// Looks at memory and at the room for the slots.
    pub fn read(system: &System, results: &Backing, geometry: Geometry) -> Self {
        let total_bytes = system.text("proc/meminfo").and_then(|text| total(&text));
        let available_bytes = available_bytes();
        let need = geometry.total_bytes();
        let (file, room, obstacle, remedy) = match results {
            Backing::File(path) => {
                let (room, obstacle, remedy) = match room_for_file(path) {
                    Ok(room) => (Some(room), (room < need).then(|| lacking(need, room)), FEWER),
                    Err((obstacle, remedy)) => (None, Some(obstacle), remedy),
                };
                (Some(path.clone()), room, obstacle, remedy)
            }
            // An inherited descriptor belongs to the loader, which made its room.
            Backing::Memory | Backing::Inherited(_) => {
                (None, available_bytes, check_room(need).err().map(|error| error.to_string()), FEWER)
            }
        };
        Self {
            total_bytes,
            available_bytes,
            slots: geometry.slots,
            slot_bytes: geometry.slot_bytes,
            slots_that_fit: room.map(|room| room / geometry.slot_bytes),
            obstacle,
            remedy,
            file,
        }
    }

    /// What there is to say.
    pub fn findings(&self) -> Vec<Finding> {
        let size = |value: Option<u64>| value.map_or("an unknown amount".into(), bytes);
        let text = format!("{} in all, {} available", size(self.total_bytes), size(self.available_bytes));
        let mut findings = vec![Finding::fine(SUBJECT, text)];
        let place = self.file.as_ref().map_or("in memory".into(), |file| format!("in {}", file.display()));
        let asked = format!("{} slots of {} {place}", self.slots, bytes(self.slot_bytes));
        let fitting = self.slots_that_fit.map_or(String::new(), |slots| format!("; {slots} would fit"));
        findings.push(match &self.obstacle {
            None => Finding::fine(SLOTS, format!("{asked}{fitting}")),
            Some(obstacle) => Finding::failure(SLOTS, format!("{asked}: {obstacle}{fitting}"), self.remedy),
        });
        findings
    }
}

fn lacking(need: u64, room: u64) -> String {
    format!("{} are needed, there is room for {}", bytes(need), bytes(room))
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes that a file at `path` can grow to, or why there can be none, and what to do about that.
fn room_for_file(path: &Path) -> Result<u64, (String, &'static str)> {
    const RIGHTS: &str =
        "let the user that the agent runs as read and write the file, or name another one in `results`";
    let folder = super::storage::folder_of(path);
    let kept = match path.metadata() {
        Ok(metadata) if !metadata.is_file() => {
            return Err(("that is no regular file".into(), "name a file in `results`, which the agent makes"));
        }
        Ok(metadata) => match is_foreign(path) {
            Ok(false) => metadata.blocks() * 512,
            Ok(true) => {
                let remedy = "name another file in `results`, or remove this one";
                return Err(("the file holds something else, and is not overwritten".into(), remedy));
            }
            Err(error) => return Err((error.to_string(), RIGHTS)),
        },
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err((error.to_string(), RIGHTS)),
        Err(_) => 0,
    };
    let missing = |errno: Errno| {
        let remedy = "make the folder, for the user that the agent runs as, or name a file in another one in `results`";
        (format!("the folder {}: {}", folder.display(), errno.desc()), remedy)
    };
    let system = statvfs(folder).map_err(missing)?;
    Ok((system.blocks_available() as u64).saturating_mul(system.fragment_size() as u64).saturating_add(kept))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::system::board_with;
    use super::*;

    #[test]
    fn memory_is_told_and_slots_that_do_not_fit_are_a_failure() {
        let (_root, system) = board_with(&[("proc/meminfo", "MemTotal:        8000000 kB\nMemFree: 1 kB\n")]);
        let few = Memory::read(&system, &Backing::Memory, Geometry { slots: 2, slot_bytes: 4096 });
        assert_eq!(few.total_bytes, Some(8_192_000_000));
        assert!(few.findings().iter().all(|finding| finding.level == Level::Fine));
        let many = Memory::read(&system, &Backing::Memory, Geometry { slots: 4096, slot_bytes: 16 << 30 });
        let finding = many.findings().pop().unwrap();
        assert_eq!(finding.level, Level::Failure);
        assert!(finding.text.contains("are needed") && finding.text.contains("would fit"), "{}", finding.text);
    }

    #[test]
    fn a_file_needs_a_folder_and_room() {
        let (root, system) = board_with(&[]);
        let geometry = Geometry { slots: 1, slot_bytes: 4096 };
        let inside = Backing::File(root.path().join("slots"));
        assert_eq!(Memory::read(&system, &inside, geometry).obstacle, None);
        let vast = Memory::read(&system, &inside, Geometry { slots: 4096, slot_bytes: 1 << 50 });
        assert!(vast.findings()[1].advice.as_ref().unwrap().starts_with("lower `slots`"));
        assert!(vast.obstacle.unwrap().contains("there is room for"));
        let said = |path: &str| {
            let finding = Memory::read(&system, &Backing::File(root.path().join(path)), geometry).findings().remove(1);
            (finding.text, finding.advice.unwrap())
        };
        let (text, advice) = said("none/slots");
        assert!(text.contains("none: No such file") && advice.starts_with("make the folder"), "{text} -> {advice}");
        std::fs::write(root.path().join("letter"), "somebody's words").unwrap();
        let (text, advice) = said("letter");
        assert!(text.contains("something else") && advice.contains("remove this one"), "{text} -> {advice}");
        let (text, advice) = said("");
        assert!(text.contains("no regular file") && advice.starts_with("name a file"), "{text} -> {advice}");
    }
}
