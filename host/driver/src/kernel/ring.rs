//! Passthrough by io_uring: `IORING_OP_URING_CMD` with entries of 128 bytes and completions of 32.

#![allow(unsafe_code)]

use super::passthrough::{UringCommand, completion};
use super::request::{Answered, Request};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};
use nix::errno::Errno;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Pause before a call that the kernel had no room for is made again.
const PASSING_PAUSE: Duration = Duration::from_millis(1);
/// Interval at which a ring without an owner checks whether its last commands are over.
const REAP_LOOK: Duration = Duration::from_secs(1);

/// A ring with commands in flight.
pub(super) struct Ring(Option<RingState>);

struct RingState {
    ring: IoUring<squeue::Entry128, cqueue::Entry32>,
    /// Commands in flight, indexed by user data, with their nodes and buffers.
    requests: Vec<Option<Request>>,
    free: Vec<usize>,
}

impl Ring {
    /// Makes a ring for `commands` in flight. Returns an error if the kernel has no io_uring for passthrough (before
    /// 5.19) or does not let this process use it.
    pub(super) fn new(commands: usize) -> io::Result<Self> {
        let entries = u32::try_from(commands.next_power_of_two()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let ring = IoUring::<squeue::Entry128, cqueue::Entry32>::builder().build(entries)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::UringCmd80::CODE) || !ring.params().is_feature_ext_arg() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let requests = (0..commands).map(|_| None).collect();
        Ok(Self(Some(RingState { ring, requests, free: (0..commands).rev().collect() })))
    }

    fn inner(&mut self) -> &mut RingState {
        self.0.as_mut().expect("there until dropped")
    }

    pub(super) fn start(&mut self, request: Request) -> io::Result<()> {
        self.inner().start(request)
    }

    pub(super) fn next(&mut self, until: Instant) -> io::Result<Option<Answered>> {
        self.inner().next(until)
    }
}

impl RingState {
    fn start(&mut self, mut request: Request) -> io::Result<()> {
        let Some(index) = self.free.pop() else { return Err(io::ErrorKind::WouldBlock.into()) };
        let command = UringCommand::new(&mut request);
        let mut payload = [0; 80];
        payload[..size_of::<UringCommand>()].copy_from_slice(command.as_bytes());
        let (node, operation) = (Fd(request.node().as_raw_fd()), request.toward().uring_operation());
        let entry = opcode::UringCmd80::new(node, operation).cmd(payload).build().user_data(index as u64);
        // SAFETY: node and buffer belong to the request, which stays in `requests` until the completion is taken, or
        // moves with the ring into the thread of `Drop`. The buffer's memory stays in place when the request moves; the
        // kernel writes it only if the request's data are for reading.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            // Cannot happen: the queue has room for all commands in flight.
            self.free.push(index);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.requests[index] = Some(request);
        match self.ring.submit() {
            Ok(_) => Ok(()),
            // The entry stays in the queue, and the next call submits it.
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn next(&mut self, until: Instant) -> io::Result<Option<Answered>> {
        loop {
            if let Some(ended) = self.take() {
                return Ok(Some(ended));
            }
            let now = Instant::now();
            if now >= until {
                return Ok(None);
            }
            let left = Timespec::from(until - now);
            match self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&left)) {
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => {}
                // Pause: the kernel has no room at the moment.
                Err(error) if is_passing(&error) => std::thread::sleep(PASSING_PAUSE),
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
    }

    fn take(&mut self) -> Option<Answered> {
        let entry = self.ring.completion().next()?;
        let index = entry.user_data() as usize;
        let request = self.requests.get_mut(index)?.take()?;
        self.free.push(index);
        let outcome = match entry.result() {
            status @ 0.. => Ok(completion(status, entry.big_cqe()[0])),
            error => Err(Errno::from_raw(-error)),
        };
        Some((request, outcome))
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.requests.len()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let Some(inner) = self.0.take().filter(|inner| !inner.is_empty()) else { return };
        // If the ring is never dropped, its memory is lost, but nobody reuses it while the kernel writes to it.
        let mut inner = ManuallyDrop::new(inner);
        let reap = move || {
            while !inner.is_empty() {
                if let Err(error) = inner.next(Instant::now() + REAP_LOOK) {
                    tracing::error!(%error, "passthrough commands have not ended; their memory is not freed");
                    return;
                }
            }
            drop(ManuallyDrop::into_inner(inner));
        };
        if let Err(error) = std::thread::Builder::new().name("nvme-reaper".into()).spawn(reap) {
            tracing::error!(%error, "no thread to wait for passthrough commands");
        }
    }
}

/// Returns whether the call may succeed the next time.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}
