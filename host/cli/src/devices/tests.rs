use super::survey::DeviceSurvey;
use crate::kernel::planted::{Planted, kernel, locked};
use ddlp_test_support::trees;
use serde_json::Value;
use std::fs;

const OLD: &str = "6.1.0-44-amd64";
const NEW: &str = "6.12.117+deb12-amd64";

fn json(planted: &Planted) -> Value {
    let survey = DeviceSurvey::of(&planted.kernel).unwrap();
    serde_json::from_str(&planted.rooted(&serde_json::to_string(&survey).unwrap())).unwrap()
}

fn text(planted: &Planted, all: bool) -> String {
    planted.rooted(&DeviceSurvey::of(&planted.kernel).unwrap().to_text(all))
}

/// Takes this process's capabilities away in the planted kernel.
fn as_a_user(planted: &Planted) {
    planted.write("proc/self/status", "CapEff:\t0000000000000000\n");
}

/// Returns why this process cannot do the named thing with the drive.
fn way<'a>(drive: &'a Value, name: &str) -> &'a Value {
    let ways = drive["ways"].as_array().unwrap();
    &ways.iter().find(|way| way["way"] == name).unwrap_or_else(|| panic!("{name}: {ways:?}"))["missing"]
}

#[test]
fn a_drive_and_a_disk_are_told_apart_and_described() {
    let planted = kernel(trees::DISK_AND_DRIVE, NEW);
    let expected = "\
/dev/nvme1  DDLP computational storage, firmware 0.1.0, serial number DDLP0001
  usable         yes: ddlp run DATASET --drive /dev/nvme1
  nqn            nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555
  reached by     tcp at 10.0.0.7, port 4420
  state          live, keep alive 10 s, reconnects every 2 s for 600 s, commands fail 5 s after a loss
  namespaces     1  dataset     134 MB   /dev/nvme1n3  /dev/ng1n3
                 2  results     268 MB   /dev/nvme1n1  /dev/ng1n1
                 3  compute          –   /dev/ng1n2
  this user can  load the program       yes
                 execute it             yes
                 read its results       yes
                 keep other runs away   yes
                 use io_uring           yes

not DDLP drives:
  /dev/nvme0  QEMU NVMe Ctrl, pcie at 0000:00:04.0, live
";
    assert_eq!(text(&planted, false), expected);
    planted.write("etc/nvme/hostnqn", "nqn.2024-01.example:host\n");
    let host = "this host's NQN, by which drives on a network know it: nqn.2024-01.example:host\n";
    assert_eq!(text(&planted, false), expected.replace("not DDLP drives", &format!("{host}\nnot DDLP drives")));
    let all = text(&planted, true);
    assert!(all.contains("  nqn            nqn.2019-08.org.qemu:deadbeef\n"), "{all}");
    assert!(all.contains("namespaces     1             8.59 GB   /dev/nvme0n1  /dev/ng0n1\n"), "{all}");
}

