//! Who this machine is to a drive.
//!
//! The kernel wants one host identifier per host NQN, and drives name hosts by NQN: an identity is kept. Where nvme-cli has one
//! in `/etc/nvme`, this is it; otherwise one is made once, in `/var/lib/ddlp`.

use super::peer::check_name;
use crate::kernel::Kernel;
use anyhow::{Context, bail};
use ddlp_driver::tcp::HostIdentity;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

const NQN_FILE: &str = "etc/nvme/hostnqn";
const ID_FILE: &str = "etc/nvme/hostid";
const KEPT_FILE: &str = "var/lib/ddlp/hostnqn";

/// The identity that was asked for, that of this machine, or a new one that is kept.
pub fn identity(kernel: &Kernel, nqn: Option<&str>, id: Option<&str>) -> anyhow::Result<HostIdentity> {
    if let Some(nqn) = nqn {
        return of(nqn, id, "--host-nqn", "give it by --host-id");
    }
    let (nqn_file, id_file, kept) = (kernel.path(NQN_FILE), kernel.path(ID_FILE), kernel.path(KEPT_FILE));
    if let Some(nqn) = line(&nqn_file)? {
        let put = format!("put it into {}", id_file.display());
        return of(&nqn, line(&id_file)?.as_deref(), &nqn_file.display().to_string(), &put);
    }
    match line(&kept)? {
        Some(nqn) => of(&nqn, None, &kept.display().to_string(), "remove the file, and another one is made"),
        None => make(&kept),
    }
}

/// NQN of this machine; `None` when none has been made yet, or it cannot be read.
pub fn known(kernel: &Kernel) -> Option<String> {
    [NQN_FILE, KEPT_FILE].into_iter().find_map(|file| line(&kernel.path(file)).ok().flatten())
}

/// The first line of a file that has something in it; `None` when there is none, or no file.
fn line(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// The identity of an NQN, and of an identifier where the NQN does not end in one.
fn of(nqn: &str, id: Option<&str>, origin: &str, remedy: &str) -> anyhow::Result<HostIdentity> {
    check_name(nqn, &format!("the host NQN of {origin},"))?;
    if !nqn.starts_with("nqn.") {
        bail!("the host NQN of {origin}, {nqn:?}, does not begin with nqn.");
    }
    let text = id.or_else(|| nqn.rsplit_once(":uuid:").map(|(_, uuid)| uuid));
    let Some(text) = text else {
        bail!("the host NQN of {origin}, {nqn}, ends in no UUID, so a host identifier is needed: {remedy}")
    };
    match uuid(text) {
        Some(id) => Ok(HostIdentity { nqn: nqn.to_owned(), id }),
        None => bail!("the host identifier {text:?} of {origin} is no UUID, or is zero: {remedy}"),
    }
}

fn make(kept: &Path) -> anyhow::Result<HostIdentity> {
    let host = HostIdentity::random()?;
    let write = || {
        kept.parent().map_or(Ok(()), fs::create_dir_all)?;
        // Two first commands at once must not leave two identities behind.
        fs::File::create_new(kept)?.write_all(format!("{}\n", host.nqn).as_bytes())
    };
    write().with_context(|| {
        format!("cannot keep an identity for this machine in {}; --host-nqn gives one by hand", kept.display())
    })?;
    Ok(host)
}

/// A UUID of 36 characters, not zero.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let hex = text.replace('-', "");
    let dashes: Vec<usize> = text.match_indices('-').map(|(at, _)| at).collect();
    if dashes != [8, 13, 18, 23] || hex.len() != 32 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let value = u128::from_str_radix(&hex, 16).ok()?;
    (value != 0).then(|| value.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::planted::kernel;

    const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

    fn message(result: anyhow::Result<HostIdentity>) -> String {
        format!("{:#}", result.unwrap_err())
    }

    #[test]
    fn uuids_are_read() {
        assert_eq!(uuid(UUID), Some(*b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff"));
        for wrong in ["", "00112233445566778899aabbccddeeff", "00000000-0000-0000-0000-000000000000", &UUID[1..]] {
            assert_eq!(uuid(wrong), None, "{wrong}");
        }
        assert_eq!(uuid("0011223-34455-6677-8899-aabbccddeeff"), None);
        assert_eq!(uuid("+0112233-4455-6677-8899-aabbccddeeff"), None);
    }

    #[test]
    fn a_new_identity_is_kept() {
        let planted = kernel("", "6.1");
        assert_eq!(known(&planted.kernel), None);
        let first = identity(&planted.kernel, None, None).unwrap();
        assert_eq!(known(&planted.kernel).as_deref(), Some(&*first.nqn));
        assert_eq!(identity(&planted.kernel, None, None).unwrap(), first);
        assert_eq!(planted.read(KEPT_FILE), format!("{}\n", first.nqn));
        assert_eq!(first, HostIdentity::from_uuid(first.id));
    }

    #[test]
    fn that_of_nvme_cli_counts_more_and_that_of_the_command_line_most() {
        let planted = kernel("", "6.1");
        identity(&planted.kernel, None, None).unwrap();
        planted.write(NQN_FILE, "nqn.2024-01.example:host\n");
        let error = message(identity(&planted.kernel, None, None));
        assert!(planted.rooted(&error).ends_with("put it into /etc/nvme/hostid"), "{error}");
        planted.write(ID_FILE, &format!("{UUID}\n"));
        let found = identity(&planted.kernel, None, None).unwrap();
        assert_eq!((found.nqn.as_str(), Some(found.id)), ("nqn.2024-01.example:host", uuid(UUID)));
        let asked = format!("nqn.2014-08.org.nvmexpress:uuid:{UUID}");
        assert_eq!(identity(&planted.kernel, Some(&asked), None).unwrap(), HostIdentity::from_uuid(found.id));
        assert_eq!(identity(&planted.kernel, Some("nqn.x"), Some(UUID)).unwrap().id, found.id);
    }

    #[test]
    fn wrong_identities_are_explained() {
        let planted = kernel("", "6.1");
        let error = |nqn, id| message(identity(&planted.kernel, Some(nqn), id));
        assert!(error("nqn.x", None).contains("--host-id"));
        assert!(error("nqn.x", Some("12")).contains("no UUID"));
        assert!(error("host", Some(UUID)).contains("begin with nqn."));
        assert!(error("nqn.x,traddr=1", Some(UUID)).contains("cannot have"));
        planted.write(KEPT_FILE, "garbage\n");
        assert!(message(identity(&planted.kernel, None, None)).contains("garbage"));
        // A file where the directory would be.
        let planted = kernel("", "6.1");
        planted.write("var/lib/ddlp", "");
        assert!(!message(identity(&planted.kernel, None, None)).is_empty());
    }
}
