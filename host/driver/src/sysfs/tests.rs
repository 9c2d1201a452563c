use super::{ControllerState, KernelController, Sysfs};
use ddlp_test_support::trees;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Plants a tree. The folder is removed when the first value is dropped.
fn planted(tree: &str) -> (TempDir, Sysfs) {
    let root = tempfile::tempdir().unwrap();
    trees::plant(root.path(), tree);
    let sysfs = Sysfs::at(root.path().join("sys"), root.path().join("dev"));
    (root, sysfs)
}

/// Returns NSID, generic node, block node and size of each namespace, with the nodes' paths below the real root.
fn nodes(root: &TempDir, controller: &KernelController) -> Vec<(u32, String, String, u64)> {
    let name = |path: &Option<PathBuf>| {
        path.as_ref().map_or(String::new(), |path| {
            assert!(path.exists(), "{}", path.display());
            format!("/{}", path.strip_prefix(root.path()).unwrap().display())
        })
    };
    let namespaces = controller.namespaces.iter();
    namespaces.map(|entry| (entry.nsid, name(&entry.generic), name(&entry.block), entry.bytes)).collect()
}

fn row(nsid: u32, generic: &str, block: &str, bytes: u64) -> (u32, String, String, u64) {
    (nsid, generic.to_string(), block.to_string(), bytes)
}

const DATASET_BYTES: u64 = 128 << 20;
const RESULTS_BYTES: u64 = 256 << 20;

#[test]
fn a_drive_is_read_whole() {
    let (root, sysfs) = planted(trees::DISK_AND_DRIVE);
    let drive = sysfs.controller("nvme1").unwrap();
    assert_eq!(drive.node, root.path().join("dev/nvme1"));
    assert_eq!(
        [&*drive.model, &*drive.serial, &*drive.firmware_rev, &*drive.transport],
        ["DDLP computational storage", "DDLP0001", "0.1.0", "tcp"]
    );
    assert_eq!(drive.address, "traddr=10.0.0.7,trsvcid=4420,src_addr=10.0.0.2");
    assert_eq!((drive.traddr.as_deref(), drive.trsvcid.as_deref()), (Some("10.0.0.7"), Some("4420")));
    assert_eq!(drive.state, ControllerState::Live);
    assert_eq!(drive.subsysnqn, "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555");
    assert_eq!((drive.subsystem.as_deref(), drive.cntlid), (Some("nvme-subsys1"), Some(1)));
    assert!(drive.cntrltype.as_deref() == Some("io") && drive.serves_io());
    assert_eq!((drive.kato, drive.reconnect_delay), (Some(10), Some(2)));
    assert_eq!((drive.fast_io_fail_tmo, drive.ctrl_loss_tmo), (Some(5), Some(600)));
    assert!(drive.is_fabric() && drive.hostnqn.unwrap().ends_with("6f6f1d2c3b4a"));
}

#[test]
fn namespaces_are_found_by_nsid_whatever_their_nodes_are_called() {
    let (root, sysfs) = planted(trees::DISK_AND_DRIVE);
    let drive = sysfs.controller("nvme1").unwrap();
    let expected = [
        row(1, "/dev/ng1n3", "/dev/nvme1n3", DATASET_BYTES),
        row(2, "/dev/ng1n1", "/dev/nvme1n1", RESULTS_BYTES),
        row(3, "/dev/ng1n2", "", 0),
    ];
    assert_eq!(nodes(&root, &drive), expected);
    assert_eq!(drive.namespace(2).unwrap().generic.as_deref(), Some(&*root.path().join("dev/ng1n1")));
    assert_eq!(drive.namespace(4), None);

    let (root, sysfs) = planted(trees::NO_MULTIPATH);
    let expected = [
        row(1, "/dev/ng0n3", "/dev/nvme0n3", DATASET_BYTES),
        row(2, "/dev/ng0n1", "/dev/nvme0n1", RESULTS_BYTES),
        row(3, "/dev/ng0n2", "", 0),
    ];
    assert_eq!(nodes(&root, &sysfs.controller("nvme0").unwrap()), expected);
}

#[test]
fn nodes_are_called_after_the_subsystem_and_not_after_the_controller() {
    let (root, sysfs) = planted(trees::TWO_DRIVES);
    let drive = sysfs.controller("nvme3").unwrap();
    assert_eq!((drive.state.as_str(), drive.subsystem.as_deref()), ("connecting", Some("nvme-subsys1")));
    assert_eq!((drive.ctrl_loss_tmo, drive.fast_io_fail_tmo), (None, Some(5)));
    let expected = [
        row(1, "/dev/ng1n2", "/dev/nvme1n2", DATASET_BYTES),
        row(2, "/dev/ng1n3", "/dev/nvme1n3", RESULTS_BYTES),
        row(3, "/dev/ng1n1", "", 0),
    ];
    assert_eq!(nodes(&root, &drive), expected);
}

