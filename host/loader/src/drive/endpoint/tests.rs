use super::*;
use std::fs;
use tempfile::TempDir;

const URL: &str = "tcp://127.0.0.1:1/nqn.2024-01.org.example:a";

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
    assert!(end.allow().contains("`host_nqn`") && !end.allow().contains(&again.nqn), "{}", end.allow());
}

#[test]
fn an_invalid_nqn_is_an_error_that_names_the_file() {
    let (root, host) = machine();
    fs::create_dir_all(root.path().join("etc/nvme")).unwrap();
    fs::write(root.path().join("etc/nvme/hostnqn"), "garbage\n").unwrap();
    let error = Endpoint::remote(URL, &host).map(drop).unwrap_err().to_string();
    assert!(error.contains("etc/nvme/hostnqn") && error.contains("garbage"), "{error}");
}

#[test]
fn drives_behind_the_kernel_need_no_nqn() {
    let (root, host) = machine();
    let error = Endpoint::remote("/dev/nvme4095", &host).map(drop).unwrap_err().to_string();
    assert!(error.starts_with("there is no /dev/nvme4095; `ddlp devices`"), "{error}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn a_name_that_cannot_be_resolved_is_not_blamed_on_the_agent() {
    let (_root, host) = machine();
    let end = Endpoint::remote("tcp://drive.invalid:4420/nqn.2024-01.org.example:a", &host).unwrap();
    let error = DriverError::Unresolved { peer: "tcp://drive.invalid:4420".into(), source: "no such name".into() };
    assert!(error.is_transient() && error.ends_association());
    let said = with_causes(&end.unusable(LinkError::Driver(error), ""));
    assert!(said.contains("drive.invalid:4420 cannot be resolved (check the host's name"), "{said}");
    assert!(said.ends_with("): no such name"), "{said}");
    assert!(!said.contains("agent"), "{said}");
}

#[test]
fn a_limit_of_open_files_is_not_blamed_on_the_agent() {
    let (_root, host) = machine();
    let error = DriverError::TooManyFiles { peer: URL.into(), source: "Too many open files (os error 24)".into() };
    let said = with_causes(&Endpoint::remote(URL, &host).unwrap().unusable(LinkError::Driver(error), ""));
    assert!(said.contains("Too many open files") && said.contains("`ulimit -n`") && !said.contains("agent"), "{said}");
}

#[test]
fn a_drive_that_another_process_uses_through_the_kernel_is_explained() {
    let (_root, host) = machine();
    let in_use = DriverError::InUse { peer: "/dev/nvme0".into(), node: "/dev/nvme0n1".into() };
    let said = Endpoint::remote(URL, &host).unwrap().unusable(LinkError::Driver(in_use), "").to_string();
    assert!(said.contains("only one process at a time") && said.contains("tcp://HOST:PORT/NQN"), "{said}");
}
