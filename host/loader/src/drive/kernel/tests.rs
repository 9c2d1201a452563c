use super::*;
use ddlp_test_support::trees;
use std::fs;
use std::path::Path;

/// Returns what `find` finds in a tree after `further` changed it, with paths relative to the tree's root.
fn found(tree: &str, further: impl FnOnce(&Path)) -> Result<String, String> {
    let root = tempfile::tempdir().unwrap();
    trees::plant(root.path(), tree);
    further(root.path());
    let rooted = |text: String| text.replace(&*root.path().to_string_lossy(), "");
    find(&Sysfs::at(root.path().join("sys"), root.path().join("dev"))).map(rooted).map_err(rooted)
}

/// Sets an attribute of a controller, and adds the controller if necessary.
fn set(root: &Path, controller: &str, attribute: &str, value: &str) {
    let folder = root.join("sys/class/nvme").join(controller);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(attribute), format!("{value}\n")).unwrap();
}

/// Adds a controller to the subsystem of another one.
fn add(root: &Path, controller: &str, like: &str) {
    for attribute in ["model", "state", "subsysnqn", "cntrltype"] {
        let value = fs::read_to_string(root.join("sys/class/nvme").join(like).join(attribute)).unwrap();
        set(root, controller, attribute, value.trim());
    }
}

#[test]
fn the_one_drive_is_found_beside_other_disks() {
    assert_eq!(found(trees::DISK_AND_DRIVE, |_| ()), Ok("/dev/nvme1".into()));
    assert_eq!(found(trees::NO_MULTIPATH, |_| ()), Ok("/dev/nvme0".into()));
    assert!(found("", |_| ()).unwrap_err().contains("connected to no drive"));
}

#[test]
fn a_drive_without_a_live_path_does_not_count() {
    assert_eq!(found(trees::TWO_DRIVES, |_| ()), Ok("/dev/nvme0".into()));
    let neither = found(trees::TWO_DRIVES, |root| set(root, "nvme0", "state", "connecting"));
    let error = neither.unwrap_err();
    assert!(error.contains("no path to the drive is live") && error.contains("/dev/nvme0 is connecting"), "{error}");
}

#[test]
fn controllers_of_one_subsystem_are_one_drive_in_any_order() {
    assert_eq!(found(trees::TWO_PATHS, |_| ()), Ok("/dev/nvme0".into()));
    let apart = found(trees::TWO_DRIVES, |root| {
        set(root, "nvme3", "state", "live");
        add(root, "nvme5", "nvme0");
    });
    assert!(apart.unwrap_err().ends_with("name one of /dev/nvme0, /dev/nvme3"));
    // The first path is not live.
    let second = found(trees::TWO_PATHS, |root| set(root, "nvme0", "state", "connecting"));
    assert_eq!(second, Ok("/dev/nvme1".into()));
}

#[test]
fn a_discovery_controller_is_not_a_drive() {
    let discovery = |root: &Path| {
        add(root, "nvme4", "nvme0");
        set(root, "nvme4", "subsysnqn", "nqn.2014-08.org.nvmexpress.discovery");
        set(root, "nvme4", "cntrltype", "discovery");
    };
    assert_eq!(found(trees::NO_MULTIPATH, discovery), Ok("/dev/nvme0".into()));
    let alone = found(trees::NO_MULTIPATH, |root| set(root, "nvme0", "cntrltype", "discovery"));
    assert!(alone.unwrap_err().contains("connected to no drive"));
}

#[test]
fn another_device_is_named_and_gets_no_command() {
    let root = tempfile::tempdir().unwrap();
    trees::plant(root.path(), trees::DISK_AND_DRIVE);
    let sysfs = Sysfs::at(root.path().join("sys"), root.path().join("dev"));
    let checked = |node: &str| {
        check_drive(&KernelTarget { sysfs: sysfs.clone(), ..KernelTarget::new(root.path().join("dev").join(node)) })
            .map_err(|error| error.to_string())
    };
    assert_eq!(checked("nvme1"), Ok(()));
    let error = checked("nvme0").unwrap_err();
    assert!(error.contains("QEMU NVMe Ctrl, not a DDLP drive"), "{error}");
    assert!(checked("nvme0n1").unwrap_err().contains("not the node of an NVMe controller"));
}
