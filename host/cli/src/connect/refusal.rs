//! Why the kernel did not connect, for a person.
//!
//! The kernel answers with an error number, and with the same one for most of what a drive may say. Where the number does not
//! tell, this program asks the drive itself, as the same host, and reports its answer.

use super::fabrics::Association;
use crate::devices::advice::module_remedy;
use crate::kernel::Kernel;
use anyhow::anyhow;
use ddlp_driver::DriverError;
use ddlp_driver::tcp::{self, TcpTarget};
use ddlp_nvme::Status;
use nix::errno::Errno;
use std::io;
use std::time::Duration;

/// Until a drive has said that it takes this host.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What to say instead of the kernel's error.
pub fn explain(kernel: &Kernel, association: &Association, error: io::Error) -> anyhow::Error {
    let Some(number) = error.raw_os_error().map(Errno::from_raw) else {
        return anyhow::Error::new(error).context("cannot connect the drive");
    };
    let what = match number {
        Errno::EALREADY | Errno::EINPROGRESS | Errno::EEXIST => already(kernel, association),
        Errno::EPERM | Errno::EACCES => "connecting needs root; try sudo".to_string(),
        Errno::EINVAL => match module_remedy(kernel.nvme_tcp(), &kernel.release()) {
            Some(remedy) => format!("the kernel knows no tcp: {remedy}"),
            None => "the kernel refuses the options, and its log (dmesg) says which one: another host NQN with the same host \
                     identifier may be in use"
                .to_string(),
        },
        _ => match ask(association) {
            Ok(()) => {
                "the kernel could not connect, though the drive answers this program: the kernel's log (dmesg) says why"
                    .to_string()
            }
            Err(answer) => return refused(association, answer),
        },
    };
    anyhow::Error::new(error).context(what)
}

/// The controller that is there already.
fn already(kernel: &Kernel, association: &Association) -> String {
    let controllers = kernel.sysfs.controllers().unwrap_or_default();
    let port = association.place.port.to_string();
    let there = controllers.iter().find(|controller| {
        controller.subsysnqn == association.nqn
            && controller.traddr.as_deref() == Some(&*association.place.address)
            && controller.trsvcid.as_deref() == Some(&*port)
    });
    match there {
        Some(there) => {
            let node = there.node.display();
            format!("the drive is connected already, as {node}: use it, or first ddlp disconnect {node}")
        }
        None => "the drive is connected already, or is being connected: ddlp devices shows it".to_string(),
    }
}

/// Connects as the kernel would, without it.
pub fn ask(association: &Association) -> Result<(), DriverError> {
    let address = &association.place.address;
    let host = if address.contains(':') { format!("[{address}]") } else { address.clone() };
    let mut target = TcpTarget::new(&format!("{host}:{}", association.place.port), &association.nqn)?;
    target.host = association.host.clone();
    target.connect_timeout = ANSWER_WITHIN;
    tcp::connect(&target).map(drop)
}

/// What a drive's refusal of this host means.
pub fn not_allowed(host_nqn: &str) -> String {
    format!(
        "the drive does not serve this host: its list of allowed hosts must name {host_nqn}, or --host-nqn a host that it names"
    )
}

/// What a drive's answer means.
pub fn refused(association: &Association, answer: DriverError) -> anyhow::Error {
    let DriverError::Status { code, .. } = &answer else {
        return anyhow!(answer).context("the drive cannot be connected");
    };
    let status = Status(*code);
    let what = if status.same_code(Status::CONNECT_INVALID_HOST) {
        not_allowed(&association.host.nqn)
    } else if status.same_code(Status::CONNECT_PARAMETERS) {
        format!(
            "the drive at {} does not take the connection: is {} its NQN? `ddlp-device serve` prints it when it starts",
            association.place.address, association.nqn
        )
    } else {
        "the drive refuses the connection".to_string()
    };
    anyhow!(answer).context(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::fabrics::Timing;
    use crate::connect::peer::Place;
    use crate::kernel::planted::kernel;
    use ddlp_driver::HostIdentity;
    use ddlp_test_support::trees;
    use std::net::TcpListener;
    use std::thread;

    fn association(address: &str, port: u16) -> Association {
        Association {
            place: Place { address: address.into(), port },
            nqn: "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555".into(),
            host: HostIdentity::from_uuid([7; 16]),
            timing: Timing { keep_alive_s: 10, reconnect_delay_s: 2, ctrl_loss_s: 600, fast_io_fail_s: 5 },
        }
    }

    fn explained(association: &Association, number: Errno) -> String {
        let planted = kernel(trees::DISK_AND_DRIVE, "6.12.1");
        let error = explain(&planted.kernel, association, io::Error::from(number));
        planted.rooted(&format!("{error:#}"))
    }

    #[test]
    fn a_drive_that_is_connected_already_is_named() {
        let there = explained(&association("10.0.0.7", 4420), Errno::EALREADY);
        assert!(
            there.contains("connected already, as /dev/nvme1: use it, or first ddlp disconnect /dev/nvme1"),
            "{there}"
        );
        let elsewhere = explained(&association("10.0.0.8", 4420), Errno::EALREADY);
        assert!(elsewhere.contains("ddlp devices shows it"), "{elsewhere}");
    }

    #[test]
    fn errors_that_speak_for_themselves_are_explained_without_asking() {
        // Nothing listens there: asking would be an error of its own.
        let nowhere = association("127.0.0.1", 1);
        assert!(explained(&nowhere, Errno::EPERM).contains("needs root"));
        assert!(explained(&nowhere, Errno::EINVAL).contains("dmesg"));
    }

    #[test]
    fn where_the_number_does_not_tell_the_drive_is_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let peer = thread::spawn(move || drop(listener.accept().unwrap()));
        let said = explained(&association("127.0.0.1", port), Errno::EIO);
        peer.join().unwrap();
        assert!(said.starts_with("the drive cannot be connected: no connection to "), "{said}");
    }

    #[test]
    fn answers_of_a_drive_are_told_apart() {
        let status = |code| DriverError::Status {
            peer: "tcp://10.0.0.7:4420".into(),
            what: "Connect".into(),
            status: "refused".into(),
            code,
        };
        let said = |code| format!("{:#}", refused(&association("10.0.0.7", 4420), status(code)));
        assert!(said(0x4184).contains(":uuid:07070707-") && said(0x4184).contains("allowed hosts"));
        assert!(said(0x4182).contains("is nqn.2014-08.org.nvmexpress:uuid:1111"));
        assert!(said(0x0006).starts_with("the drive refuses the connection"));
    }
}
