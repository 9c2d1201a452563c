//! Lists of processor cores, as `taskset` writes them, and the cores that this process may use.

use crate::wrong::wrong;
use anyhow::{Context, bail};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::fs;

/// Largest core number that the operating system's sets can hold.
const CORES_MAX: usize = 1024;

/// A list of cores: `0,2-3`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreList(pub Vec<usize>);

/// Parses `0,2-3`.
pub fn parse(text: &str) -> Result<CoreList, String> {
    let number = |part: &str| match part.trim().parse::<usize>() {
        Ok(core) if core < CORES_MAX => Ok(core),
        _ => Err(format!("'{part}' is not a core: expected a list such as 0,2-3")),
    };
    let mut cores = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            None => cores.push(number(part)?),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return Err(format!("'{part}' counts backwards"));
                }
                cores.extend(first..=last);
            }
        }
    }
    cores.sort_unstable();
    cores.dedup();
    Ok(CoreList(cores))
}

impl std::fmt::Display for CoreList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&parts.join(","))
    }
}

/// Returns the cores on which this process may run.
pub fn available() -> anyhow::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0)).context("cannot find out which cores this process may use")?;
    let cores: Vec<usize> = (0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect();
    if cores.is_empty() {
        bail!("the operating system names no core that this process may use");
    }
    Ok(cores)
}

/// Fails when a list names a core that is not among `there`.
pub fn check(list: &CoreList, there: &[usize], what: &str) -> anyhow::Result<()> {
    match list.0.iter().find(|core| !there.contains(core)) {
        Some(core) => wrong!("{what} cannot work on core {core}: the cores are {}", CoreList(there.to_vec())),
        None => Ok(()),
    }
}

/// Returns the cores that are switched on in this machine, whether this process may use them or not.
pub fn online() -> anyhow::Result<Vec<usize>> {
    let listed = fs::read_to_string("/sys/devices/system/cpu/online").ok().and_then(|text| parse(text.trim()).ok());
    listed.map_or_else(available, |list| Ok(list.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_does_not_exist_is_named() {
        let list = parse("0,7").unwrap();
        assert!(check(&list, &[0, 1, 7], "the host").is_ok());
        let error = check(&list, &[0, 1], "the host").unwrap_err().to_string();
        assert_eq!(error, "the host cannot work on core 7: the cores are 0,1");
        let online = online().unwrap();
        assert!(available().unwrap().iter().all(|core| online.contains(core)));
    }

    #[test]
    fn lists_and_ranges() {
        assert_eq!(parse("0"), Ok(CoreList(vec![0])));
        assert_eq!(parse("3, 0-1,1"), Ok(CoreList(vec![0, 1, 3])));
        assert_eq!(parse("0-2").unwrap().to_string(), "0,1,2");
    }

    #[test]
    fn wrong_lists_are_named() {
        for wrong in ["", "a", "1-", "-1", "5-3", "1,,2", "99999", "0-4294967295"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn some_core_is_available() {
        assert!(!available().unwrap().is_empty());
    }
}
