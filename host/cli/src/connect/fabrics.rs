//! The kernel's interface to controllers over a network: `/dev/nvme-fabrics`.
//!
//! One write of options makes a controller and returns when it is up, or says by an error number why not; reading from the same
//! file then says which one it is. The options are those that Linux 6.1 to 6.12 take (`drivers/nvme/host/fabrics.c`).

use super::peer::Place;
use crate::devices::advice::module_remedy;
use crate::kernel::{Kernel, Module};
use anyhow::bail;
use ddlp_driver::HostIdentity;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read, Write};

/// Longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 4096;

/// What the kernel is asked to connect.
#[derive(Clone, Debug)]
pub struct Association {
    pub place: Place,
    pub nqn: String,
    pub host: HostIdentity,
    pub timing: Timing,
}

/// How the kernel notices that a drive is gone, and what it does then.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub keep_alive_s: u32,
    pub reconnect_delay_s: u32,
    /// -1: never.
    pub ctrl_loss_s: i32,
    pub fast_io_fail_s: u32,
}

impl Association {
    /// The options, as the kernel takes them.
    pub fn options(&self) -> String {
        let Timing { keep_alive_s, reconnect_delay_s, ctrl_loss_s, fast_io_fail_s } = self.timing;
        let id = self.host.id_text();
        format!(
            "transport=tcp,traddr={},trsvcid={},nqn={},hostnqn={},hostid={id},keep_alive_tmo={keep_alive_s},\
             reconnect_delay={reconnect_delay_s},ctrl_loss_tmo={ctrl_loss_s},fast_io_fail_tmo={fast_io_fail_s}",
            self.place.address, self.place.port, self.nqn, self.host.nqn
        )
    }
}

/// Fails when this process cannot connect anything here, before anything is sent anywhere.
pub fn check(kernel: &Kernel) -> anyhow::Result<()> {
    let path = kernel.fabrics();
    match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!("connecting needs root: {} may not be opened by this user; try sudo", path.display())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => match kernel.nvme_tcp() {
            Module::Loaded => bail!(
                "the module nvme-tcp is loaded, and {} does not exist: in a container, connect outside of it",
                path.display()
            ),
            module => {
                let remedy = module_remedy(module, &kernel.release()).unwrap_or_default();
                bail!("this kernel cannot connect drives, as {} does not exist. To do: {remedy}", path.display())
            }
        },
        Err(error) => Err(anyhow::Error::new(error).context(format!("cannot open {}", path.display()))),
    }
}

/// Makes the controller, and returns its name.
pub fn create(kernel: &Kernel, association: &Association) -> io::Result<String> {
    let mut file = OpenOptions::new().read(true).write(true).open(kernel.fabrics())?;
    let options = association.options();
    // The kernel takes one write as a whole, or none of it.
    if file.write(options.as_bytes())? != options.len() {
        return Err(io::Error::new(ErrorKind::WriteZero, "the kernel took a part of the options"));
    }
    let mut answer = String::new();
    file.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    instance(&answer).ok_or_else(|| {
        io::Error::new(ErrorKind::InvalidData, format!("the kernel's answer {answer:?} names no controller"))
    })
}

/// Name of the controller in `instance=0,cntlid=1`.
fn instance(answer: &str) -> Option<String> {
    let number = answer.trim().split(',').find_map(|part| part.strip_prefix("instance="))?;
    number.parse::<u32>().ok().map(|number| format!("nvme{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_name_a_controller() {
        assert_eq!(instance("instance=12,cntlid=1\n").as_deref(), Some("nvme12"));
        // What an unused file says of itself.
        assert_eq!(instance("instance=-1,cntlid=-1,transport=%s,traddr=%s"), None);
        assert_eq!(instance(""), None);
    }

    #[test]
    fn options_are_those_of_the_kernel() {
        let association = Association {
            place: Place { address: "fd00::7".into(), port: 4421 },
            nqn: "nqn.a".into(),
            host: HostIdentity::from_uuid(*b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff"),
            timing: Timing { keep_alive_s: 10, reconnect_delay_s: 2, ctrl_loss_s: -1, fast_io_fail_s: 5 },
        };
        assert_eq!(
            association.options(),
            "transport=tcp,traddr=fd00::7,trsvcid=4421,nqn=nqn.a,\
             hostnqn=nqn.2014-08.org.nvmexpress:uuid:00112233-4455-6677-8899-aabbccddeeff,\
             hostid=00112233-4455-6677-8899-aabbccddeeff,keep_alive_tmo=10,reconnect_delay=2,ctrl_loss_tmo=-1,\
             fast_io_fail_tmo=5"
        );
    }
}
