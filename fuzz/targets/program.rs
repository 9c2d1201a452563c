//! Parses any bytes as each message of the compute namespace (programs, batch requests, slots, log pages) and as a
//! plan.
#![no_main]

use ddlp_csd::log::{Counters, DriveIdentity};
use ddlp_csd::program::{CorruptPolicy, DriveProgram};
use ddlp_csd::request::BatchRequest;
use ddlp_csd::slot::{HEADER_BYTES, SlotHeader, Wanted};
use ddlp_host::Plan;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(program) = DriveProgram::from_bytes(bytes) {
        assert!(program.program.pipeline.output().bytes() > 0);
        assert_eq!(DriveProgram::from_bytes(&program.to_bytes().expect("encodes")).expect("round trip"), program);
    }
    if let Ok(request) = BatchRequest::parse(bytes) {
        assert_eq!(request.to_bytes(), bytes);
    }
    if let Ok(header) = SlotHeader::parse(bytes) {
        let ids = vec![0; header.requested as usize];
        let _ = header.parse_table(bytes.get(HEADER_BYTES..).unwrap_or_default(), &ids);
        let wanted = Wanted {
            epoch: header.epoch,
            batch: header.batch,
            generation: header.generation,
            sample_ids: &ids,
            shape: header.shape,
            dataset_samples: 1,
            policy: CorruptPolicy::Replace,
        };
        if let Ok(found) = wanted.check(bytes) {
            assert_eq!(found.payload.len(), header.payload_bytes());
        }
    }
    if let Ok(identity) = DriveIdentity::parse(bytes) {
        assert_eq!(DriveIdentity::parse(&identity.to_page()).as_ref(), Ok(&identity));
    }
    let _ = Counters::parse(bytes);
    if let Ok(plan) = Plan::from_bytes(bytes) {
        assert_eq!(Plan::from_bytes(&plan.to_bytes().expect("encodes")).expect("round trip"), plan);
    }
});
