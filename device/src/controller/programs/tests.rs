use super::*;
use ddlp_csd::abilities::AgreedDecoders;
use ddlp_csd::program::CorruptPolicy;
use ddlp_csd::program::Program;
use ddlp_dataset::pack::StoredForm;
use ddlp_dataset::{Decoder, Decoders, abilities};
use ddlp_pixels::{Ability, Limits};

fn drive() -> DriveIdentity {
    DriveIdentity {
        dataset: [1; 32],
        dataset_samples: 10,
        abilities: abilities().to_vec(),
        agent: [0; 16],
        slot_bytes: 4096,
        slots: 1,
        workers: 1,
    }
}

fn program() -> Program {
    crate::test_support::program("imagenet-val", CorruptPolicy::Skip)
}

fn bytes() -> Vec<u8> {
    DriveProgram::new(program(), Decoders::NONE).to_bytes().unwrap()
}

fn piece(index: u16, program: &[u8], range: std::ops::Range<usize>) -> (LoadProgram, &[u8]) {
    let command = LoadProgram {
        index,
        kind: PROGRAM_TYPE,
        program_bytes: program.len() as u32,
        bytes: range.len() as u32,
        offset: range.start as u32,
        ..LoadProgram::default()
    };
    (command, &program[range])
}

fn loaded() -> ProgramTable {
    let (mut table, program) = (ProgramTable::default(), bytes());
    let (command, data) = piece(3, &program, 0..program.len());
    table.load(&command, data, &drive()).unwrap();
    table
}

#[test]
fn pieces_in_order_make_a_program() {
    let (mut table, program) = (ProgramTable::default(), bytes());
    for range in [0..10, 10..11, 11..program.len()] {
        assert_eq!(table.active(3).unwrap_err(), Status::NO_PROGRAM);
        let (command, data) = piece(3, &program, range);
        table.load(&command, data, &drive()).unwrap();
    }
    assert_eq!(table.active(3).unwrap_err(), Status::PROGRAM_NOT_ACTIVATED);
    table.set_active(3, true).unwrap();
    let loaded = table.active(3).unwrap();
    assert_eq!((&loaded.program, loaded.agreed), (&self::program(), AgreedDecoders::ALL));
    assert_eq!(loaded.id, program_id(&[1; 32], &program));
}

#[test]
fn a_gap_an_overlap_or_another_total_is_refused() {
    let program = bytes();
    for (range, total) in [(11..20, program.len()), (9..20, program.len()), (10..20, program.len() - 1)] {
        let mut table = ProgramTable::default();
        let (command, data) = piece(0, &program, 0..10);
        table.load(&command, data, &drive()).unwrap();
        let (mut command, data) = piece(0, &program, range);
        command.program_bytes = total as u32;
        assert_eq!(table.load(&command, data, &drive()), Err(Status::INVALID_FIELD));
    }
}

#[test]
fn each_wrong_field_has_its_status() {
    type Change = fn(&mut LoadProgram);
    let cases: [(Change, Status); 8] = [
        (|load| load.index = PROGRAMS_MAX as u16, Status::INVALID_PROGRAM_INDEX),
        (|load| load.kind = 0xC1, Status::INVALID_PROGRAM_TYPE),
        (|load| load.program_bytes = u32::MAX, Status::PROGRAM_TOO_BIG),
        (|load| load.id_kind = 2, Status::INVALID_FIELD),
        (|load| load.bytes -= 1, Status::INVALID_FIELD),
        (|load| load.offset = u32::MAX, Status::INVALID_FIELD),
        (|load| load.offset = 1, Status::INVALID_FIELD),
        (|load| load.program_bytes -= 1, Status::INVALID_FIELD),
    ];
    let program = bytes();
    for (number, (change, status)) in cases.into_iter().enumerate() {
        let (mut command, data) = piece(0, &program, 0..program.len());
        change(&mut command);
        assert_eq!(ProgramTable::default().load(&command, data, &drive()), Err(status), "case {number}");
    }
}

#[test]
fn damaged_programs_leave_the_index_empty() {
    let mut program = bytes();
    *program.last_mut().unwrap() ^= 1;
    let mut table = ProgramTable::default();
    let (command, data) = piece(0, &program, 0..program.len());
    assert_eq!(table.load(&command, data, &drive()), Err(Status::INVALID_PROGRAM_DATA));
    assert_eq!(table.active(0).unwrap_err(), Status::NO_PROGRAM);
}

