//! The real program: ready line, signals, refusals, identity over restarts, end of the parent process.

use crate::host::images::{encoded, folder, of, program, request};
use crate::host::{self, Association, HOST_NQN, Line, Received, execute, in_capsule};
use ddlp_csd::program::CorruptPolicy;
use ddlp_csd::request::BatchRequest;
use ddlp_nvme::Status;
use ddlp_nvme::fabrics::{CONTROLLER_ANY, ConnectCommand, ConnectData};
use ddlp_nvme::tcp::Digests;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

struct Process {
    child: Child,
    address: SocketAddr,
    nqn: String,
}

fn program_command(dataset: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ddlp-device"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--slots", "2", "--slot-bytes", "1000000", "--threads", "1"]);
    command.arg("--dataset").arg(dataset);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Process {
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let (address, nqn) = ready(&line).unwrap_or_else(|| {
            let mut said = String::new();
            let _ = child.stderr.as_mut().unwrap().read_to_string(&mut said);
            panic!("no ready line but {line:?}, and {said}")
        });
        Self { child, address, nqn }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    fn code(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < host::PATIENCE, "the program does not end");
            std::thread::yield_now();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads address and NQN from a ready line, whose keys have a fixed order.
fn ready(line: &str) -> Option<(SocketAddr, String)> {
    let rest = line.strip_prefix("{\"listen\":\"")?;
    let (address, rest) = rest.split_once("\",\"nqn\":\"")?;
    Some((address.parse().ok()?, rest.strip_suffix("\"}\n")?.to_owned()))
}

/// Returns the command with a limit of open files.
fn limited(command: &Command, files: usize) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]).arg(command.get_program());
    shell.args(command.get_args()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

/// Raises the limit from too few files to enough of them: an agent that says that it serves can take a host.
#[test]
fn an_agent_that_lacks_files_says_so_at_the_start() {
    let root = dataset();
    let mut command = program_command(root.path());
    command.arg("--ephemeral");
    for files in 4..64 {
        let mut child = limited(&command, files).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let Some((address, nqn)) = ready(&line) else {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            // Too few for the system to load the agent, if this process has passed on files of its own.
            if output.status.code() == Some(127) && said.contains("shared libraries") {
                continue;
            }
            assert_eq!(output.status.code(), Some(1), "{files} files: {said}");
            assert!(said.starts_with("error: ") && said.contains("Too many open files"), "{files} files: {said}");
            continue;
        };
        assert!(files > 8);
        let _agent = Process { child, address, nqn: nqn.clone() };
        let association = Association::new((address, &nqn), 1, Digests::NONE);
        let _queues: Vec<Line> = (1..=3).map(|id| association.open_queue(id, 8, true)).collect();
        return;
    }
    panic!("no limit is enough");
}

fn dataset() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    folder(root.path(), 8, &[]);
    root
}

/// Makes the request one for these files, which fails on a damaged file.
fn of_files(files: &tempfile::TempDir, request: BatchRequest) -> BatchRequest {
    of(ddlp_dataset::open(files.path()).unwrap().as_ref(), &program(CorruptPolicy::Fail), request)
}

/// Writes a configuration file with this text.
fn config(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn failure(mut command: Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    assert!(!status.success());
    String::from_utf8(stderr).unwrap()
}

#[test]
fn an_address_that_other_machines_reach_is_refused() {
    let dataset = dataset();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ddlp-device"));
    command.args(["serve", "--ephemeral", "--listen", "0.0.0.0:0", "--dataset"]).arg(dataset.path());
    let said = failure(command);
    assert!(said.contains("0.0.0.0:0") && said.contains("allowed-hosts"), "{said}");
}

#[test]
fn results_never_go_to_the_dataset() {
    let dataset = dataset();
    let inside = dataset.path().join("class0");
    let inside = if inside.is_dir() { inside } else { dataset.path().to_owned() };
    let (new, empty, link) = (inside.join("new.jpg"), inside.join("empty.jpg"), tempfile::tempdir().unwrap());
    std::fs::write(&empty, "").unwrap();
    let linked = link.path().join("slots");
    std::os::unix::fs::symlink(&new, &linked).unwrap();
    for results in [&new, &empty, &linked] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ddlp-device"));
        command.args(["serve", "--ephemeral", "--listen", "127.0.0.1:0", "--dataset"]).arg(dataset.path());
        command.arg("--results").arg(results);
        let said = failure(command);
        assert!(said.contains("belongs to the dataset") && said.contains("name another file"), "{said}");
    }
    assert!(!new.exists() && std::fs::read(&empty).unwrap().is_empty());
}

