//! Memory, and whether the result slots fit where the configuration puts them.

use super::finding::{Finding, bytes};
use super::system::System;
use crate::slots::{Backing, Geometry, is_foreign};
use ddlp_csd::memory::{available_bytes, check_room};
use nix::sys::statvfs::statvfs;
use serde::Serialize;
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
    /// Why the slots do not fit.
    pub obstacle: Option<String>,
    /// The file with the slots; `None` for memory.
    pub file: Option<PathBuf>,
}

impl Memory {
    /// Looks at memory and at the room for the slots.
    pub fn read(system: &System, results: &Backing, geometry: Geometry) -> Self {
        let total_bytes = system.text("proc/meminfo").and_then(|text| total(&text));
        let available_bytes = available_bytes();
        let need = geometry.total_bytes();
        let (file, room, obstacle) = match results {
            Backing::File(path) => {
                let room = room_for_file(path);
                let obstacle = match &room {
                    Ok(room) if *room < need => Some(lacking(need, *room)),
                    Ok(_) => None,
                    Err(error) => Some(error.clone()),
                };
                (Some(path.clone()), room.ok(), obstacle)
            }
            // An inherited descriptor belongs to the loader, which made its room.
            Backing::Memory | Backing::Inherited(_) => {
                (None, available_bytes, check_room(need).err().map(|error| error.to_string()))
            }
        };
        Self {
            total_bytes,
            available_bytes,
            slots: geometry.slots,
            slot_bytes: geometry.slot_bytes,
            slots_that_fit: room.map(|room| room / geometry.slot_bytes),
            obstacle,
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
            Some(obstacle) => {
                let advice =
                    "lower `slots` or `slot-bytes` (one slot holds one batch), or put `results` somewhere else";
                Finding::failure(SLOTS, format!("{asked}: {obstacle}{fitting}"), advice)
            }
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

/// Bytes that a file at `path` can grow to, or why there can be none.
fn room_for_file(path: &Path) -> Result<u64, String> {
    let folder = super::storage::folder_of(path);
    let kept = match path.metadata() {
        Ok(metadata) if !metadata.is_file() => return Err("that is no regular file".into()),
        Ok(metadata) => match is_foreign(path) {
            Ok(false) => metadata.blocks() * 512,
            Ok(true) => return Err("the file holds something else, and is not overwritten".into()),
            Err(error) => return Err(error.to_string()),
        },
        Err(_) => 0,
    };
    let system = statvfs(folder).map_err(|errno| format!("{}: {}", folder.display(), errno.desc()))?;
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
        assert!(vast.obstacle.unwrap().contains("there is room for"));
        let nowhere = Backing::File(root.path().join("none/slots"));
        assert!(Memory::read(&system, &nowhere, geometry).obstacle.unwrap().contains("none"));
        std::fs::write(root.path().join("letter"), "somebody's words").unwrap();
        let foreign = Backing::File(root.path().join("letter"));
        assert!(Memory::read(&system, &foreign, geometry).obstacle.unwrap().contains("something else"));
        let folder = Backing::File(root.path().into());
        assert!(Memory::read(&system, &folder, geometry).obstacle.unwrap().contains("no regular file"));
    }
}
