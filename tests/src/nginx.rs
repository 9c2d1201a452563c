//! A real nginx, as a child process that a test can kill and start again.

use crate::certificates;
use crate::runs::wait_until;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PROGRAMS: [&str; 3] = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"];

/// A running server of ranges, without and with TLS; killed when dropped.
pub struct Nginx {
    program: &'static str,
    process: Child,
    folder: PathBuf,
    ports: [u16; 2],
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Nginx {
    /// Serves a folder; `None`, with a line that says why, if nginx or openssl is not installed.
    pub fn start(folder: &Path) -> Option<Self> {
        let Some(program) = PROGRAMS.into_iter().find(|path| Path::new(path).exists()) else {
            println!("SKIPPED: nginx is not installed");
            return None;
        };
        if !certificates::can_be_made() {
            return None;
        }
        let server = folder.join("server");
        fs::create_dir(&server).expect("a folder for the server");
        certificates::make(&server);
        let free = || TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let ports = [(); 2].map(|()| free());
        // Connections end soon, as on a busy server. There is one process, so that none is left when it is killed.
        let config = format!(
            "daemon off; master_process off; pid nginx.pid; error_log error.log; events {{}}\n\
             http {{ access_log off; keepalive_requests 7;\n\
             client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4;\n\
             scgi_temp_path t5;\n\
             server {{ listen 127.0.0.1:{}; listen 127.0.0.1:{} ssl; root {};\n\
             ssl_certificate leaf.pem; ssl_certificate_key leaf.key; }} }}",
            ports[0],
            ports[1],
            folder.display()
        );
        fs::write(server.join("nginx.conf"), config).expect("a configuration");
        let process = spawn(program, &server, ports);
        Some(Self { program, process, folder: server, ports })
    }

    /// Returns the URL of a file of the folder.
    pub fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}", self.ports[0])
    }

    /// Returns the URL of a file of the folder over TLS.
    pub fn tls_url(&self, name: &str) -> String {
        format!("https://localhost:{}/{name}", self.ports[1])
    }

    /// Returns the certificate to trust.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        self.process.kill().expect("the server runs");
        self.process.wait().expect("the server ends");
    }

    /// Starts the server again at the same ports.
    pub fn restart(&mut self) {
        self.process = spawn(self.program, &self.folder, self.ports);
    }
}

fn spawn(program: &str, folder: &Path, ports: [u16; 2]) -> Child {
    let mut nginx = Command::new(program);
    nginx.arg("-p").arg(folder).args(["-c", "nginx.conf", "-e", "error.log"]);
    let process = nginx.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("nginx starts");
    wait_until("nginx answers", || ports.iter().all(|&port| TcpStream::connect(("127.0.0.1", port)).is_ok()));
    process
}
