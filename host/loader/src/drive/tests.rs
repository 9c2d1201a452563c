use super::*;
use ddlp_driver::Host;
use ddlp_test_support::trees;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const URL: &str = "tcp://127.0.0.1:1/nqn.2024-01.org.example:a";

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

fn identity(endpoint: &Endpoint) -> HostIdentity {
    match &endpoint.target {
        Target::Tcp(tcp) => tcp.host.clone(),
        Target::Kernel(_) => panic!("it is reached by tcp"),
    }
}

fn machine() -> (TempDir, Host) {
    let root = tempfile::tempdir().unwrap();
    let host = Host::at(root.path(), None);
    (root, host)
}

#[test]
fn endpoints_of_one_machine_share_its_nqn_but_not_their_host_id() {
    let (_root, host) = machine();
    let ends = [(); 2].map(|()| Endpoint::remote(URL, &host).unwrap());
    let [first, second] = [identity(&ends[0]), identity(&ends[1])];
    assert_eq!((Some(&first.nqn), &first.nqn), (host.known().as_ref(), &second.nqn));
    assert_ne!(first.id, second.id);
    assert!(ends[0].allow().ends_with(&first.nqn), "{}", ends[0].allow());
}

#[test]
fn an_nqn_that_cannot_be_saved_lasts_for_one_run_and_the_hint_says_so() {
    let (root, host) = machine();
    fs::write(root.path().join("var"), "no folder").unwrap();
    let end = Endpoint::remote(URL, &host).unwrap();
    let again = identity(&Endpoint::remote(URL, &host).unwrap());
    assert_ne!(identity(&end).nqn, again.nqn);
    assert!(end.allow().contains("--host-nqn") && !end.allow().contains(&again.nqn), "{}", end.allow());
}

#[test]
fn an_invalid_nqn_is_an_error_that_names_the_file() {
    let (root, host) = machine();
    fs::create_dir_all(root.path().join("etc/nvme")).unwrap();
    fs::write(root.path().join("etc/nvme/hostnqn"), "garbage\n").unwrap();
    let error = Endpoint::remote(URL, &host).map(drop).unwrap_err();
    assert!(error.contains("etc/nvme/hostnqn") && error.contains("garbage"), "{error}");
}

#[test]
fn drives_behind_the_kernel_need_no_nqn() {
    let (root, host) = machine();
    let error = Endpoint::remote("/dev/nvme4095", &host).map(drop).unwrap_err();
    assert!(error.starts_with("there is no /dev/nvme4095; `ddlp devices`"), "{error}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn another_device_is_named_and_gets_no_command() {
    let root = tempfile::tempdir().unwrap();
    trees::plant(root.path(), trees::DISK_AND_DRIVE);
    let sysfs = Sysfs::at(root.path().join("sys"), root.path().join("dev"));
    let checked = |node: &str| {
        check_drive(&KernelTarget { sysfs: sysfs.clone(), ..KernelTarget::new(root.path().join("dev").join(node)) })
    };
    assert_eq!(checked("nvme1"), Ok(()));
    let error = checked("nvme0").unwrap_err();
    assert!(error.contains("QEMU NVMe Ctrl, not a DDLP drive"), "{error}");
    assert!(checked("nvme0n1").unwrap_err().contains("not the node of an NVMe controller"));
}