#[test]
fn two_paths_to_one_drive_share_its_nodes() {
    let (root, sysfs) = planted(trees::TWO_PATHS);
    let [first, second] = &sysfs.controllers().unwrap()[..] else { panic!("two controllers") };
    assert_eq!((first.cntlid, second.cntlid), (Some(1), Some(2)));
    assert_eq!((&first.subsysnqn, &first.subsystem), (&second.subsysnqn, &second.subsystem));
    assert_ne!((&first.node, &first.trsvcid), (&second.node, &second.trsvcid));
    assert_eq!(nodes(&root, first), nodes(&root, second));
    assert_eq!(nodes(&root, first)[2], row(3, "/dev/ng0n2", "", 0));
}

#[test]
fn an_ordinary_disk_is_read_as_well() {
    let (root, sysfs) = planted(trees::DISK_AND_DRIVE);
    let disk = sysfs.controller("nvme0").unwrap();
    assert_eq!((&*disk.model, &*disk.transport, &*disk.address), ("QEMU NVMe Ctrl", "pcie", "0000:00:04.0"));
    assert_eq!((&disk.traddr, disk.fast_io_fail_tmo, disk.is_fabric()), (&None, None, false));
    // A partition is not a namespace.
    assert_eq!(nodes(&root, &disk), [row(1, "/dev/ng0n1", "/dev/nvme0n1", 8 << 30)]);
}

#[test]
fn controllers_come_in_the_order_of_their_numbers_and_other_names_are_left_out() {
    let (root, sysfs) = planted(trees::TWO_DRIVES);
    let class = root.path().join("sys/class/nvme");
    for name in ["nvme10", "nvme2", "nvme", "nvme-x"] {
        fs::create_dir(class.join(name)).unwrap();
        fs::write(class.join(name).join("state"), "new\n").unwrap();
    }
    // A controller that is registered without attributes is about to go.
    fs::create_dir(class.join("nvme11")).unwrap();
    let names: Vec<String> = sysfs.controllers().unwrap().into_iter().map(|controller| controller.name).collect();
    assert_eq!(names, ["nvme0", "nvme2", "nvme3", "nvme10"]);
}

#[test]
fn a_namespace_without_nodes_yet_is_listed_without_them() {
    let (root, sysfs) = planted(trees::TWO_DRIVES);
    let heads = root.path().join("sys/devices/virtual/nvme-subsystem/nvme-subsys0");
    fs::remove_dir_all(heads.join("nvme0n2")).unwrap();
    fs::remove_dir_all(heads.join("ng0n2")).unwrap();
    let drive = sysfs.controller("nvme0").unwrap();
    assert_eq!(nodes(&root, &drive)[1], row(2, "", "", RESULTS_BYTES));
    // A disk with an unknown NSID does not count.
    fs::remove_file(drive.folder.join("nvme0c0n3/nsid")).unwrap();
    assert_eq!(sysfs.controller("nvme0").unwrap().namespaces.len(), 2);
}

#[test]
fn state_is_read_alone() {
    let (root, sysfs) = planted(trees::TWO_DRIVES);
    assert_eq!(sysfs.state("nvme3").unwrap(), ControllerState::Connecting);
    let file = root.path().join("sys/class/nvme/nvme3/state");
    for (word, state) in [
        ("deleting (no IO)", ControllerState::Deleting),
        ("dead", ControllerState::Dead),
        ("frozen", ControllerState::Other("frozen".into())),
    ] {
        fs::write(&file, format!("{word}\n")).unwrap();
        assert_eq!(sysfs.state("nvme3").unwrap(), state);
    }
    assert_eq!(sysfs.state("nvme7").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_machine_without_the_driver_has_no_controllers() {
    let (_root, sysfs) = planted("");
    assert!(sysfs.controllers().unwrap().is_empty());
    let error = sysfs.controller("nvme0").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("nvme0"), "{error}");
}

#[test]
fn names_and_nodes_lead_nowhere_else() {
    let (root, sysfs) = planted(trees::DISK_AND_DRIVE);
    for name in ["", "nvme", "nvme0/../nvme1", "../nvme0", "nvme-1", "nvme0n1", "nvme+1", "ng0n1"] {
        assert_eq!(sysfs.controller(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
        assert_eq!(sysfs.state(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
    }
    let dev = root.path().join("dev");
    assert_eq!(sysfs.controller_at(&dev.join("nvme1")).unwrap().name, "nvme1");
    assert_eq!(sysfs.controller_at(&dev.join("nvme9")).unwrap_err().kind(), ErrorKind::NotFound);
    for node in [dev.join("nvme1n1"), dev.join("ng1n2"), root.path().join("nvme1"), Path::new("nvme1").to_owned()] {
        assert_eq!(sysfs.controller_at(&node).unwrap_err().kind(), ErrorKind::InvalidInput, "{}", node.display());
    }
}
