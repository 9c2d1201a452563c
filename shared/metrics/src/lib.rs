//! Figures for Prometheus over HTTP: a page that is made for each request.
//!
//! A server answers one request at a time, whatever its path, and closes the connection. [`MetricsServer`] listens at
//! an address and has no authentication: whoever can reach the address can read the figures. [`LocalServer`] listens at
//! a socket that only programs of the same user on the same machine find and reach.
//!
//! - `answering`: the server's side of a connection. `local`: the servers of this machine. `scrape`: the client's
//!   side.
#![forbid(unsafe_code)]

mod answering;
mod local;
mod scrape;

pub use local::{LocalServer, LocalSocket, local_sockets};
pub use scrape::{Scrape, read_address};

use answering::Answering;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt::{self, Debug};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// Time that a client has to send its request and to take the answer.
const CLIENT_WITHIN: Duration = Duration::from_secs(2);

/// Beginning of the names of all figures.
const PREFIX: &str = "ddlp";

/// The figures of a program.
pub trait Figures: Debug + Send + Sync + 'static {
    /// Writes all figures as they are now.
    ///
    /// # Errors
    ///
    /// Those of [`Page`].
    fn write(&self, page: &mut Page<'_>) -> fmt::Result;
}

/// The page that is being written. A figure has one value for each prong, or a single value whose name is empty.
pub struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    /// Writes a figure that goes up and down.
    ///
    /// # Errors
    ///
    /// The text cannot be written.
    pub fn gauge(&mut self, name: &str, help: &str, values: &[(&str, f64)]) -> fmt::Result {
        self.write(name, help, MetricType::Gauge, values, |value| Box::new(ConstGauge::new(value)))
    }

    /// Writes a figure that only goes up. Its name gets the ending `_total`.
    ///
    /// # Errors
    ///
    /// The text cannot be written.
    pub fn counter(&mut self, name: &str, help: &str, values: &[(&str, f64)]) -> fmt::Result {
        self.write(name, help, MetricType::Counter, values, |value| Box::new(ConstCounter::new(value)))
    }

    fn write(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        values: &[(&str, f64)],
        metric: fn(f64) -> Box<dyn EncodeMetric>,
    ) -> fmt::Result {
        let mut figure = self.0.encode_descriptor(name, help, None, kind)?;
        for &(prong, value) in values {
            if prong.is_empty() {
                return metric(value).encode(figure);
            }
            metric(value).encode(figure.encode_family(&[("prong", prong)])?)?;
        }
        Ok(())
    }
}

/// Lets the library ask for the figures.
#[derive(Debug)]
pub(crate) struct Collected<F>(pub F);

impl<F: Figures> Collector for Collected<F> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.write(&mut Page(encoder))
    }
}

/// A server of figures. Dropping it ends its thread, and leaves its address to others, even if a forked process has
/// inherited the socket. Another program that this process starts does not inherit it.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    _answering: Answering,
}

impl MetricsServer {
    /// Serves figures at an address; with port 0, at a free port.
    ///
    /// # Errors
    ///
    /// Nobody can listen at the address, or the system refuses a thread.
    pub fn start(address: SocketAddr, figures: impl Figures) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let (address, socket) = (listener.local_addr()?, listener.try_clone()?.into());
        let answering = Answering::start(socket, move || Ok(listener.accept()?.0), figures)?;
        Ok(Self { address, _answering: answering })
    }

    /// Returns the address at which the figures are.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::answering::REQUEST_BYTES_MAX;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Debug, Default)]
    pub(crate) struct Counted(AtomicU64);

    impl Figures for Arc<Counted> {
        fn write(&self, page: &mut Page<'_>) -> fmt::Result {
            let asked = self.0.fetch_add(1, Ordering::Relaxed) as f64;
            page.counter("asked", "Requests", &[("", asked)])?;
            page.gauge("rate", "Images per second", &[("cpu", 1.5), ("csd \"1\"", 2.0)])
        }
    }

    fn served() -> MetricsServer {
        MetricsServer::start("127.0.0.1:0".parse().unwrap(), Arc::<Counted>::default()).unwrap()
    }

    fn ask(server: &MetricsServer, request: &str) -> String {
        let mut client = TcpStream::connect(server.address()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn each_request_gets_the_figures_of_its_moment() {
        let server = served();
        for asked in 0..3 {
            let answer = ask(&server, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
            let (head, page) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"), "{head}");
            assert!(head.contains(&format!("Content-Length: {}\r\n", page.len())), "{head}");
            let expected = format!(
                "# HELP ddlp_asked Requests\n# TYPE ddlp_asked counter\nddlp_asked_total {asked}.0\n\
                 # HELP ddlp_rate Images per second\n# TYPE ddlp_rate gauge\n\
                 ddlp_rate{{prong=\"cpu\"}} 1.5\nddlp_rate{{prong=\"csd \\\"1\\\"\"}} 2.0\n# EOF\n"
            );
            assert_eq!(page, expected);
        }
    }

    #[test]
    fn what_is_no_request_gets_no_figures_and_the_next_client_is_answered() {
        let server = served();
        assert!(ask(&server, "POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        let mut endless = TcpStream::connect(server.address()).unwrap();
        let answered = endless.write_all(&[b'x'; 2 * REQUEST_BYTES_MAX]).and_then(|()| endless.read(&mut [0]));
        assert!(answered.map_or(true, |bytes| bytes == 0), "it is cut off");
        drop(TcpStream::connect(server.address()).unwrap());
        assert!(ask(&server, "GET / HTTP/1.0\r\n\r\n").contains("ddlp_asked_total"));
    }

    #[test]
    fn a_descriptor_that_a_forked_process_has_inherited_does_not_keep_the_address() {
        let server = served();
        let (address, inherited) = (server.address(), server._answering.socket().unwrap());
        drop(server);
        assert!(TcpStream::connect(address).is_err());
        let next = MetricsServer::start(address, Arc::<Counted>::default()).unwrap();
        drop(inherited);
        assert!(ask(&next, "GET / HTTP/1.0\r\n\r\n").contains("ddlp_asked_total 0.0"));
    }

    #[test]
    fn the_thread_has_ended_once_the_server_is_dropped() {
        let counted = Arc::<Counted>::default();
        for address in ["127.0.0.1:0", "0.0.0.0:0"] {
            drop(MetricsServer::start(address.parse().unwrap(), counted.clone()).unwrap());
            assert_eq!(Arc::strong_count(&counted), 1, "{address}");
        }
    }

    #[test]
    fn a_server_that_is_dropped_leaves_its_address_to_the_next() {
        let server = served();
        let address = server.address();
        ask(&server, "GET / HTTP/1.0\r\n\r\n");
        drop(server);
        assert!(TcpStream::connect(address).is_err());
        let next = MetricsServer::start(address, Arc::<Counted>::default()).unwrap();
        assert!(ask(&next, "GET / HTTP/1.0\r\n\r\n").contains("ddlp_asked_total 0.0"));
        assert!(MetricsServer::start(address, Arc::<Counted>::default()).is_err());
    }
}
