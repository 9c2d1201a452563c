//! A real Redis server, as a child process that a test can kill and start again.

use crate::certificates;
use crate::runs::wait_until;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PROGRAMS: [&str; 4] =
    ["/usr/bin/redis-server", "/usr/local/bin/redis-server", "/usr/bin/valkey-server", "/usr/local/bin/valkey-server"];

/// A running server; killed when dropped.
pub struct RedisServer {
    program: &'static str,
    folder: PathBuf,
    args: Vec<String>,
    port: u16,
    tls: Option<Tls>,
    child: Child,
}

/// How a server listens for TLS.
#[derive(Clone)]
struct Tls {
    port: u16,
    /// The folder with the certificates.
    certificates: PathBuf,
}

impl Tls {
    /// Chooses a port. The certificate, of `localhost`, lies in a folder.
    fn new(certificates: &Path) -> Self {
        Self { port: free_port(), certificates: certificates.to_owned() }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port()
}

impl RedisServer {
    /// Starts a server with further arguments, whose data lie in a folder; `None`, with a line that says why, if none
    /// is installed.
    pub fn start(folder: &Path, extra: &[&str]) -> Option<Self> {
        Self::begin(folder, extra, None)
    }

    /// Starts a server that also listens for TLS, with a certificate of `localhost`.
    pub fn start_with_tls(folder: &Path) -> Option<Self> {
        if !certificates::can_be_made() {
            return None;
        }
        certificates::make(folder);
        Self::begin(folder, &[], Some(Tls::new(folder)))
    }

    fn begin(folder: &Path, extra: &[&str], tls: Option<Tls>) -> Option<Self> {
        let Some(program) = PROGRAMS.into_iter().find(|path| Path::new(path).exists()) else {
            println!("SKIPPED: redis-server is not installed");
            return None;
        };
        let folder = folder.join("redis");
        fs::create_dir(&folder).expect("a folder for the server");
        let port = free_port();
        let mut args = vec!["--port".to_owned(), port.to_string(), "--bind".to_owned(), "127.0.0.1".to_owned()];
        args.extend(extra.iter().map(|arg| (*arg).to_owned()));
        if let Some(Tls { port, certificates }) = &tls {
            args.extend(["--tls-port".to_owned(), port.to_string(), "--tls-auth-clients".to_owned(), "no".to_owned()]);
            for (option, file) in [("cert", "leaf.pem"), ("key", "leaf.key"), ("ca-cert", "ca.pem")] {
                args.extend([format!("--tls-{option}-file"), certificates.join(file).display().to_string()]);
            }
        }
        let child = spawn(program, &folder, &args, port);
        Some(Self { program, folder, args, port, tls, child })
    }

    /// Returns the URL of a dataset.
    pub fn url(&self, name: &str) -> String {
        format!("redis://127.0.0.1:{}/0/{name}", self.port)
    }

    fn tls(&self) -> &Tls {
        self.tls.as_ref().expect("a server with TLS")
    }

    /// Returns the URL of a dataset over TLS.
    pub fn tls_url(&self, name: &str) -> String {
        format!("rediss://localhost:{}/0/{name}", self.tls().port)
    }

    /// Returns the certificate to trust.
    pub fn authority(&self) -> PathBuf {
        self.tls().certificates.join("ca.pem")
    }

    /// Kills the server. Its memory is lost, unless it was saved by `SAVE`.
    pub fn kill(&mut self) {
        self.child.kill().expect("the server runs");
        self.child.wait().expect("the server ends");
    }

    /// Starts the server again at the same port.
    pub fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// Starts the server again at the same port with more arguments. It answers, but may still be loading its data.
    pub fn restart_with(&mut self, more: &[&str]) {
        let args: Vec<String> = self.args.iter().cloned().chain(more.iter().map(|arg| (*arg).to_owned())).collect();
        self.child = spawn(self.program, &self.folder, &args, self.port);
    }

    /// Sends a command, and returns the text of the answer: of a list, its elements by lines.
    ///
    /// # Panics
    /// If the server answers with an error.
    pub fn command(&self, words: &[&[u8]]) -> Vec<u8> {
        let answer = self.ask(words);
        assert!(!answer.starts_with(b"-"), "{}", String::from_utf8_lossy(&answer));
        answer
    }

