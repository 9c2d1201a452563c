//! The memory that a loader needs, added up before any of it is allocated: each part may fit alone although all
//! together do not.

use crate::error::LoaderError;
use std::io;

/// The parts of a loader's memory.
#[derive(Debug, Default)]
pub(crate) struct MemoryNeed(Vec<MemoryPart>);

#[derive(Debug)]
struct MemoryPart {
    what: String,
    bytes: u64,
}

impl MemoryNeed {
    /// Adds a part, called `what` in messages.
    pub fn add(&mut self, bytes: u64, what: String) {
        self.0.push(MemoryPart { what, bytes });
    }

    /// Returns the bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.0.iter().fold(0, |sum, part| sum.saturating_add(part.bytes))
    }

    /// Checks by `check_room` that there is room for all parts. The error names every part.
    pub fn check(&self, check_room: impl FnOnce(u64) -> io::Result<()>) -> Result<(), LoaderError> {
        check_room(self.bytes()).map_err(|error| {
            let parts = self.0.iter().map(|part| format!("{} ({} MB)", part.what, part.bytes.div_ceil(1_000_000)));
            LoaderError::NoRoom(format!(
                "no room for the memory that the loader needs, {}: {error}; use smaller batches \
                 (`batch_size`), fewer `buffers` or fewer result slots (`slots`), or raise the limit",
                parts.collect::<Vec<_>>().join(", ")
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_fit_alone_but_not_together_are_refused_by_name() {
        let check_room = |bytes| if bytes <= 150 { Ok(()) } else { Err(io::Error::other("150 are there")) };
        let mut need = MemoryNeed::default();
        need.add(100, "3 buffers".into());
        need.check(check_room).unwrap();
        need.add(50, "slots of csd 1".into());
        need.check(check_room).unwrap();
        need.add(2_000_001, "slots of csd 2".into());
        let error = need.check(check_room).unwrap_err().to_string();
        assert!(
            error.contains("3 buffers (1 MB), slots of csd 1 (1 MB), slots of csd 2 (3 MB): 150 are there"),
            "{error}"
        );
        need.add(u64::MAX, "more than a number holds".into());
        assert_eq!(need.bytes(), u64::MAX);
    }
}
