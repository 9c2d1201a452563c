use super::*;
use std::thread;
use tempfile::TempDir;

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
const ID: [u8; 16] = *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff";

/// A machine without files, and a user with a home.
struct Machine {
    root: TempDir,
    host: Host,
}

fn machine() -> Machine {
    let root = tempfile::tempdir().unwrap();
    let host = Host::at(root.path(), Some(root.path().join("home/.local/state")));
    Machine { host, root }
}

impl Machine {
    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Makes sure that nothing can be kept below this path.
    fn close(&self, path: &str) {
        self.write(path, "a file where a folder would be");
    }
}

#[test]
fn uuids_are_read() {
    assert_eq!(uuid(UUID), Some(ID));
    for wrong in ["", "00112233445566778899aabbccddeeff", "00000000-0000-0000-0000-000000000000", &UUID[1..]] {
        assert_eq!(uuid(wrong), None, "{wrong}");
    }
    assert_eq!(uuid("0011223-34455-6677-8899-aabbccddeeff"), None);
    assert_eq!(uuid("+0112233-4455-6677-8899-aabbccddeeff"), None);
}

#[test]
fn identities_are_uuids() {
    assert_eq!(HostIdentity::from_uuid(ID).nqn, format!("nqn.2014-08.org.nvmexpress:uuid:{UUID}"));
    let random = HostIdentity::random().unwrap();
    assert_eq!((random.id[6] >> 4, random.id[8] >> 6), (4, 2));
    assert_ne!(random, HostIdentity::random().unwrap());
}

#[test]
fn the_nqn_is_kept_and_each_run_is_a_host_of_its_own() {
    let machine = machine();
    assert_eq!(machine.host.known(), None);
    let first = machine.host.identity().unwrap();
    let second = machine.host.identity().unwrap();
    assert_eq!(first.nqn, second.nqn);
    assert_ne!(first.id, second.id);
    assert_eq!(machine.host.known(), Some(first.nqn.clone()));
    assert_eq!(fs::read_to_string(machine.path(KEPT_FILE)).unwrap(), format!("{}\n", first.nqn));
    assert!(!machine.path("home").exists(), "one place is enough");
}

#[test]
fn the_kernel_has_one_identifier_for_the_same_nqn() {
    let machine = machine();
    let run = machine.host.identity().unwrap();
    let pair = machine.host.kernel_identity().unwrap();
    assert_eq!(pair, machine.host.kernel_identity().unwrap());
    assert_eq!(pair, HostIdentity::from_uuid(pair.id));
    assert_eq!(pair.nqn, run.nqn);
    assert_ne!(pair.id, run.id);
}

#[test]
fn that_of_nvme_cli_counts_most_then_that_of_the_machine() {
    let machine = machine();
    machine.write("home/.local/state/ddlp/hostnqn", "nqn.2024-01.example:user\n");
    assert_eq!(machine.host.identity().unwrap().nqn, "nqn.2024-01.example:user");
    assert!(!machine.path(KEPT_FILE).exists(), "there was one");
    machine.write(KEPT_FILE, "\n nqn.2024-01.example:kept \n");
    assert_eq!(machine.host.identity().unwrap().nqn, "nqn.2024-01.example:kept");
    machine.write(NQN_FILE, "nqn.2024-01.example:host\n");
    assert_eq!(machine.host.identity().unwrap().nqn, "nqn.2024-01.example:host");
    assert_eq!(machine.host.known().as_deref(), Some("nqn.2024-01.example:host"));

    // A run needs only an NQN, the kernel needs an identifier as well.
    let error = machine.host.kernel_identity().unwrap_err().to_string();
    assert!(error.contains("does not end in a UUID") && error.ends_with("etc/nvme/hostid"), "{error}");
    machine.write(ID_FILE, &format!("{UUID}\n"));
    assert_eq!(machine.host.kernel_identity().unwrap().id, ID);
}