    /// Sends words, and returns the text of the answer.
    ///
    /// # Panics
    /// If the server answers with an error.
    pub fn say(&self, words: &str) -> String {
        let answer = self.command(&words.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Returns the server's identifier in its cluster.
    pub fn id(&self) -> String {
        self.say("CLUSTER MYID")
    }

    /// Returns the server's port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns all keys.
    pub fn keys(&self) -> Vec<String> {
        let answer = self.command(&[b"KEYS", b"*"]);
        let mut keys: Vec<String> = String::from_utf8_lossy(&answer).lines().map(str::to_owned).collect();
        keys.sort();
        keys
    }

    fn ask(&self, words: &[&[u8]]) -> Vec<u8> {
        ask(self.port, words)
    }

    /// Makes the server a replica of another one, and waits until it has the other's data.
    pub fn replicate(&self, master: &RedisServer) {
        self.say(&format!("REPLICAOF 127.0.0.1 {}", master.port));
        self.wait_for_data_of(master);
    }

    /// Waits until a replica has what its master has now.
    pub fn wait_for_data_of(&self, master: &RedisServer) {
        let offset = |said: &str, name| {
            let offset = said.lines().find_map(|line| line.trim().strip_prefix(name));
            offset.and_then(|offset| offset.parse::<u64>().ok())
        };
        let wanted = offset(&master.say("INFO replication"), "master_repl_offset:").expect("an offset");
        wait_until("the replica has its master's data", || {
            let said = self.say("INFO replication");
            said.contains("master_link_status:up") && offset(&said, "slave_repl_offset:") >= Some(wanted)
        });
    }
}

/// Sends words to a server, and returns the text of the answer.
fn ask(port: u16, words: &[&[u8]]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
    write!(stream, "*{}\r\n", words.len()).expect("the server reads");
    for word in words {
        write!(stream, "${}\r\n", word.len()).expect("the server reads");
        stream.write_all(&[word, &b"\r\n"[..]].concat()).expect("the server reads");
    }
    reply(&mut BufReader::new(stream))
}

/// The name by which [`Sentinels`] know their master.
pub const SERVICE: &str = "images";

/// Sentinels that watch a master, and have a replica take its place when it is lost. Killed when dropped.
pub struct Sentinels {
    sentinels: Vec<Sentinel>,
    is_tls: bool,
}

struct Sentinel {
    port: u16,
    child: Child,
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sentinels {
    /// Starts Sentinels of a master, with further lines for their configuration, and waits until they know each other
    /// and the master's replicas.
    pub fn start(folder: &Path, count: usize, master: &RedisServer, replicas: usize, extra: &str) -> Self {
        let quorum = count / 2 + 1;
        let (port, host) = master.tls.as_ref().map_or((master.port, "127.0.0.1"), |tls| (tls.port, "localhost"));
        let mut rules = format!(
            "bind 127.0.0.1\nsentinel resolve-hostnames yes\nsentinel announce-hostnames yes\n\
             sentinel monitor {SERVICE} {host} {port} {quorum}\nsentinel down-after-milliseconds {SERVICE} 500\n\
             sentinel failover-timeout {SERVICE} 3000\n{extra}\n"
        );
        if let Some(tls) = &master.tls {
            rules.push_str("tls-replication yes\ntls-auth-clients no\nport 0\n");
            for (option, file) in [("cert", "leaf.pem"), ("key", "leaf.key"), ("ca-cert", "ca.pem")] {
                rules.push_str(&format!("tls-{option}-file {}\n", tls.certificates.join(file).display()));
            }
        }
        let is_tls = master.tls.is_some();
        let sentinels = (0..count).map(|number| {
            let (place, port) = (folder.join(format!("sentinel{number}")), free_port());
            fs::create_dir(&place).expect("a folder for the Sentinel");
            let (file, option) = (place.join("sentinel.conf"), if is_tls { "tls-port" } else { "port" });
            let rules = format!("{rules}{option} {port}\ndir {}\n", place.display());
            fs::write(&file, rules).expect("a configuration");
            let mut sentinel = Command::new(master.program);
            let child = sentinel.arg(&file).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null()).spawn();
            let sentinel = Sentinel { port, child: child.expect("the Sentinel starts") };
            wait_until("the Sentinel listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
            sentinel
        });
        let sentinels = Self { sentinels: sentinels.collect(), is_tls };
        if !is_tls && extra.is_empty() {
            let others = format!("num-other-sentinels\n{}", count - 1);
            let up = "master-link-status\nok";
            wait_until("the Sentinels know each other and the replicas", || {
                (0..count).all(|number| {
                    let known = sentinels.say(number, &format!("SENTINEL REPLICAS {SERVICE}")).matches(up).count();
                    known == replicas && sentinels.say(number, &format!("SENTINEL MASTER {SERVICE}")).contains(&others)
                })
            });
        }
        sentinels
    }

    /// Returns the URL of a dataset.
    pub fn url(&self, name: &str) -> String {
        let (scheme, host) = if self.is_tls { ("rediss", "localhost") } else { ("redis", "127.0.0.1") };
        let places: Vec<_> = self.sentinels.iter().map(|sentinel| format!("{host}:{}", sentinel.port)).collect();
        format!("{scheme}+sentinel://{}/{SERVICE}/0/{name}", places.join(","))
    }

    /// Sends words to a Sentinel, and returns the text of the answer.
    pub fn say(&self, number: usize, words: &str) -> String {
        let answer = ask(self.sentinels[number].port, &words.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Kills a Sentinel.
    pub fn kill(&mut self, number: usize) {
        drop(self.sentinels.remove(number));
    }

    /// Makes a Sentinel name another master from now on.
    pub fn name(&self, number: usize, master: &RedisServer) {
        self.say(number, &format!("SENTINEL REMOVE {SERVICE}"));
        let monitored = self.say(number, &format!("SENTINEL MONITOR {SERVICE} 127.0.0.1 {} 1", master.port));
        assert!(!monitored.starts_with('-'), "{monitored}");
    }
}

/// Servers that share the slots of a cluster evenly, and then replicas of the first ones.
pub struct RedisCluster {
    /// The servers: masters, then replicas.
    pub servers: Vec<RedisServer>,
    /// The ports between the servers.
    buses: Vec<String>,
}

/// Options of each server of a cluster; the port between the servers follows.
const CLUSTER: &str =
    "--cluster-enabled yes --cluster-node-timeout 1000 --cluster-config-file nodes.conf --cluster-port";

impl RedisCluster {
    /// Starts servers, and makes the first `masters` of them a cluster, the others replicas; `None`, with a line that
    /// says why, if none is installed.
    pub fn start(folder: &Path, masters: usize, replicas: usize) -> Option<Self> {
        Self::begin(folder, masters, replicas, false)
    }

    /// Starts masters that also listen for TLS, and say that they are reached at `localhost`.
    pub fn start_with_tls(folder: &Path, masters: usize) -> Option<Self> {
        if !certificates::can_be_made() {
            return None;
        }
        certificates::make(folder);
        Self::begin(folder, masters, 0, true)
    }

    fn begin(folder: &Path, masters: usize, replicas: usize, is_tls: bool) -> Option<Self> {
        let mut servers = Vec::new();
        let mut buses = Vec::new();
        for number in 0..masters + replicas {
            let place = folder.join(format!("cluster{number}"));
            fs::create_dir(&place).expect("a folder for the server");
            buses.push(free_port().to_string());
            let mut rules: Vec<&str> = CLUSTER.split(' ').chain([&**buses.last().expect("a port")]).collect();
            if is_tls {
                let announced = "--tls-cluster yes --cluster-announce-hostname localhost \
                                 --cluster-preferred-endpoint-type hostname";
                rules.extend(announced.split(' '));
            }
            servers.push(RedisServer::begin(&place, &rules, is_tls.then(|| Tls::new(folder)))?);
        }
        for (number, server) in servers.iter().enumerate() {
            if number < masters {
                let [first, last] = [number, number + 1].map(|number| 16_384 * number / masters);
                server.say(&format!("CLUSTER ADDSLOTSRANGE {first} {}", last - 1));
            }
            let (port, bus) = (servers[0].port, &buses[0]);
            server.say(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
        }
        let cluster = Self { servers, buses };
        let known = format!("cluster_known_nodes:{}", masters + replicas);
        cluster.wait_until("the nodes know each other", |info| info.contains(&known));
        for replica in masters..masters + replicas {
            let master = cluster.servers[replica - masters].id();
            wait_until("the replica knows its master", || {
                let answer = cluster.servers[replica].ask(&[b"CLUSTER", b"REPLICATE", master.as_bytes()]);
                !answer.starts_with(b"-")
            });
            wait_until("the replica has its master's data", || {
                let said = cluster.servers[replica].say("INFO replication");
                said.contains("master_link_status:up")
            });
        }
        cluster.wait_until("the cluster is up", |info| info.contains("cluster_state:ok"));
        // A name that is not known yet.
        wait_until("the nodes know their names", || {
            cluster.servers.iter().all(|server| !server.say("CLUSTER SLOTS").contains('?'))
        });
        Some(cluster)
    }

    /// Starts another master, which has no slots yet, and returns it.
    pub fn add_master(&mut self, folder: &Path) -> &RedisServer {
        let (place, bus) = (folder.join("added"), free_port().to_string());
        fs::create_dir(&place).expect("a folder for the server");
        let rules: Vec<&str> = CLUSTER.split(' ').chain([&*bus]).collect();
        let added = RedisServer::start(&place, &rules).expect("a server as the others");
        added.say(&format!("CLUSTER MEET 127.0.0.1 {} {}", self.servers[0].port, self.buses[0]));
        self.servers.push(added);
        self.buses.push(bus);
        let known = format!("cluster_known_nodes:{}", self.servers.len());
        self.wait_until("the nodes know each other", |info| info.contains(&known) && info.contains("cluster_state:ok"));
        self.servers.last().expect("the added one")
    }

    /// Moves those slots of a range that have keys from one server to another, as `redis-cli --cluster reshard` does.
    pub fn move_slots(&self, slots: std::ops::Range<u16>, from: &RedisServer, to: &RedisServer) {
        let (from_id, to_id) = (from.id(), to.id());
        for slot in slots {
            let keys = from.say(&format!("CLUSTER GETKEYSINSLOT {slot} 1000"));
            if keys.is_empty() {
                continue;
            }
            to.say(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"));
            from.say(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"));
            for key in keys.lines() {
                from.say(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.port));
            }
            for server in [to, from] {
                server.say(&format!("CLUSTER SETSLOT {slot} NODE {to_id}"));
            }
        }
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        wait_until(what, || self.servers.iter().all(|server| is_so(&server.say("CLUSTER INFO"))));
    }
}

/// Reads an answer.
fn reply(stream: &mut impl BufRead) -> Vec<u8> {
    let mut line = String::new();
    stream.read_line(&mut line).expect("an answer");
    let (kind, rest) = line.trim_end().split_at(1);
    match kind {
        "$" if rest == "-1" => Vec::new(),
        "$" => {
            let mut bytes = vec![0; rest.parse::<usize>().expect("a length") + 2];
            stream.read_exact(&mut bytes).expect("the answer's bytes");
            bytes.truncate(bytes.len() - 2);
            bytes
        }
        "*" => {
            let elements = (0..rest.parse().expect("a number")).map(|_: u64| reply(stream));
            elements.collect::<Vec<_>>().join(&b'\n')
        }
        "-" => line.trim_end().as_bytes().to_vec(),
        _ => rest.as_bytes().to_vec(),
    }
}

fn spawn(program: &str, folder: &Path, args: &[String], port: u16) -> Child {
    let mut server = Command::new(program);
    server.args(["--save", "", "--appendonly", "no", "--dir"]).arg(folder).args(args).current_dir(folder);
    let child = server.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("the server starts");
    wait_until("redis answers", || {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
        let mut answer = [0; 1];
        stream.write_all(b"PING\r\n").is_ok() && stream.read_exact(&mut answer).is_ok()
    });
    child
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
