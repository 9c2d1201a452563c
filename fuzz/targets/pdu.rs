//! Feeds any bytes to either side of a connection, in pieces of any size.
#![no_main]

use ddlp_device::tcp::session::{Agreement, CommandHandler, Session};
use ddlp_nvme::tcp::{ConnectionPhase, Digests, Encoded, FatalError, HeaderDecoder, IcReq, PduLimits, Role};
use ddlp_nvme::{Status, SubmissionEntry};
use libfuzzer_sys::fuzz_target;

/// Layer above the session that takes as much data as a command asks for, up to a bound, and counts the bytes.
#[derive(Default)]
struct Bounded {
    bytes: usize,
}

const DATA_BYTES_MAX: usize = 64 * 1024;

impl CommandHandler for Bounded {
    fn begin(&mut self, command: &SubmissionEntry) -> Result<Result<usize, Status>, FatalError> {
        Ok(Ok((command.data.length.get() as usize).min(DATA_BYTES_MAX)))
    }
    fn run(&mut self, _: &SubmissionEntry, data: &[u8]) {
        assert!(data.len() <= DATA_BYTES_MAX);
        self.bytes += data.len();
    }
    fn reject(&mut self, _: &SubmissionEntry, _: Status) {}
    fn ready(&mut self, _: Agreement) {}
    fn send(&mut self, _: Encoded) {}
}

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (choice, bytes) = input;
    let digests = Digests { header: choice & 1 != 0, data: choice & 2 != 0 };
    if choice & 4 != 0 {
        let mut decoder =
            HeaderDecoder::new(Role::Host, PduLimits { capsule_bytes_max: 8192, data_bytes_max: 1 << 20 });
        decoder.set_phase(ConnectionPhase::Ready(digests));
        let mut rest = &bytes[..];
        while let Ok(Some(_)) = decoder.feed(&mut rest) {}
        return;
    }
    let (mut session, mut above) = (Session::default(), Bounded::default());
    // Most inputs begin after the handshake, where there are more states.
    if choice & 8 == 0 {
        let request = IcReq::new(digests).encode();
        session.feed(&request, &mut above).expect("a handshake is accepted");
    }
    let piece = usize::from(choice >> 4) * 7 + 1;
    for piece in bytes.chunks(piece) {
        if session.feed(piece, &mut above).is_err() {
            break;
        }
    }
    assert!(above.bytes <= bytes.len(), "the session delivered more data than it received");
});
