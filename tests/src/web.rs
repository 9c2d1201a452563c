//! A web server that serves one file by ranges and follows a fault plan: it stands in for a store or a network that
//! fails. The plan sees each request.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A request for a range.
pub struct Request {
    /// Number of the request, from 0.
    pub number: u64,
    /// The bytes asked for.
    pub range: Range<u64>,
    /// The tag that the object has to have.
    pub if_match: Option<String>,
}

/// The plan's decision about a request.
pub enum Answer {
    /// The range.
    Range,
    /// The range, with this byte of it inverted.
    Damaged(usize),
    /// This status and these headers, without the range.
    Status(&'static str, &'static str),
    /// This status and this body.
    Refused(&'static str, &'static str),
    /// The range's first bytes, then the end of the connection.
    Cut(usize),
    /// The range, later.
    Late(Duration),
    /// The range, when this many requests have come, or after a minute.
    After(u64),
    /// The whole file, as from a server without ranges.
    Whole,
    /// The range of an object with this tag.
    Replaced(&'static str),
}

/// A running server. Its threads end with the process.
pub struct WebServer {
    address: String,
}

/// Number of requests that have come.
#[derive(Default)]
struct Requests {
    count: Mutex<u64>,
    came: Condvar,
}

impl Requests {
    /// Returns the number of a new request.
    fn next(&self) -> u64 {
        let mut count = self.count.lock().expect("no panic");
        *count += 1;
        self.came.notify_all();
        *count - 1
    }

    fn wait_for(&self, wanted: u64) {
        let count = self.count.lock().expect("no panic");
        let waited = self.came.wait_timeout_while(count, Duration::from_secs(60), |count| *count < wanted);
        drop(waited.expect("no panic"));
    }
}

type Plan = Mutex<Box<dyn FnMut(&Request) -> Answer + Send>>;

/// The tag of the object, unless the plan says otherwise.
pub const TAG: &str = "\"first\"";

impl WebServer {
    /// Serves these bytes.
    pub fn start(bytes: Vec<u8>, plan: impl FnMut(&Request) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (bytes, plan) = (Arc::new(bytes), Arc::new((Requests::default(), Mutex::new(Box::new(plan) as _))));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (bytes, plan) = (bytes.clone(), plan.clone());
                // An error ends the connection: the client went away.
                std::thread::spawn(move || serve(&stream, &bytes, &plan.0, &plan.1).ok());
            }
        });
        Self { address }
    }

    /// Returns the URL of the file.
    pub fn url(&self) -> String {
        format!("http://{}/data/photos.ddlp", self.address)
    }
}

fn serve(stream: &TcpStream, bytes: &[u8], requests: &Requests, plan: &Plan) -> std::io::Result<()> {
    // Head and body are written apart.
    stream.set_nodelay(true)?;
    let (mut lines, mut out) = (BufReader::new(stream).lines(), stream);
    loop {
        let Some(first) = lines.next().transpose()? else { return Ok(()) };
        let mut headers = HashMap::new();
        for line in lines.by_ref() {
            let line = line?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        assert!(first.starts_with("GET /data/photos.ddlp "), "{first}");
        let range = headers.get("range").and_then(|range| range.strip_prefix("bytes=")).expect("a range");
        let (start, last) = range.split_once('-').expect("two ends");
        let range = start.parse().expect("a number")..last.parse::<u64>().expect("a number") + 1;
        let request = Request { number: requests.next(), range, if_match: headers.remove("if-match") };
        let answer = plan.lock().expect("no panic")(&request);
        let mut body = bytes[request.range.start as usize..request.range.end as usize].to_vec();
        let mut tag = TAG;
        let mut sent = body.len();
        match answer {
            Answer::Range => {}
            Answer::Damaged(at) => body[at] ^= 0xff,
            Answer::Late(by) => std::thread::sleep(by),
            Answer::After(count) => requests.wait_for(count),
            Answer::Replaced(other) => tag = other,
            Answer::Cut(at) => sent = at.min(sent),
            Answer::Status(status, more) => {
                write!(out, "HTTP/1.1 {status}\r\n{more}Content-Length: 0\r\n\r\n")?;
                continue;
            }
            Answer::Refused(status, body) => {
                write!(out, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
                continue;
            }
            Answer::Whole => {
                write!(out, "HTTP/1.1 200 OK\r\nETag: {tag}\r\nContent-Length: {}\r\n\r\n", bytes.len())?;
                out.write_all(bytes)?;
                continue;
            }
        }
        let Range { start, end } = request.range;
        write!(
            out,
            "HTTP/1.1 206 Partial Content\r\nETag: {tag}\r\nContent-Length: {}\r\n\
             Content-Range: bytes {start}-{}/{}\r\n\r\n",
            body.len(),
            end - 1,
            bytes.len()
        )?;
        out.write_all(&body[..sent])?;
        if sent < body.len() {
            return stream.shutdown(std::net::Shutdown::Both);
        }
    }
}
