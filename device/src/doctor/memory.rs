//! Memory, and whether the result slots fit where the configuration puts them.

use super::finding::{Finding, bytes};
use crate::slots::{Backing, Geometry, is_foreign};
use ddlp_csd::memory::{available_bytes, check_room};
use nix::errno::Errno;
use nix::sys::statvfs::statvfs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const SUBJECT: &str = "memory";
const SLOTS: &str = "slots";

/// Advice for slots that do not fit.
const FEWER: &str = "lower `slots` or `slot-bytes` (one slot holds one batch), or put `results` somewhere else";

/// Checks memory and the room for the slots.
pub fn findings(results: &Backing, geometry: Geometry) -> Vec<Finding> {
    let available = available_bytes();
    let need = geometry.total_bytes();
    let (place, room, obstacle) = match results {
        Backing::File(path) => {
            let (room, obstacle) = match room_for_file(path) {
                Ok(room) => (Some(room), (room < need).then(|| (lacking(need, room), FEWER))),
                Err(obstacle) => (None, Some(obstacle)),
            };
            (format!("in {}", path.display()), room, obstacle)
        }
        // An inherited descriptor belongs to the loader, which has made room for it.
        Backing::Memory | Backing::Inherited(_) => {
            let obstacle = check_room(need).err().map(|error| (error.to_string(), FEWER));
            ("in memory".into(), available, obstacle)
        }
    };
    let fitting = room.map_or(String::new(), |room| format!("; {} would fit", room / geometry.slot_bytes));
    let asked = format!("{} slots of {} {place}", geometry.slots, bytes(geometry.slot_bytes));
    let available = available.map_or("an unknown amount".into(), bytes);
    let slots = match obstacle {
        None => Finding::fine(SLOTS, format!("{asked}{fitting}")),
        Some((obstacle, remedy)) => Finding::failure(SLOTS, format!("{asked}: {obstacle}{fitting}"), remedy),
    };
    vec![Finding::fine(SUBJECT, format!("{available} available")), slots]
}

fn lacking(need: u64, room: u64) -> String {
    format!("{} are needed, there is room for {}", bytes(need), bytes(room))
}

/// Returns the bytes that a file at `path` can grow to, or why there can be no such file and what to do about it.
fn room_for_file(path: &Path) -> Result<u64, (String, &'static str)> {
    const RIGHTS: &str =
        "let the user that the agent runs as read and write the file, or name another one in `results`";
    let folder = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    };
    let kept = match path.metadata() {
        Ok(metadata) if !metadata.is_file() => {
            return Err(("not a regular file".into(), "name a file in `results`; the agent makes it"));
        }
        Ok(metadata) => match is_foreign(path) {
            Ok(false) => metadata.blocks() * 512,
            Ok(true) => {
                let remedy = "name another file in `results`, or remove this one";
                return Err(("the file holds something else, and the agent does not overwrite it".into(), remedy));
            }
            Err(error) => return Err((error.to_string(), RIGHTS)),
        },
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err((error.to_string(), RIGHTS)),
        Err(_) => 0,
    };
    let missing = |errno: Errno| {
        let remedy = "make the folder for the user that the agent runs as, or name a file in another one in `results`";
        (format!("the folder {}: {}", folder.display(), errno.desc()), remedy)
    };
    let system = statvfs(folder).map_err(missing)?;
    Ok((system.blocks_available() as u64).saturating_mul(system.fragment_size() as u64).saturating_add(kept))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    fn of_slots(results: &Backing, slots: u32, slot_bytes: u64) -> Finding {
        findings(results, Geometry { slots, slot_bytes }).remove(1)
    }

    #[test]
    fn slots_that_do_not_fit_into_memory_are_a_failure() {
        assert_eq!(of_slots(&Backing::Memory, 2, 4096).level, Severity::Fine);
        let many = of_slots(&Backing::Memory, 4096, 16 << 30);
        assert_eq!(many.level, Severity::Failure);
        assert!(many.text.contains("are needed") && many.text.contains("would fit"), "{}", many.text);
    }

    #[test]
    fn a_file_needs_a_folder_and_room() {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str| Backing::File(root.path().join(path));
        assert_eq!(of_slots(&file("slots"), 1, 4096).level, Severity::Fine);
        let said = |path: &str, slot_bytes| {
            let finding = of_slots(&file(path), 4096, slot_bytes);
            (finding.text, finding.advice.unwrap())
        };
        let (text, advice) = said("slots", 1 << 50);
        assert!(text.contains("there is room for") && advice.starts_with("lower `slots`"), "{text} -> {advice}");
        let (text, advice) = said("none/slots", 4096);
        assert!(text.contains("none: No such file") && advice.starts_with("make the folder"), "{text} -> {advice}");
        std::fs::write(root.path().join("letter"), "somebody's words").unwrap();
        let (text, advice) = said("letter", 4096);
        assert!(text.contains("something else") && advice.contains("remove this one"), "{text} -> {advice}");
        let (text, advice) = said("", 4096);
        assert!(text.contains("not a regular file") && advice.starts_with("name a file"), "{text} -> {advice}");
    }
}