#[test]
fn the_exit_status_tells_a_wrong_configuration_from_other_failures() {
    let code = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ddlp-device")).args(arguments).output().unwrap();
        output.status.code()
    };
    assert_eq!(code(&["serve", "--dataset", "d", "--ephemeral", "--slots", "0"]), Some(78));
    assert_eq!(code(&["serve", "--dataset", "/nonexistent", "--ephemeral"]), Some(1));
    let config = config("allowed-hosts = [\"nqn.2014-08.org.nvmexpress:uuid:…\"]");
    let config = config.path().to_str().unwrap();
    assert_eq!(code(&["serve", "--dataset", "/nonexistent", "--ephemeral", "--config", config]), Some(78));
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_no_signal() {
    let dataset = dataset();
    let mut command = program_command(dataset.path());
    command.arg("--ephemeral");
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 10; exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
    let output = shell.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{}: {said}", output.status);
    assert!(said.contains("File too large"), "{said}");
}

#[test]
fn a_manual_page_is_written_whole_or_not_at_all() {
    let home = tempfile::tempdir().unwrap();
    let man = |limit: &str, folder: &str| {
        let line = format!("{limit} exec {} man {folder}", env!("CARGO_BIN_EXE_ddlp-device"));
        let output = Command::new("sh").args(["-c", &line]).current_dir(home.path()).output().unwrap();
        let pages = std::fs::read_dir(home.path().join(folder)).unwrap();
        let mut names: Vec<_> = pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        (output.status.code(), names)
    };
    assert_eq!(man("ulimit -f 0;", "none"), (Some(1), vec![]));
    let pages = ["-abilities", "-completions", "-doctor", "-man", "-serve", ""]
        .map(|command| format!("ddlp-device{command}.1"));
    assert_eq!(man("", "all"), (Some(0), pages.to_vec()));
}

#[test]
fn the_log_names_hosts_that_were_refused() {
    let (dataset, config) = (dataset(), config("allowed-hosts = [\"nqn.2014-08.org.example:friend\"]"));
    let mut command = program_command(dataset.path());
    command.arg("--ephemeral").arg("--config").arg(config.path());
    let mut process = Process::start(command);
    let mut line = Line::open(process.address, Digests::NONE);
    let data = ConnectData::new([1; 16], CONTROLLER_ANY, &process.nqn, HOST_NQN).unwrap();
    let (entry, _) = line.run(ConnectCommand::new(0, 31, 0, false).entry(), data.as_bytes());
    assert!(entry.status().same_code(Status::CONNECT_INVALID_HOST), "{}", entry.status());
    process.signal(Signal::SIGTERM);
    let mut said = String::new();
    process.child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
    let told = said.lines().find(|line| line.contains("host refused")).unwrap_or_else(|| panic!("not told in {said}"));
    let peer = line.stream.local_addr().unwrap();
    for part in ["WARN", &peer.to_string(), HOST_NQN, "allowed-hosts does not name it"] {
        assert!(told.contains(part), "{part} is missing in {told}");
    }
}

#[test]
fn the_service_manager_is_told() {
    let dataset = dataset();
    let folder = tempfile::tempdir().unwrap();
    let socket = std::os::unix::net::UnixDatagram::bind(folder.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(host::PATIENCE)).unwrap();
    let mut command = program_command(dataset.path());
    command.arg("--ephemeral").env("NOTIFY_SOCKET", folder.path().join("notify"));
    let mut process = Process::start(command);
    let mut bytes = [0; 64];
    let mut state = || socket.recv(&mut bytes).map(|count| String::from_utf8_lossy(&bytes[..count]).into_owned());
    assert_eq!(state().unwrap(), "READY=1");
    process.signal(Signal::SIGTERM);
    assert_eq!(state().unwrap(), "STOPPING=1");
    assert_eq!(process.code(), Some(0));
}

#[test]
fn the_error_names_a_missing_dataset() {
    let mut command = program_command(Path::new("/nonexistent/train.ddlp"));
    command.arg("--ephemeral");
    let said = failure(command);
    assert!(said.contains("/nonexistent/train.ddlp"), "{said}");
}

