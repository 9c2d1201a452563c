//! One socket: sends PDUs, receives PDU headers and data, with digests and deadlines.

use super::deadline::Deadline;
use super::link::TcpLink;
use super::target::TcpTarget;
use crate::error::DriverError;
use ddlp_cause::Cause;
use ddlp_nvme::tcp::{
    ConnectionPhase, DIGEST_BYTES, DataDigest, Digests, FatalError, HeaderDecoder, IcReq, Incoming, Pdu, PduError,
    PduLimits, Role,
};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrStorage, connect, sendmsg, setsockopt, socket, sockopt,
};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes received ahead of the current need: enough that a header seldom costs a system call of its own, and few enough
/// that the payload among them costs little to copy.
const AHEAD_BYTES: usize = 512;

#[derive(Debug)]
pub(super) struct Connection {
    stream: Arc<TcpStream>,
    link: Arc<TcpLink>,
    decoder: HeaderDecoder,
    digests: Digests,
    h2c_bytes_max: u32,
    io_timeout: Duration,
    /// Bytes that the next [`Self::send`] sends first.
    held: Vec<u8>,
    /// Bytes received and not yet consumed: `ahead[start..end]`.
    ahead: [u8; AHEAD_BYTES],
    start: usize,
    end: usize,
}

impl Connection {
    /// Connects to the first address that answers, and exchanges ICReq and ICResp.
    pub(super) fn open(
        addresses: &[SocketAddr],
        target: &TcpTarget,
        link: &Arc<TcpLink>,
        receive_buffer_bytes: Option<usize>,
        deadline: Deadline,
    ) -> Result<Self, DriverError> {
        let stream = dial(addresses, link, deadline)?;
        stream.set_nodelay(true).map_err(|error| link.lost(error))?;
        if let Some(bytes) = receive_buffer_bytes {
            size_receive_buffer(&stream, bytes);
        }
        let limits = PduLimits { capsule_bytes_max: 0, data_bytes_max: super::TRANSFER_BYTES_MAX as u32 };
        let mut connection = Self {
            stream,
            link: Arc::clone(link),
            decoder: HeaderDecoder::new(Role::Host, limits),
            digests: Digests::NONE,
            h2c_bytes_max: 0,
            io_timeout: target.io_timeout,
            held: Vec::new(),
            ahead: [0; AHEAD_BYTES],
            start: 0,
            end: 0,
        };
        connection.set_up(target.digests(), deadline)?;
        Ok(connection)
    }

    fn set_up(&mut self, digests: Digests, deadline: Deadline) -> Result<(), DriverError> {
        self.send(&[&IcReq::new(digests).encode()], deadline)?;
        let Some(incoming) = self.next_header(deadline.at)? else {
            return Err(deadline.timed_out(self.link.peer(), "the first answer (ICResp)"));
        };
        match incoming.pdu {
            Pdu::IcResp(response) => {
                response.check(digests).map_err(|fatal| self.violation(fatal, format!("ICResp: {fatal}")))?;
                self.h2c_bytes_max = response.data_bytes_max.get();
                self.digests = digests;
                self.decoder.set_phase(ConnectionPhase::Ready(digests));
                Ok(())
            }
            Pdu::Terminate(fatal) => Err(self.link.protocol(format!("the peer ended the connection: {fatal}"))),
            _ => Err(self.link.protocol("its first answer is no ICResp")),
        }
    }

    pub(super) fn link(&self) -> &TcpLink {
        &self.link
    }

    pub(super) fn digests(&self) -> Digests {
        self.digests
    }

    /// Returns the most data of one H2CData.
    pub(super) fn h2c_bytes_max(&self) -> u32 {
        self.h2c_bytes_max
    }

    /// Returns the deadline by which the peer has to take the data sent.
    pub(super) fn send_deadline(&self) -> Deadline {
        Deadline::after(self.io_timeout)
    }

    /// Tells the peer why the connection ends, if that is possible at once, and returns the error.
    pub(super) fn violation(&mut self, fatal: FatalError, how: impl Into<Cause>) -> DriverError {
        let request = fatal.encode(Role::Host, self.decoder.header());
        // The result does not matter: the connection ends either way.
        let _ = sendmsg::<()>(
            self.stream.as_raw_fd(),
            &[IoSlice::new(&request)],
            &[],
            MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
            None,
        );
        self.link.protocol(how)
    }