#[test]
fn an_identifier_is_that_of_the_program_for_this_dataset() {
    let program = bytes();
    let id = program_id(&[1; 32], &program);
    let load = |id_kind, id| {
        let mut table = ProgramTable::default();
        let (command, data) = piece(0, &program, 0..program.len());
        table.load(&LoadProgram { id_kind, id, ..command }, data, &drive())?;
        Ok(table.listed()[0].id)
    };
    assert_eq!((load(UNIQUE_ID, id), load(0, 7)), (Ok(id), Ok(id)));
    for other in [id ^ 1, program_id(&[2; 32], &program)] {
        assert_eq!(load(UNIQUE_ID, other), Err(Status::INVALID_PROGRAM_DATA));
    }
}

#[test]
fn programs_with_too_high_limits_are_refused() {
    let most = PROGRAM_LIMITS_MAX;
    let load = |limits| {
        let program = DriveProgram::new(Program { limits, ..program() }, Decoders::NONE);
        let (mut table, program) = (ProgramTable::default(), program.to_bytes().unwrap());
        let (command, data) = piece(0, &program, 0..program.len());
        let loaded = table.load(&command, data, &drive());
        assert_eq!(table.listed().len(), usize::from(loaded.is_ok()));
        loaded
    };
    assert_eq!(load(Limits::default()), Ok(()));
    assert_eq!(load(most), Ok(()));
    for limits in [
        Limits { pixels: most.pixels + 1, ..most },
        Limits { scans: u32::MAX, ..most },
        Limits { memory_bytes: u64::MAX, ..most },
    ] {
        assert_eq!(load(limits), Err(Status::INVALID_PROGRAM_DATA), "{limits:?}");
    }
}

#[test]
fn a_drive_refuses_programs_that_need_what_it_lacks_and_no_others() {
    let load = |decoders: Decoders, change: fn(&mut Vec<Ability>)| {
        let mut drive = drive();
        change(&mut drive.abilities);
        let (mut table, program) = (ProgramTable::default(), DriveProgram::new(program(), decoders));
        let program = program.to_bytes().unwrap();
        let (command, data) = piece(0, &program, 0..program.len());
        table.load(&command, data, &drive)?;
        table.set_active(0, true)?;
        table.active(0).map(|loaded| loaded.agreed)
    };
    let rows: Decoders = [Decoder::Form(StoredForm::Rows)].into_iter().collect();
    assert_eq!(load(rows, |_| ()), Ok(AgreedDecoders::ALL));
    // Another operation, another file format, and the dataset's form when nothing is said about the dataset.
    assert_eq!(load(rows, |abilities| abilities.retain(|ability| ability.number.0 != 0x0106)), Ok(AgreedDecoders::ALL));
    assert!(load(rows, |abilities| abilities.retain(|ability| ability.number.0 != 0x0201)).is_ok());
    assert!(load(Decoders::NONE, |abilities| abilities.retain(|ability| ability.number.0 != 0x0304)).is_ok());
    // The pipeline's operation, rendering, and the dataset's form.
    let refused = Err(Status::INVALID_PROGRAM_DATA);
    assert_eq!(load(rows, |abilities| abilities.retain(|ability| ability.number.0 != 0x0101)), refused);
    assert_eq!(load(rows, |abilities| abilities[0].digest = [3; 16]), refused);
    assert_eq!(load(rows, |abilities| abilities.retain(|ability| ability.number.0 != 0x0304)), refused);
}

#[test]
fn active_programs_are_neither_replaced_nor_unloaded() {
    let mut table = loaded();
    table.set_active(3, true).unwrap();
    let program = bytes();
    let (command, data) = piece(3, &program, 0..program.len());
    assert_eq!(table.load(&command, data, &drive()), Err(Status::PROGRAM_IN_USE));
    assert_eq!(table.unload(3), Err(Status::PROGRAM_IN_USE));
    table.set_active(3, false).unwrap();
    table.load(&command, data, &drive()).unwrap();
    table.unload(3).unwrap();
    assert_eq!(table.unload(3), Err(Status::NO_PROGRAM));
    assert_eq!(table.set_active(3, true), Err(Status::NO_PROGRAM));
    assert!(table.listed().is_empty());
}