#[test]
fn sigterm_lets_running_batches_finish_and_leaves_with_0() {
    let dataset = dataset();
    let mut command = program_command(dataset.path());
    // Slow enough that the signal finds the batch running.
    command.args(["--ephemeral", "--throttle", "0.002"]);
    let mut process = Process::start(command);
    let mut association = Association::new((process.address, &process.nqn), 1, Digests::NONE);
    association.load(0, &encoded(&program(CorruptPolicy::Fail)), 4096);
    let mut queue = association.open_queue(1, 8, true);
    let (mut entry, data) = execute(&of_files(&dataset, request(1, 0, (0..8).collect())), 0);
    entry.command_id = 77.into();
    queue.submit(&in_capsule(entry), &data);
    // The next answer on this connection shows that the Execute was taken.
    queue.submit(&host::read(2, 0, 1), &[]);
    assert!(matches!(queue.receive(), Received::Data(..)));
    assert!(matches!(queue.receive(), Received::Response(_)));
    process.signal(Signal::SIGTERM);
    match queue.receive() {
        Received::Response(entry) => assert_eq!((entry.command_id.get(), entry.status()), (77, Status::SUCCESS)),
        other => panic!("{other:?}"),
    }
    assert!(queue.ends());
    assert_eq!(process.code(), Some(0));
}

#[test]
fn an_idle_agent_leaves_on_sigint_at_once() {
    let dataset = dataset();
    let mut command = program_command(dataset.path());
    command.arg("--ephemeral");
    let mut process = Process::start(command);
    process.signal(Signal::SIGINT);
    assert_eq!(process.code(), Some(0));
}

#[test]
fn a_second_signal_does_not_wait_for_batches() {
    let dataset = dataset();
    let mut command = program_command(dataset.path());
    command.args(["--ephemeral", "--throttle", "0.001"]);
    let mut process = Process::start(command);
    let mut association = Association::new((process.address, &process.nqn), 1, Digests::NONE);
    association.load(0, &encoded(&program(CorruptPolicy::Fail)), 4096);
    let mut queue = association.open_queue(1, 8, true);
    let (entry, data) = execute(&of_files(&dataset, request(1, 0, (0..200).collect())), 0);
    queue.submit(&in_capsule(entry), &data);
    queue.submit(&host::read(2, 0, 1), &[]);
    queue.receive();
    let start = Instant::now();
    process.signal(Signal::SIGTERM);
    // The drain has begun once an Execute is refused for it.
    let (probe, data) = execute(&of_files(&dataset, request(2, 1, vec![0])), 7);
    while queue.run(in_capsule(probe), &data).0.status().same_code(Status::NO_PROGRAM) {
        assert!(start.elapsed() < host::PATIENCE, "the agent does not drain");
    }
    process.signal(Signal::SIGTERM);
    assert_eq!(process.code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(25), "it waited for the batch");
}

#[test]
fn the_identity_is_kept_and_has_one_holder() {
    let (dataset, state) = (dataset(), tempfile::tempdir().unwrap());
    let with_state = || {
        let mut command = program_command(dataset.path());
        command.arg("--state").arg(state.path());
        command
    };
    let mut first = Process::start(with_state());
    let said = failure(with_state());
    assert!(said.contains(state.path().to_str().unwrap()) && said.contains("another running agent"), "{said}");
    first.signal(Signal::SIGTERM);
    assert_eq!(first.code(), Some(0));
    let second = Process::start(with_state());
    assert_eq!(second.nqn, first.nqn);
    let mut command = program_command(dataset.path());
    command.arg("--ephemeral");
    assert_ne!(Process::start(command).nqn, first.nqn);
}

/// Makes a pipe. Children inherit the first end.
fn pipe() -> (OwnedFd, OwnedFd) {
    let (read, write) = nix::unistd::pipe().unwrap();
    let flags = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC);
    nix::fcntl::fcntl(&write, flags).unwrap();
    (read, write)
}

#[test]
fn an_agent_does_not_outlive_its_parent() {
    let dataset = dataset();
    let (read, write) = pipe();
    let mut command = program_command(dataset.path());
    command.args(["--ephemeral", "--parent-pipe", &read.as_raw_fd().to_string()]);
    let mut process = Process::start(command);
    drop(read);
    let _association = Association::new((process.address, &process.nqn), 1, Digests::NONE);
    drop(write);
    assert_eq!(process.code(), Some(0));
}