    /// Keeps bytes for the next [`Self::send`]: several small PDUs then cost one system call.
    pub(super) fn hold(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// Sends the bytes held back, and all parts.
    pub(super) fn send(&mut self, parts: &[&[u8]], deadline: Deadline) -> Result<(), DriverError> {
        if parts.is_empty() && self.held.is_empty() {
            return Ok(());
        }
        let mut held = std::mem::take(&mut self.held);
        let sent = self.send_all([&held[..]].iter().chain(parts), deadline);
        held.clear();
        self.held = held;
        sent
    }

    fn send_all<'p>(&self, parts: impl Iterator<Item = &'p &'p [u8]>, deadline: Deadline) -> Result<(), DriverError> {
        let mut slices: Vec<IoSlice<'_>> = parts.map(|part| IoSlice::new(part)).collect();
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match sendmsg::<()>(self.stream.as_raw_fd(), rest, &[], MsgFlags::MSG_NOSIGNAL, None) {
                Ok(count) => IoSlice::advance_slices(&mut rest, count),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    if !self.wait(PollFlags::POLLOUT, deadline.at)? {
                        return Err(deadline.timed_out(self.link.peer(), "the data sent to it"));
                    }
                }
                Err(errno) => return Err(self.broken(io::Error::from(errno))),
            }
        }
        Ok(())
    }

    /// Returns the next header, or `None` if it is not complete by `at`; a partial header is kept.
    pub(super) fn next_header(&mut self, at: Instant) -> Result<Option<Incoming>, DriverError> {
        loop {
            let mut bytes = &self.ahead[self.start..self.end];
            let outcome = self.decoder.feed(&mut bytes);
            self.start = self.end - bytes.len();
            match outcome {
                Ok(Some(incoming)) => return Ok(Some(incoming)),
                Ok(None) => {}
                Err(error) => return Err(self.bad_header(error)),
            }
            // The decoder has consumed all bytes received ahead.
            (self.start, self.end) = (0, 0);
            match self.receive_some(&mut [], at)? {
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    fn bad_header(&mut self, error: PduError) -> DriverError {
        self.violation(error.fatal(), error)
    }

    /// Receives exactly `into`. Returns false if it is not complete by `at`; the connection is then unusable.
    pub(super) fn receive(&mut self, into: &mut [u8], at: Instant) -> Result<bool, DriverError> {
        let count = into.len().min(self.end - self.start);
        into[..count].copy_from_slice(&self.ahead[self.start..self.start + count]);
        self.start += count;
        let mut filled = count;
        while filled < into.len() {
            (self.start, self.end) = (0, 0);
            match self.receive_some(&mut into[filled..], at)? {
                Some(count) => filled += count,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Receives the digest that follows `data`. Returns `Some(false)` if it does not match, and `None` if it has not
    /// come by `at`.
    pub(super) fn receive_digest(&mut self, data: &[u8], at: Instant) -> Result<Option<bool>, DriverError> {
        let mut received = [0; DIGEST_BYTES];
        if !self.receive(&mut received, at)? {
            return Ok(None);
        }
        let mut digest = DataDigest::new();
        digest.update(data);
        Ok(Some(digest.wire() == received))
    }

    /// Receives at least one byte into `into` and, once that is full, ahead; returns the number of bytes in `into`. No
    /// bytes may be left from a receive ahead.
    fn receive_some(&mut self, into: &mut [u8], at: Instant) -> Result<Option<usize>, DriverError> {
        debug_assert_eq!(self.start, self.end, "what is ahead comes first");
        let wanted = into.len();
        loop {
            let mut parts = [IoSliceMut::new(into), IoSliceMut::new(&mut self.ahead)];
            match (&*self.stream).read_vectored(&mut parts) {
                Ok(0) => return Err(self.broken("closed by the peer")),
                Ok(count) => {
                    (self.start, self.end) = (0, count.saturating_sub(wanted));
                    return Ok(Some(count.min(wanted)));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !self.wait(PollFlags::POLLIN, at)? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    /// Waits for the socket; returns false at the deadline.
    fn wait(&self, events: PollFlags, at: Instant) -> Result<bool, DriverError> {
        wait(&self.stream, events, at).map_err(|errno| self.broken(io::Error::from(errno)))
    }

    /// Returns `Lost` with the cause for which the association ended, if it did, otherwise with this cause.
    fn broken(&self, cause: impl Into<Cause>) -> DriverError {
        self.link.check().err().unwrap_or_else(|| self.link.lost(cause))
    }
}

/// Waits for a socket; returns false at the deadline.
fn wait(stream: &TcpStream, events: PollFlags, at: Instant) -> nix::Result<bool> {
    loop {
        let left = at.saturating_duration_since(Instant::now());
        // Rounded up, so that the last millisecond does not become a busy loop.
        let left_ms = left.as_micros().div_ceil(1000);
        let timeout = PollTimeout::try_from(left_ms).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(stream.as_fd(), events)], timeout) {
            Ok(0) if Instant::now() >= at => return Ok(false),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(errno),
        }
    }
}

/// Connects to the first address that answers.
fn dial(addresses: &[SocketAddr], link: &TcpLink, deadline: Deadline) -> Result<Arc<TcpStream>, DriverError> {
    let mut last = link.lost("its name has no address");
    for address in addresses {
        if Instant::now() >= deadline.at {
            return Err(deadline.timed_out(link.peer(), "connecting"));
        }
        let stream = dial_one(*address, link, deadline.at);
        link.check()?;
        match stream {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == ErrorKind::TimedOut => last = deadline.timed_out(link.peer(), "connecting"),
            Err(error) => last = DriverError::not_opened(link.peer(), error),
        }
    }
    Err(last)
}

/// Connects to one address. The socket does not block, and is registered with the link as soon as it connects, so that
/// the link's end ends the attempt.
fn dial_one(address: SocketAddr, link: &TcpLink, at: Instant) -> io::Result<Arc<TcpStream>> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Stream, flags, None)?;
    let begun = connect(socket.as_raw_fd(), &SockaddrStorage::from(address));
    let stream = Arc::new(TcpStream::from(socket));
    // Registered only now, since a socket that is not yet connecting cannot be shut.
    link.register(&stream);
    match begun {
        Ok(()) => return Ok(stream),
        Err(Errno::EINPROGRESS | Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    if !wait(&stream, PollFlags::POLLOUT, at)? {
        return Err(ErrorKind::TimedOut.into());
    }
    stream.take_error()?.map_or(Ok(stream), Err)
}

/// Sets the receive buffer if the system allows that size: a smaller fixed buffer is worse than one that the kernel
/// tunes.
fn size_receive_buffer(stream: &TcpStream, bytes: usize) {
    let allowed = std::fs::read_to_string("/proc/sys/net/core/rmem_max").ok();
    let allowed = allowed.and_then(|text| text.trim().parse::<usize>().ok()).unwrap_or(0);
    if bytes <= allowed
        && let Err(errno) = setsockopt(stream, sockopt::RcvBuf, &bytes)
    {
        tracing::debug!(%errno, bytes, "receive buffer keeps its size");
    }
}