#[test]
fn a_user_who_may_not_write_the_machines_state_keeps_one_of_their_own() {
    let machine = machine();
    machine.close("var/lib/ddlp");
    let identity = machine.host.identity().unwrap();
    let kept = fs::read_to_string(machine.path("home/.local/state/ddlp/hostnqn")).unwrap();
    assert_eq!(kept, format!("{}\n", identity.nqn));
    assert_eq!(machine.host.identity().unwrap().nqn, identity.nqn);
}

#[test]
fn nowhere_to_keep_it_is_an_error_of_its_own() {
    let machine = machine();
    machine.close("var");
    machine.close("home");
    for host in [&machine.host, &Host::at(machine.root.path(), None)] {
        assert!(matches!(host.identity().unwrap_err(), HostError::Keep(..)));
        assert!(matches!(host.kernel_identity().unwrap_err(), HostError::Keep(..)));
        assert_eq!(host.known(), None);
    }
}

#[test]
fn first_runs_at_once_agree_and_leave_one_file() {
    let machine = machine();
    let made: Vec<String> = thread::scope(|scope| {
        let runs: Vec<_> = (0..16).map(|_| scope.spawn(|| machine.host.identity().unwrap().nqn)).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert!(made.iter().all(|nqn| *nqn == made[0]), "{made:?}");
    assert_eq!(fs::read_dir(machine.path("var/lib/ddlp")).unwrap().count(), 1);
}

#[test]
fn wrong_identities_are_explained() {
    let error = |nqn, id| HostIdentity::of(nqn, id, "--host-nqn", "give it by --host-id").unwrap_err().to_string();
    assert!(error("nqn.x", None).ends_with("give it by --host-id"));
    assert!(error("nqn.x", Some("12")).contains("not a UUID"));
    assert!(error("host", Some(UUID)).contains("begin with"));
    assert!(error("nqn.x,traddr=1", Some(UUID)).contains("cannot contain"));
    assert!(Host::named("host").is_err());

    let machine = machine();
    machine.write(KEPT_FILE, "garbage\n");
    for error in [machine.host.identity().unwrap_err(), machine.host.kernel_identity().unwrap_err()] {
        let said = error.to_string();
        assert!(matches!(error, HostError::Wrong(_)), "{said}");
        assert!(said.contains("garbage") && said.contains(KEPT_FILE), "{said}");
    }
    // A file that a crash or a user left empty is not filled silently.
    machine.write(KEPT_FILE, "\n");
    machine.close("home");
    let HostError::Keep(_, _) = machine.host.identity().unwrap_err() else { panic!("an empty file") };
}

#[test]
fn a_host_that_is_named_is_not_kept() {
    let host = Host::named("nqn.2024-01.example:named").unwrap();
    let (first, second) = (host.identity().unwrap(), host.identity().unwrap());
    assert_eq!((&*first.nqn, &*second.nqn), ("nqn.2024-01.example:named", "nqn.2024-01.example:named"));
    assert_ne!(first.id, second.id);
    assert_eq!(host.known(), Some(first.nqn));
}

#[test]
fn root_takes_over_the_name_that_the_machine_has_had_for_who_became_root() {
    let machine = machine();
    let invoker = Some(machine.path("home/user/.local/state"));
    let host = Host(NqnSource::Files { root: machine.root.path().into(), state: None, invoker });
    let known = HostIdentity::from_uuid([3; 16]).nqn;
    machine.write("home/user/.local/state/ddlp/hostnqn", &format!("{known}\n"));
    assert_eq!(host.known(), None, "looking makes nothing");
    assert_eq!(host.kernel_identity().unwrap().nqn, known);
    assert_eq!(line(&machine.path(KEPT_FILE)).unwrap(), Some(known));
}

#[test]
fn root_takes_over_no_name_that_is_none() {
    let machine = machine();
    let invoker = Some(machine.path("home/user/.local/state"));
    let host = Host(NqnSource::Files { root: machine.root.path().into(), state: None, invoker });
    machine.write("home/user/.local/state/ddlp/hostnqn", "nqn.a,traddr=1\n");
    assert!(host.kernel_identity().unwrap().nqn.contains(":uuid:"));
}
