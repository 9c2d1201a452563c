//! A real node of Cassandra, as a child process that a test can kill and start again: `scripts/cassandra`.

use crate::certificates;
use crate::runs::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

/// A running node; killed when dropped.
pub struct CassandraNode {
    folder: PathBuf,
    args: Vec<String>,
    address: String,
    port: u16,
    child: Child,
}

/// The role and password that a node with `--password` has at first.
pub const LOGIN: (&str, &str) = ("cassandra", "cassandra");

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port()
}

fn script() -> Command {
    Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/cassandra"))
}

/// Returns whether Cassandra can be started; otherwise prints why the test is skipped.
fn is_there() -> bool {
    let fetched = script().arg("--fetch").output().expect("bash");
    match fetched.status.code() {
        Some(0) => true,
        Some(3) => {
            println!("SKIPPED: {}", String::from_utf8_lossy(&fetched.stderr).trim_end());
            false
        }
        _ => panic!("{}", String::from_utf8_lossy(&fetched.stderr)),
    }
}

impl CassandraNode {
    /// Starts a node with these options, whose data lie in a folder; `None`, with a line that says why, if it cannot be
    /// started here.
    pub fn start(folder: &Path, options: &[&str]) -> Option<Self> {
        is_there().then(|| Self::begin(&folder.join("cassandra"), "127.0.0.1", free_port(), free_port(), options))
    }

    /// Starts three nodes as a cluster; `None`, with a line that says why, if they cannot be started here.
    pub fn start_three(folder: &Path) -> Option<[Self; 3]> {
        let (port, storage_port) = (free_port(), free_port());
        is_there().then(|| {
            ["-9223372036854775808", "-3074457345618258603", "3074457345618258602"].map({
                let mut number = 0;
                move |token| {
                    number += 1;
                    let place = folder.join(format!("node{number}"));
                    let options = ["--token", token, "--seed", "127.0.0.1"];
                    Self::begin(&place, &format!("127.0.0.{number}"), port, storage_port, &options)
                }
            })
        })
    }

    fn begin(folder: &Path, address: &str, port: u16, storage_port: u16, options: &[&str]) -> Self {
        fs::create_dir(folder).expect("a folder for the node");
        let mut args: Vec<String> = ["--address", address].map(str::to_owned).into();
        args.extend(["--port".to_owned(), port.to_string(), "--storage-port".to_owned(), storage_port.to_string()]);
        args.extend(options.iter().map(|option| (*option).to_owned()));
        let child = spawn(folder, &args);
        Self { folder: folder.to_owned(), args, address: address.to_owned(), port, child }
    }

    /// Returns the URL of a dataset in the keyspace `photos`.
    pub fn url(&self, name: &str) -> String {
        format!("cql://{}:{}/photos/{name}", self.address, self.port)
    }

    /// Returns the URL of a dataset over TLS, for the role of [`LOGIN`].
    pub fn tls_url(&self, name: &str) -> String {
        format!("cqls://{}@localhost:{}/photos/{name}", LOGIN.0, self.port)
    }

    /// Kills the node. What it acknowledged stays in its log of commits if it is started again.
    pub fn kill(&mut self) {
        self.child.kill().expect("the node runs");
        self.child.wait().expect("the node ends");
    }

    /// Stops the node's process for a time: its connections stay, and nothing is answered. The thread that is returned
    /// ends when the process goes on.
    pub fn stop_for(&self, time: Duration) -> JoinHandle<()> {
        let process = Pid::from_raw(self.child.id().cast_signed());
        kill(process, Signal::SIGSTOP).expect("the node runs");
        std::thread::spawn(move || {
            // The sleep is the fault.
            std::thread::sleep(time);
            kill(process, Signal::SIGCONT).expect("the node runs");
        })
    }

    /// Starts the node again at the same port, also with these options.
    pub fn restart(&mut self, options: &[&str]) {
        self.args.extend(options.iter().map(|option| (*option).to_owned()));
        self.child = spawn(&self.folder, &self.args);
    }

    /// Executes a statement, and returns the body of the answer.
    ///
    /// # Panics
    /// If the server answers with an error.
    pub fn execute(&self, statement: &str) -> Vec<u8> {
        let stream = TcpStream::connect((&*self.address, self.port)).expect("the node listens");
        exchange(&stream, 1, &[&b"\0\x01"[..], &text("CQL_VERSION"), &text("3.0.0")].concat());
        if self.args.iter().any(|arg| arg == "--password") {
            let login = format!("\0{}\0{}", LOGIN.0, LOGIN.1);
            exchange(&stream, 15, &[&(login.len() as u32).to_be_bytes(), login.as_bytes()].concat());
        }
        let length = (statement.len() as u32).to_be_bytes();
        // Without values, at the consistency ONE.
        exchange(&stream, 7, &[&length, statement.as_bytes(), &[0, 1, 0]].concat())
    }

    /// Creates the keyspace `photos`.
    pub fn create_keyspace(&self, replication: u32) {
        let class = "{'class': 'NetworkTopologyStrategy', 'datacenter1': ";
        self.execute(&format!("CREATE KEYSPACE photos WITH replication = {class}{replication}}}"));
    }

    /// Returns a number that a statement finds, such as the number of rows.
    pub fn number(&self, statement: &str) -> i64 {
        let answer = self.execute(statement);
        i64::from_be_bytes(answer[answer.len() - 8..].try_into().expect("eight bytes"))
    }
}

/// Makes the certificates of a server and its clients in a folder: `server.pem`, `leaf.pem`, `leaf.key` and `ca.pem`.
pub fn make_certificates(folder: &Path) {
    certificates::make(folder);
    let parts = ["leaf.key", "leaf.pem"].map(|file| fs::read(folder.join(file)).expect("a certificate"));
    fs::write(folder.join("server.pem"), parts.concat()).expect("the server's file");
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat()
}

/// Sends a frame, and returns the body of the answer.
fn exchange(mut stream: &TcpStream, opcode: u8, body: &[u8]) -> Vec<u8> {
    let header = [&[4, 0, 0, 0, opcode], &(body.len() as u32).to_be_bytes()[..]].concat();
    stream.write_all(&[&header, body].concat()).expect("the node reads");
    let mut header = [0; 9];
    stream.read_exact(&mut header).expect("an answer");
    let length = u32::from_be_bytes(header[5..].try_into().expect("four bytes"));
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).expect("the answer's body");
    assert_ne!(header[4], 0, "{}", String::from_utf8_lossy(&body[4..]));
    body
}

fn spawn(folder: &Path, args: &[String]) -> Child {
    let log = folder.join("log");
    let output = File::create(&log).expect("a log");
    let mut node = script();
    node.arg(folder).args(args).stdin(Stdio::null());
    node.stdout(output.try_clone().expect("a log")).stderr(output);
    let mut child = node.spawn().expect("the script starts");
    let needs_role = args.iter().any(|arg| arg == "--password") && !folder.join("has-role").exists();
    wait_until("Cassandra starts", || {
        let said = fs::read_to_string(&log).unwrap_or_default();
        assert!(child.try_wait().expect("a state").is_none(), "{said}");
        said.contains("Startup complete") && (!needs_role || said.contains("Created default superuser role"))
    });
    if needs_role {
        fs::write(folder.join("has-role"), "").expect("a note");
    }
    child
}

impl Drop for CassandraNode {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
