//! Discovery logs of controllers that say anything.

use crate::peer::{CONTROLLER, Config, Event, Handled, Peer};
use ddlp_driver::DriverError;
use ddlp_driver::tcp::{DISCOVERY_ENTRIES_MAX, Discovered, DiscoveredKind, discover};
use ddlp_nvme::admin::GetLogPage;
use ddlp_nvme::identify::IdentifyController;
use ddlp_nvme::log::{DiscoveryEntry, DiscoveryHeader};
use ddlp_nvme::{AdminOpcode, LogId, Status};
use std::sync::Mutex;
use zerocopy::IntoBytes;

fn entry(number: u64) -> DiscoveryEntry {
    let port = (1000 + number).to_string();
    DiscoveryEntry::tcp(&format!("nqn.2024-01.org.example:{number}"), "192.0.2.7", false, &port).unwrap()
}

fn log(generation: u64, entries: &[DiscoveryEntry]) -> Vec<u8> {
    let header = DiscoveryHeader::new(generation, entries.len() as u64);
    header.as_bytes().iter().chain(entries.iter().flat_map(|entry| entry.as_bytes())).copied().collect()
}

/// A discovery controller whose log is what `page` says at each command, numbered from 0.
fn peer(page: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static) -> Peer {
    let asked = Mutex::new(0);
    Peer::start(Config::default(), move |wire, received| {
        if received.is(AdminOpcode::IDENTIFY) {
            let mut controller = IdentifyController::zeroed();
            controller.controller_type = IdentifyController::TYPE_DISCOVERY;
            controller.controller_id = CONTROLLER.into();
            wire.answer_read(received.cid(), controller.as_bytes(), false);
            return Handled::Yes;
        }
        if !received.is(AdminOpcode::GET_LOG_PAGE) {
            return Handled::No;
        }
        let request = GetLogPage::parse(&received.entry);
        assert_eq!(request.log, LogId::DISCOVERY);
        let mut asked = asked.lock().unwrap();
        let mut page = page(*asked).split_off(request.offset as usize);
        *asked += 1;
        page.resize(request.bytes() as usize, 0);
        wire.answer_read(received.cid(), &page, false);
        Handled::Yes
    })
}

fn found(number: u64) -> Discovered {
    Discovered {
        kind: DiscoveredKind::Nvm,
        nqn: format!("nqn.2024-01.org.example:{number}"),
        address: Some(format!("192.0.2.7:{}", 1000 + number)),
    }
}

#[test]
fn logs_of_any_length_are_read_whole_and_left_in_order() {
    for count in [0, 1, 4, 5, DISCOVERY_ENTRIES_MAX] {
        let peer = peer(move |_| log(1, &(0..count).map(entry).collect::<Vec<_>>()));
        assert_eq!(discover(&peer.target()).unwrap(), (0..count).map(found).collect::<Vec<_>>());
        peer.wait_for(|event| *event == Event::ShutdownAsked);
        peer.wait_for(|event| *event == Event::Closed(0));
    }
}

#[test]
fn a_log_that_changes_meanwhile_is_read_again() {
    // Head, entry, head: the second head is that of the next generation, which stays.
    let peer = peer(|asked| if asked < 2 { log(1, &[entry(1)]) } else { log(2, &[entry(2), entry(3)]) });
    assert_eq!(discover(&peer.target()).unwrap(), [found(2), found(3)]);
}

#[test]
fn a_log_that_makes_no_sense_is_refused() {
    let with = |change: fn(&mut DiscoveryHeader)| {
        let mut header = DiscoveryHeader::new(1, 1);
        change(&mut header);
        [header.as_bytes(), entry(1).as_bytes()].concat()
    };
    let nowhere = DiscoveryEntry { address: [b'x'; 256], ..entry(1) };
    let nameless = DiscoveryEntry { subsystem_nqn: [0; 256], ..entry(1) };
    let cases = [
        ("too long", with(|header| header.entries = (DISCOVERY_ENTRIES_MAX + 1).into())),
        ("endless", with(|header| header.entries = u64::MAX.into())),
        ("another format", with(|header| header.record_format = 1.into())),
        ("no address", log(1, &[nowhere])),
        ("no name", log(1, &[nameless])),
    ];
    for (what, page) in cases {
        let peer = peer(move |_| page.clone());
        let outcome = discover(&peer.target());
        assert!(matches!(outcome, Err(DriverError::Protocol { .. })), "{what}: {outcome:?}");
        peer.wait_for(|event| *event == Event::Closed(0));
    }
    let peer = peer(|asked| log(asked.into(), &[entry(1)]));
    let error = discover(&peer.target()).unwrap_err();
    assert!(error.to_string().contains("again and again"), "{error}");
}

#[test]
fn a_controller_that_refuses_is_quoted() {
    let refused = Config { connect_status: Status::CONNECT_INVALID_HOST, ..Config::default() };
    let error = discover(&Peer::honest(refused).target()).unwrap_err();
    assert!(matches!(error, DriverError::Status { .. }) && error.to_string().contains("invalid host"), "{error}");
    let error = discover(&Peer::honest(Config::default()).target()).unwrap_err();
    assert!(error.to_string().contains("not a discovery controller"), "{error}");
}
