//! The client's side of a connection: the figures of a program.

use crate::answering::Client;
use crate::{CLIENT_WITHIN, PREFIX};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

/// Largest size of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The figures of a program at one moment.
#[derive(Clone, Debug)]
pub struct Scrape {
    /// The moment.
    pub at: Instant,
    /// Values by figure and prong; the prong is empty if a figure has a single value.
    values: BTreeMap<(String, String), f64>,
}

impl Scrape {
    /// Returns the single value of a figure, which is named as in the [`Page`](crate::Page).
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.get(&(name.to_owned(), String::new())).copied()
    }

    /// Returns the values of a figure by prong, in alphabetical order.
    pub fn by_prong(&self, name: &str) -> impl Iterator<Item = (&str, f64)> {
        let of_figure = move |((figure, _), _): &(&(String, String), &f64)| figure == name;
        self.values.iter().filter(of_figure).map(|((_, prong), &value)| (prong.as_str(), value))
    }

    /// Parses a page, as of now; leaves out lines that are not figures of this project.
    pub fn parse(page: &str) -> Self {
        let values = page.lines().filter(|line| !line.starts_with('#')).filter_map(value_in);
        Self { at: Instant::now(), values: values.collect() }
    }
}

/// Reads the figures that a [`MetricsServer`](crate::MetricsServer) serves at an address.
///
/// # Errors
///
/// Nobody answers there, or what answers has no figures.
pub fn read_address(address: SocketAddr) -> io::Result<Scrape> {
    read(TcpStream::connect_timeout(&address, CLIENT_WITHIN)?)
}

/// Reads the figures from a server that has accepted a connection.
pub(crate) fn read(mut server: impl Client) -> io::Result<Scrape> {
    let until = Instant::now() + CLIENT_WITHIN;
    server.write_within(CLIENT_WITHIN)?;
    server.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::<u8>::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || answer.len() > ANSWER_BYTES_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        server.read_within(left)?;
        let mut piece = [0; 4096];
        match server.read(&mut piece)? {
            0 => break,
            length => answer.extend_from_slice(&piece[..length]),
        }
    }
    let answer = String::from_utf8_lossy(&answer);
    let scrape = match answer.split_once("\r\n\r\n") {
        Some((head, page)) if head.split(' ').nth(1) == Some("200") => Some(Scrape::parse(page)),
        _ => None,
    };
    let scrape = scrape.filter(|scrape| !scrape.values.is_empty());
    scrape.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer has no figures of DDLP"))
}

/// Parses a line such as `ddlp_prong_images_total{prong="cpu"} 5.0`.
fn value_in(line: &str) -> Option<((String, String), f64)> {
    let (figure, value) = line.rsplit_once(' ')?;
    let (name, label) = figure.split_once('{').unwrap_or((figure, ""));
    let name = name.strip_prefix(PREFIX)?.strip_prefix('_')?;
    let name = name.strip_suffix("_total").unwrap_or(name);
    let prong = label.strip_prefix("prong=\"").and_then(|label| label.strip_suffix("\"}")).unwrap_or("");
    Some(((name.to_owned(), unescaped(prong)), value.parse().ok()?))
}

/// Returns the text of a label's value.
fn unescaped(value: &str) -> String {
    let (mut text, mut letters) = (String::new(), value.chars());
    while let Some(letter) = letters.next() {
        text.push(match letter {
            '\\' => match letters.next() {
                Some('n') => '\n',
                Some(letter) => letter,
                None => break,
            },
            letter => letter,
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MetricsServer;
    use crate::tests::Counted;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;

    #[test]
    fn what_a_server_serves_is_read() {
        let server = MetricsServer::start("127.0.0.1:0".parse().unwrap(), Arc::<Counted>::default()).unwrap();
        let scrape = read_address(server.address()).unwrap();
        assert_eq!((scrape.value("asked"), scrape.value("rate"), scrape.value("x")), (Some(0.0), None, None));
        assert_eq!(scrape.by_prong("rate").collect::<Vec<_>>(), [("cpu", 1.5), ("csd \"1\"", 2.0)]);
    }

    #[test]
    fn what_is_no_figure_is_left_out() {
        let page = "# EOF\nddlp_a 1\nother_b 2\nddlp_c\nddlp_d x\nddlp_e{prong=\"a\\\\b\"} 3\n\nddlp_f{x=\"1\"} 4";
        let scrape = Scrape::parse(page);
        let values: Vec<_> = scrape.values.into_iter().collect();
        let named = |name: &str, prong: &str| (name.to_owned(), prong.to_owned());
        assert_eq!(values, [(named("a", ""), 1.0), (named("e", "a\\b"), 3.0), (named("f", ""), 4.0)]);
    }

    #[test]
    fn an_answer_without_figures_is_an_error() {
        for answer in ["HTTP/1.0 404 Not Found\r\n\r\nddlp_a 1", "HTTP/1.0 200 OK\r\n\r\nother_a 1\n", "hello", ""] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = std::thread::spawn(move || {
                let (mut client, _) = listener.accept().unwrap();
                let mut request = [0; 100];
                let _ = client.read(&mut request).unwrap();
                client.write_all(answer.as_bytes()).unwrap();
            });
            assert_eq!(read_address(address).unwrap_err().kind(), io::ErrorKind::InvalidData, "{answer}");
            server.join().unwrap();
        }
    }
}
