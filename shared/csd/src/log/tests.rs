use super::*;
use ddlp_dataset::abilities;
use ddlp_pixels::AbilityNumber;
use proptest::prelude::*;

fn identity() -> DriveIdentity {
    DriveIdentity {
        dataset: [1; 32],
        dataset_samples: 1_281_167,
        abilities: abilities().to_vec(),
        agent: DriveIdentity::version_field("0.1.0"),
        slot_bytes: 38_539_264,
        slots: 16,
        workers: 4,
    }
}

#[test]
fn round_trips() {
    let most = |number| Ability { number: AbilityNumber(number), digest: [number as u8; 16] };
    let full = DriveIdentity { abilities: (0..ABILITIES_MAX as u16).map(most).collect(), ..identity() };
    let empty = DriveIdentity { abilities: Vec::new(), agent: [0x5A; 16], ..identity() };
    for identity in [identity(), full, empty] {
        assert_eq!(DriveIdentity::parse(&identity.to_page()), Ok(identity));
    }
    let counters = Counters {
        batches: 5,
        outstanding: 2,
        temperature_dc: Some(-15),
        energy_mj: Some(9),
        cpu_us: 77,
        ..Counters::default()
    };
    assert_eq!(Counters::parse(&counters.to_page()), Ok(counters));
}

#[test]
fn the_agents_version_is_text() {
    assert_eq!(identity().agent_version(), "0.1.0");
    let agent = DriveIdentity::version_field("10.20.30-alpha.4+nightly");
    assert_eq!(DriveIdentity { agent, ..identity() }.agent_version(), "10.20.30-alpha.4");
    let hostile = *b"\x1B[31m\n\xFF\0abcdefgh";
    assert_eq!(DriveIdentity { agent: hostile, ..identity() }.agent_version(), "\\x1b[31m\\n\\xff");
}

#[test]
fn truncation_damage_and_the_other_page_are_errors() {
    let page = identity().to_page();
    assert_eq!(DriveIdentity::parse(&page[..4095]), Err(LogError::Length(4095)));
    assert!(matches!(Counters::parse(&page), Err(LogError::Magic(_))));
    for at in 0..LOG_BYTES {
        let mut damaged = page;
        damaged[at] ^= 1;
        assert!(DriveIdentity::parse(&damaged).is_err(), "byte {at}");
    }
}

/// Changes a page and makes its checksum right again.
fn resealed(mut page: [u8; LOG_BYTES], at: usize, bytes: &[u8]) -> [u8; LOG_BYTES] {
    page[at..at + bytes.len()].copy_from_slice(bytes);
    let crc = crc32c_without(&page, CRC_FIELD);
    page[CRC_FIELD].copy_from_slice(&crc.to_le_bytes());
    page
}

#[test]
fn pages_of_other_versions_say_which_side_is_older() {
    let text = |version: u32| {
        let error = DriveIdentity::parse(&resealed(identity().to_page(), 4, &version.to_le_bytes())).unwrap_err();
        assert_eq!(error, LogError::Version { found: version, known: 2 });
        error.to_string()
    };
    assert_eq!(text(1), "the drive's agent is of an older version of DDLP: its log page has version 1, not 2");
    assert!(text(3).contains("a newer version of DDLP"));
}

#[test]
fn a_list_that_is_too_long_or_out_of_order_is_refused() {
    let page = identity().to_page();
    let count_at = std::mem::offset_of!(WireIdentity, abilities);
    for count in [ABILITIES_MAX as u16 + 1, u16::MAX, abilities().len() as u16 + 1] {
        let wrong = resealed(page, count_at, &count.to_le_bytes());
        assert_eq!(DriveIdentity::parse(&wrong), Err(LogError::Abilities), "{count}");
    }
    let twice = resealed(page, ABILITIES_AT + ABILITY_BYTES, &1u16.to_le_bytes());
    assert_eq!(DriveIdentity::parse(&twice), Err(LogError::Abilities));
    let unknown = resealed(page, ABILITIES_AT + (abilities().len() - 1) * ABILITY_BYTES, &0x7777u16.to_le_bytes());
    let parsed = DriveIdentity::parse(&unknown).expect("an ability of another version");
    assert_eq!(parsed.abilities.last().map(|ability| ability.number), Some(AbilityNumber(0x7777)));
}

proptest! {
    #[test]
    fn arbitrary_pages_never_panic(at in 12..LOG_BYTES - 64, bytes: [u8; 64]) {
        let page = resealed(identity().to_page(), at, &bytes);
        if let Ok(identity) = DriveIdentity::parse(&page) {
            prop_assert_eq!(DriveIdentity::parse(&identity.to_page()), Ok(identity));
        }
    }
}