#[test]
fn json_names_everything() {
    let found = json(&kernel(trees::DISK_AND_DRIVE, NEW));
    assert_eq!(found["kernel"]["nvme_tcp"], "loaded");
    assert_eq!(found["kernel"]["io_uring"], "available");
    let drive = &found["drives"][0];
    assert_eq!((&drive["usable"], &drive["node"]["path"]), (&true.into(), &"/dev/nvme1".into()));
    assert_eq!((&drive["state"], &drive["fast_io_fail_s"]), (&"live".into(), &5.into()));
    let results = &drive["namespaces"][1];
    assert_eq!((&results["nsid"], &results["role"]), (&2.into(), &"results".into()));
    assert_eq!(results["block"]["path"], "/dev/nvme1n1");
    assert_eq!((&drive["problems"], &drive["warnings"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    assert_eq!(
        (&found["others"][0]["model"], found["others"].as_array().unwrap().len()),
        (&"QEMU NVMe Ctrl".into(), 1)
    );
    assert_eq!(found["others"][0]["namespaces"][0]["role"], Value::Null);
}

#[test]
fn the_documentation_connects_as_the_advice_does() {
    let command = super::advice::connect_command(None).replace("HOST", "10.0.0.7");
    let documentation = include_str!("../../../../docs/drives.md");
    assert!(documentation.lines().any(|line| line == command), "{command}");
}

#[test]
fn without_a_drive_it_says_how_to_get_one() {
    let planted = kernel("", NEW);
    let said = text(&planted, false);
    assert!(said.starts_with("no DDLP drive is known to this machine's kernel (6.12.117+deb12-amd64)\n"), "{said}");
    assert!(said.contains("nvme-tcp       not installed") && !said.contains("nvme connect"), "{said}");
    planted.write(&format!("lib/modules/{NEW}/modules.dep"), "kernel/drivers/nvme/host/nvme-tcp.ko.xz:\n");
    let said = text(&planted, false);
    assert!(
        said.contains("to do          sudo modprobe nvme-tcp\n")
            && said.contains("sudo nvme connect -t tcp -a HOST -s 4420 -n NQN --reconnect-delay=2 "),
        "{said}"
    );
    planted.write("sys/module/nvme_tcp/refcnt", "0");
    assert!(!text(&planted, false).contains("modprobe"));
    // nvme-cli knows only its own file.
    let id = "11111111-2222-4333-8444-555555555555";
    let own = format!("nqn.2014-08.org.nvmexpress:uuid:{id}");
    planted.write("var/lib/ddlp/hostnqn", &own);
    assert!(text(&planted, false).contains(&format!(" --hostnqn={own} --hostid={id}\n")));
    planted.write("etc/nvme/hostnqn", "nqn.2024-01.example:host\n");
    assert!(!text(&planted, false).contains(" --hostnqn"));
    assert!(text(&planted, false).contains("this host      nqn.2024-01.example:host\n"));
    let found = json(&planted);
    assert_eq!(found["kernel"]["host_nqn"], "nqn.2024-01.example:host");
    assert_eq!((&found["drives"], &found["others"]), (&Value::Array(vec![]), &Value::Array(vec![])));
}

#[test]
fn a_user_is_told_which_right_is_missing_and_why() {
    let planted = kernel(trees::NO_MULTIPATH, OLD);
    as_a_user(&planted);
    let drive = &json(&planted)["drives"][0];
    assert_eq!(drive["usable"], false);
    for name in ["load the program", "execute it", "read its results"] {
        assert_eq!(way(drive, name), "needs root (CAP_SYS_ADMIN)", "{name}");
    }
    assert_eq!(way(drive, "keep other runs away"), &Value::Null);
    let remedies = &drive["problems"][0]["remedies"];
    assert_eq!(remedies[0], "run as root");
    assert!(remedies[1].as_str().unwrap().contains("sudo setcap cap_sys_admin+ep"), "{remedies}");
    let tcp = remedies[2].as_str().unwrap();
    assert!(tcp.contains("--drive tcp://10.0.0.7:4420/nqn.2014-08.org.nvmexpress:uuid:1111"), "{tcp}");

    // A newer kernel lets I/O through, but never admin commands.
    planted.write("proc/sys/kernel/osrelease", "6.1.99");
    assert_eq!(way(&json(&planted)["drives"][0], "execute it"), "needs root (CAP_SYS_ADMIN)");
    planted.write("proc/sys/kernel/osrelease", "6.2.0");
    let drive = &json(&planted)["drives"][0];
    assert_eq!((way(drive, "execute it"), way(drive, "read its results")), (&Value::Null, &Value::Null));
    assert_eq!(way(drive, "load the program"), "needs root (CAP_SYS_ADMIN)");
    assert_eq!(drive["usable"], false);
}

#[test]
fn a_drive_that_would_hang_a_process_is_warned_of() {
    let planted = kernel(trees::NO_MULTIPATH, OLD);
    let drive = &json(&planted)["drives"][0];
    assert_eq!((&drive["usable"], &drive["fast_io_fail_s"]), (&true.into(), &Value::Null));
    let warning = &drive["warnings"][0];
    assert!(warning["what"].as_str().unwrap().contains("waits for up to 600 s"), "{warning}");
    assert_eq!(warning["remedies"][0], "echo 5 | sudo tee /sys/class/nvme/nvme0/fast_io_fail_tmo");
    planted.write("sys/class/nvme/nvme0/ctrl_loss_tmo", "off\n");
    let warning = &json(&planted)["drives"][0]["warnings"][0];
    assert!(warning["what"].as_str().unwrap().contains("waits for as long as the drive is lost"), "{warning}");
    let said = text(&planted, false);
    assert!(
        said.contains("  warning        fast_io_fail_tmo is off") && said.contains("    to do        echo 5"),
        "{said}"
    );
}

#[test]
fn a_drive_that_another_process_uses_is_not_usable() {
    let planted = kernel(trees::TWO_DRIVES, NEW);
    planted.write("proc/locks", &locked(&planted.kernel.path("dev/ng0n2"), 4711));
    let found = json(&planted);
    assert_eq!(
        (&found["drives"][0]["usable"], &found["drives"][0]["held_by"]["process"]),
        (&false.into(), &4711.into())
    );
    assert_eq!(found["drives"][1]["held_by"], Value::Null);
    assert!(text(&planted, false).contains("problem        process 4711 uses the drive, and only one run at a time"));
    planted.write("proc/4711/comm", "ddlp\n");
    assert!(text(&planted, false).contains("problem        process 4711 (ddlp) uses the drive"));
    planted.write("proc/locks", &locked(&planted.kernel.path("dev/nvme0"), 4711));
    assert_eq!(json(&planted)["drives"][0]["usable"], true, "the controller's node is nobody's own");
}

#[test]
fn a_drive_that_is_away_is_not_usable() {
    let planted = kernel(trees::TWO_DRIVES, NEW);
    let found = json(&planted);
    assert_eq!((&found["drives"][0]["usable"], &found["drives"][1]["usable"]), (&true.into(), &false.into()));
    let problem = &found["drives"][1]["problems"][0];
    assert_eq!(problem["what"], "the drive is connecting, and takes no commands");
    assert_eq!(problem["remedies"][1], "give it up: sudo nvme disconnect -d nvme3");
    let said = text(&planted, false);
    assert!(said.contains("reconnects every 2 s for ever"), "{said}");
}

#[test]
fn missing_nodes_and_namespaces_are_named() {
    let planted = kernel(trees::TWO_DRIVES, NEW);
    fs::remove_file(planted.kernel.path("dev/ng0n3")).unwrap();
    let drive = &json(&planted)["drives"][0];
    assert_eq!(way(drive, "execute it"), "/dev/ng0n3 does not exist");
    assert!(drive["problems"][0]["what"].as_str().unwrap().starts_with("/dev/ng0n3 missing"), "{drive}");

    let folder = planted.kernel.path("sys/devices/virtual/nvme-fabrics/ctl/nvme0");
    fs::remove_dir_all(folder.join("nvme0c0n3")).unwrap();
    let drive = &json(&planted)["drives"][0];
    assert_eq!(drive["problems"][0]["what"], "the kernel has not taken over namespace 3 (compute)");
    assert_eq!(way(drive, "execute it"), "the kernel shows no node for it");
}

#[test]
fn all_generic_nodes_are_needed_and_no_block_node() {
    let planted = kernel(trees::NO_MULTIPATH, OLD);
    fs::remove_file(planted.kernel.path("dev/nvme0n1")).unwrap();
    fs::remove_file(planted.kernel.path("dev/nvme0n3")).unwrap();
    assert_eq!(json(&planted)["drives"][0]["usable"], true);
    // The dataset's node is needed too: it is locked like the others.
    fs::remove_file(planted.kernel.path("dev/ng0n3")).unwrap();
    let drive = &json(&planted)["drives"][0];
    assert_eq!(
        (&drive["usable"], way(drive, "keep other runs away")),
        (&false.into(), &"/dev/ng0n3 does not exist".into())
    );
    assert_eq!(way(drive, "read its results"), &Value::Null);
}

#[test]
fn io_uring_is_not_needed() {
    let planted = kernel(trees::NO_MULTIPATH, NEW);
    planted.write("proc/sys/kernel/io_uring_disabled", "2\n");
    let drive = &json(&planted)["drives"][0];
    assert_eq!(drive["usable"], true);
    assert_eq!(way(drive, "use io_uring"), "kernel.io_uring_disabled is 2; ioctl is used instead");
}

#[test]
fn two_paths_to_a_drive_name_each_other() {
    let said = text(&kernel(trees::TWO_PATHS, OLD), false);
    assert!(said.contains("also through   /dev/nvme1\n") && said.contains("also through   /dev/nvme0\n"), "{said}");
}

#[test]
fn nodes_that_are_closed_to_this_user_are_named_with_the_udev_rule() {
    use super::facts::Device;
    use super::survey::SurveyedDrive;
    let planted = kernel(trees::NO_MULTIPATH, NEW);
    for readable in [true, false] {
        let mut survey = DeviceSurvey::of(&planted.kernel).unwrap();
        // Tests may run as root, who may use every node.
        let mut device: Device = survey.drives.remove(0).device;
        for namespace in &mut device.namespaces {
            for node in namespace.block.iter_mut().chain(&mut namespace.generic) {
                (node.readable, node.writable) = (readable, false);
            }
        }
        let drive = SurveyedDrive::assess(device, vec![], None, &survey.kernel);
        assert!(!drive.usable);
        let problem = &drive.problems[0];
        assert!(planted.rooted(&problem.what).ends_with(" /dev/ng0n3, /dev/ng0n1, /dev/ng0n2"), "{}", problem.what);
        assert!(problem.remedies[1].contains("packaging/udev/60-ddlp.rules"));
    }
}

#[test]
fn a_drives_names_cannot_steer_the_terminal() {
    let planted = kernel(trees::DISK_AND_DRIVE, NEW);
    let folder = "sys/devices/pci0000:00/0000:00:04.0/nvme/nvme0";
    planted.write(&format!("{folder}/model"), "evil \u{1b}[2J disk\n");
    for all in [false, true] {
        assert!(!text(&planted, all).contains('\u{1b}'));
    }
}

#[test]
fn no_line_is_wider_than_a_terminal_unless_a_word_is() {
    let planted = kernel(trees::NO_MULTIPATH, OLD);
    as_a_user(&planted);
    let said = text(&planted, false) + &text(&kernel("", OLD), false);
    for line in said.lines() {
        let words = line.trim_start().split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
        assert!(line.chars().count() <= 118.max(words + 17), "{line}");
    }
    let whole = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        whole.contains("when the drive is lost, a read of its blocks waits for up to 600 s, and a process that"),
        "{said}"
    );
}
