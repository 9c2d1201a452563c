//! Checks of the configuration's `allowed-hosts`.

use anyhow::{Result, ensure};
use ddlp_nvme::text::check_nqn;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// Prefix of NQNs that are made from a UUID. Base 2.1, section "NVMe Qualified Names".
const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// Refuses names that cannot be any host's NQN. The usual mistake is an example copied unchanged, which would lock
/// every host out.
pub fn check_allowed(hosts: &[String]) -> Result<()> {
    for nqn in hosts {
        check_nqn(nqn).map_err(|error| anyhow::anyhow!("allowed-hosts: `{nqn}`: {error}"))?;
        let may_be_one = nqn.strip_prefix(UUID_PREFIX).is_none_or(is_uuid);
        ensure!(
            may_be_one,
            "allowed-hosts: `{nqn}`: after `uuid:` the host's UUID is expected, such as \
             01234567-89ab-cdef-0123-456789abcdef. \
             On the host, `sudo ddlp devices` prints its NQN"
        );
    }
    Ok(())
}

/// Returns whether `text` is a UUID in five groups that is not nil (RFC 9562).
fn is_uuid(text: &str) -> bool {
    text.len() == Hyphenated::LENGTH && Uuid::try_parse(text).is_ok_and(|uuid| !uuid.is_nil())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_the_uuid_prefix_needs_a_complete_uuid() {
        let check = |nqn: &str| check_allowed(&[nqn.to_owned()]).map_err(|error| error.to_string());
        let uuid = "01234567-89ab-CDEF-0123-456789abcdef";
        check(&format!("{UUID_PREFIX}{uuid}")).unwrap();
        check("nqn.2014-08.org.example:any-name").unwrap();
        let cut = &uuid[..35];
        for tail in [
            "",
            "…",
            "...",
            "host",
            cut,
            "0123456789abcdef0123456789abcdef",
            &uuid.replace('a', "g"),
            &format!("{uuid}-"),
            "00000000-0000-0000-0000-000000000000",
        ] {
            let nqn = format!("{UUID_PREFIX}{tail}");
            let error = check(&nqn).unwrap_err();
            assert!(error.contains(&nqn) && error.contains("the host's UUID is expected"), "{error}");
        }
        assert!(check("host").unwrap_err().contains("`host`"));
    }
}