#[test]
fn inherited_slots_are_shared_with_the_parent() {
    let dataset = dataset();
    let flags = nix::sys::memfd::MFdFlags::MFD_ALLOW_SEALING;
    let slots = std::fs::File::from(nix::sys::memfd::memfd_create(c"slots", flags).unwrap());
    slots.set_len(2 << 20).unwrap();
    let mut command = program_command(dataset.path());
    command.args(["--ephemeral", "--results", &format!("fd:{}", slots.as_raw_fd())]);
    let process = Process::start(command);
    let mut association = Association::new((process.address, &process.nqn), 1, Digests::NONE);
    let program = program(CorruptPolicy::Fail);
    association.load(0, &encoded(&program), 4096);
    let mut queue = association.open_queue(1, 8, true);
    let request = of_files(&dataset, request(1, 1, (0..8).collect()));
    let (entry, data) = execute(&request, 0);
    queue.ok(in_capsule(entry), &data);
    // 1 000 000 bytes are rounded up to whole blocks.
    let slot_bytes = 1_000_000usize.next_multiple_of(4096);
    let mut slot = vec![0; slot_bytes];
    std::os::unix::fs::FileExt::read_exact_at(&slots, &mut slot, slot_bytes as u64).unwrap();
    host::images::check_slot(&slot, &*ddlp_dataset::open(dataset.path()).unwrap(), &program, &request);
}

#[test]
fn the_ready_line_can_go_to_a_descriptor() {
    let dataset = dataset();
    let (read, write) = nix::unistd::pipe().unwrap();
    let mut command = program_command(dataset.path());
    command.args(["--ephemeral", "--ready-fd", &write.as_raw_fd().to_string()]);
    let mut child = command.spawn().unwrap();
    drop(write);
    let mut line = String::new();
    BufReader::new(std::fs::File::from(read)).read_line(&mut line).unwrap();
    let _ = child.kill();
    let _ = child.wait();
    assert!(ready(&line).is_some(), "{line:?}");
}

#[test]
fn the_ready_line_has_the_discovery_port_and_a_taken_one_is_an_error() {
    let dataset = dataset();
    let mut command = program_command(dataset.path());
    command.args(["--ephemeral", "--discovery", "0"]);
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.split_once("\"discovery\":\"").and_then(|(_, rest)| rest.strip_suffix("\"}\n"));
    let address: SocketAddr = address.unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
    let mut command = program_command(dataset.path());
    command.args(["--ephemeral", "--discovery", &address.port().to_string()]);
    let said = failure(command);
    assert!(said.contains("--discovery") && said.contains(&address.to_string()), "{said}");
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn the_figures_are_served_where_the_ready_line_says() {
    let dataset = dataset();
    let mut command = program_command(dataset.path());
    command.args(["--ephemeral", "--metrics", "127.0.0.1:0"]);
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.split_once("\"metrics\":\"").and_then(|(_, rest)| rest.strip_suffix("\"}\n"));
    let address: SocketAddr = address.unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut figures = String::new();
    client.read_to_string(&mut figures).unwrap();
    assert!(figures.contains("\nddlp_agent_samples_total 0.0\n"), "{figures}");
    let mut command = program_command(dataset.path());
    command.args(["--ephemeral", "--metrics", &address.to_string()]);
    let said = failure(command);
    assert!(said.contains("--metrics") && said.contains(&address.to_string()), "{said}");
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn abilities_are_listed_in_words() {
    let output = Command::new(env!("CARGO_BIN_EXE_ddlp-device")).arg("abilities").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), ddlp_dataset::abilities().len());
    for (ability, line) in ddlp_dataset::abilities().iter().zip(text.lines()) {
        let digest: String = ability.digest[..6].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(line, format!("{:04x}  {digest}  {}", ability.number.0, ddlp_dataset::ability_name(ability.number)));
    }
}

#[test]
fn help_has_examples() {
    let output = Command::new(env!("CARGO_BIN_EXE_ddlp-device")).args(["serve", "--help"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let wanted =
        ["Examples:", "--throttle 0.25", "--parent-pipe", "fd:N", "allowed-hosts", "nvme discover", "8009", "77090816"];
    for wanted in wanted {
        assert!(text.contains(wanted), "{wanted} is missing in\n{text}");
    }
}
