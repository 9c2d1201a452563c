use super::super::KernelTarget;
use super::super::controller::PassthroughController;
use super::super::request::{Data, Toward};
use super::*;
use crate::contract::Command;
use crate::sysfs::Sysfs;
use ddlp_cause::with_causes;
use ddlp_nvme::Status;
use ddlp_test_support::trees;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// Opens the drive of a planted tree.
fn association(call: SystemCall) -> (TempDir, KernelAssociation) {
    let root = tempfile::tempdir().unwrap();
    trees::plant(root.path(), trees::DISK_AND_DRIVE);
    let association = KernelAssociation::new(Arc::new(Nodes::open(&target(root.path())).unwrap()), call);
    (root, association)
}

fn target(root: &Path) -> KernelTarget {
    let sysfs = Sysfs::at(root.join("sys"), root.join("dev"));
    KernelTarget { sysfs, ..KernelTarget::new(root.join("dev/nvme1")) }
}

fn set_state(root: &Path, state: &str) {
    fs::write(root.join("sys/class/nvme/nvme1/state"), state).unwrap();
}

fn judged(outcome: KernelAnswer, state: &str) -> (Result<Completion, DriverError>, bool) {
    let (root, association) = association(SystemCall::Ioctl);
    set_state(root.path(), state);
    let node = association.nodes().controller();
    let request = Request::new(Toward::Admin, node, &Command::default(), Data::None, Duration::ZERO).unwrap();
    let judged = association.judge(outcome, &request);
    (judged, association.is_lost())
}

#[test]
fn a_status_of_the_controller_is_a_completion() {
    for status in [Status::SUCCESS, Status::INVALID_FIELD.do_not_retry(), Status::NO_PROGRAM] {
        let completion = Completion { result: 7, status: status.0 };
        let (judged, is_lost) = judged(Ok(completion), "live");
        assert_eq!((judged.unwrap(), is_lost), (completion, false), "{status}");
    }
}

#[test]
fn cancelled_commands_and_lost_paths_are_the_end() {
    let path = |code: u16| Ok(Completion { result: 0, status: code });
    let ends = [
        (path(0x370), "live"),
        (path(0x371), "live"),
        (path(0x4370), "live"),
        (Err(Errno::EINTR), "live"),
        (Err(Errno::ENODEV), "live"),
        (Err(Errno::EAGAIN), "live"),
        (Err(Errno::EAGAIN), "connecting"),
        // Without a path, the node of a namespace refuses every command as if it were invalid.
        (Err(Errno::EINVAL), "connecting"),
    ];
    for (outcome, state) in ends {
        let (judged, is_lost) = judged(outcome, state);
        assert!(matches!(judged, Err(DriverError::Lost { .. })) && is_lost, "{outcome:?}, {state}: {judged:?}");
    }
}

#[test]
fn what_the_kernel_does_not_let_through_is_no_loss() {
    for errno in [Errno::EACCES, Errno::EPERM, Errno::EINVAL, Errno::EOPNOTSUPP, Errno::ENOTTY] {
        let (judged, is_lost) = judged(Err(errno), "live");
        assert!(matches!(judged, Err(DriverError::Invalid(_))) && !is_lost, "{errno}: {judged:?}");
    }
}

#[test]
fn nodes_are_held_against_others_and_found_by_nsid() {
    let (root, association) = association(SystemCall::Ioctl);
    association.nodes().hold_generic(&[1, 2, 3]).unwrap();
    association.nodes().hold_generic(&[1, 2, 3]).unwrap();
    assert!(association.nodes().of_namespace(3).is_ok());
    assert!(matches!(association.nodes().of_namespace(9), Err(DriverError::Invalid(_))));
    let other = Nodes::open(&target(root.path())).unwrap();
    assert!(matches!(other.hold_generic(&[1, 2, 3]), Err(DriverError::InUse { .. })));
    let reader = Nodes::open(&target(root.path())).unwrap();
    reader.open_generic(&[1, 2, 3]).unwrap();
    assert!(reader.of_namespace(1).is_ok(), "whoever only reads needs no lock");
    assert!(matches!(reader.hold_generic(&[1, 2, 3]), Err(DriverError::InUse { .. })));
    let in_flight = association.nodes().of_namespace(2).unwrap();
    drop(association);
    assert!(matches!(other.hold_generic(&[1, 2, 3]), Err(DriverError::InUse { .. })), "until the last command is over");
    drop(in_flight);
    other.hold_generic(&[1, 2, 3]).unwrap();
    drop(other);
    reader.hold_generic(&[1, 2, 3]).unwrap();
}

#[test]
fn a_namespace_without_a_node_is_waited_for() {
    let (_root, association) = association(SystemCall::Ioctl);
    let error = association.nodes().hold_generic(&[1, 2, 3, 4]).unwrap_err();
    assert!(error.is_transient() && with_causes(&error).contains("namespace 4"), "{error:?}");
}

#[test]
fn only_a_live_controller_is_opened() {
    let (root, _association) = association(SystemCall::Ioctl);
    for state in ["connecting", "resetting", "deleting"] {
        set_state(root.path(), state);
        let error = PassthroughController::open(&target(root.path())).err().unwrap();
        assert!(error.is_transient() && with_causes(&error).contains(state), "{error:?}");
    }
    let missing = KernelTarget { node: root.path().join("dev/nvme7"), ..target(root.path()) };
    assert!(PassthroughController::open(&missing).err().unwrap().is_transient());
    let namespace = KernelTarget { node: root.path().join("dev/ng1n1"), ..target(root.path()) };
    assert!(matches!(PassthroughController::open(&namespace).err().unwrap(), DriverError::Invalid(_)));
}
