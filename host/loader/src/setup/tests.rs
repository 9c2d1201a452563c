use super::drives::LOCAL_SLOTS;
use super::*;
use crate::drive::LocalDrive;
use crate::order::LastBatch;
use crate::schedule::Strategy;
use ddlp_pixels::{DType, Pipeline};
use std::cell::Cell;

/// Seventy small planar images.
fn small() -> (tempfile::TempDir, Arc<dyn Dataset>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data_batch_1.bin"), [3u8; 70 * 3073]).unwrap();
    let dataset = ddlp_dataset::open(folder.path()).unwrap().into();
    (folder, dataset)
}

#[test]
fn a_small_dataset_stays_in_memory_if_there_is_room_for_it_beside_the_buffers() {
    let (_folder, dataset) = small();
    let available = 1000 + RESIDENT_BYTES_MAX;
    let asked = Cell::new(0);
    let check_room = |bytes: u64| -> io::Result<()> {
        asked.set(bytes);
        if bytes <= available { Ok(()) } else { Err(io::ErrorKind::OutOfMemory.into()) }
    };
    assert!(resident_beside(1000, dataset.clone(), check_room).is_resident());
    assert_eq!(asked.get(), available);
    for buffers in [1001, u64::MAX] {
        let refused = resident_beside(buffers, dataset.clone(), check_room);
        assert!(!refused.is_resident() && Arc::ptr_eq(&refused, &dataset), "{buffers} bytes of buffers");
    }
}

#[test]
fn a_dataset_without_labels_is_noted_unless_a_file_gives_labels() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("1.jpg"), "x").unwrap();
    let noted = |table: &str| {
        let path = folder.path().join("table.csv");
        std::fs::write(&path, table).unwrap();
        let dataset = ddlp_dataset::open(folder.path()).unwrap();
        let fields = if table.is_empty() { Ok(SampleFields::default()) } else { SampleFields::read(&path, &*dataset) };
        note_of_labels(&*dataset, &fields.unwrap())
    };
    assert!(noted("").unwrap().contains("`fields`"));
    assert_eq!(noted("name,labels\n1.jpg,0\n"), None);
    for (list, is_noted) in [("path\n1.jpg\n", true), ("path,label\n1.jpg,3\n", false)] {
        let path = folder.path().join("list.csv");
        std::fs::write(&path, list).unwrap();
        let note = note_of_labels(&*ddlp_dataset::open(&path).unwrap(), &SampleFields::default());
        assert_eq!(note.is_some_and(|note| note.contains("column label")), is_noted, "{list}");
    }
    let (_folder, named) = small();
    assert_eq!(note_of_labels(&*named, &SampleFields::default()), None);
}

#[test]
fn a_dataset_stays_in_memory_in_runs_of_several_epochs() {
    let (_folder, dataset) = small();
    let of =
        |epochs| LoaderBuilder::default().dataset(dataset.clone()).with(|o| (o.batch_size, o.epochs) = (4, epochs));
    for (epochs, stays) in [(1, false), (2, true)] {
        let setup = RunSetup::new(&of(epochs).with(|o| o.pipeline = Pipeline::cifar_train()))
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(setup.dataset.is_resident(), stays, "{epochs} epochs");
    }
}

#[test]
fn buffers_that_memory_has_no_room_for_are_refused() {
    let (_folder, dataset) = small();
    let options = LoaderBuilder::default().dataset(dataset).with(|o| o.pipeline = Pipeline::imagenet_train());
    let options = options.with(|o| (o.batch_size, o.buffers, o.last) = (4096, 4096, LastBatch::Pad));
    for (dtype, bytes) in [(DType::U8, 1), (DType::Bf16, 2), (DType::F32, 4)] {
        let needed: u64 = 4096 * 4096 * bytes * 150_528;
        let Err(error) = RunSetup::new(&options.clone().with(|o| o.dtype = dtype)) else {
            panic!("{needed} bytes are there")
        };
        let message = error.to_string();
        let megabytes = needed.div_ceil(1_000_000);
        let part = format!("4096 batch buffers of 4096 samples ({megabytes} MB)");
        assert!(message.contains(&part) && message.contains("fewer `buffers`"), "{message}");
        assert!(message.contains(&format!("{megabytes} MB are needed")), "{message}");
    }
}

#[test]
fn buffers_and_slots_that_fit_alone_are_refused_together() {
    let (folder, dataset) = small();
    let sixty_percent = memory::available_bytes().unwrap() / 10 * 6;
    let options = LoaderBuilder::default()
        .dataset(dataset)
        .with(|o| (o.dataset, o.batch_size) = (Some(folder.path().into()), 64));
    let options = options.with(|o| (o.pipeline, o.strategy) = (Pipeline::imagenet_train(), Strategy::Mte));
    let batch = 64 * 150_528;
    let buffers = usize::try_from(sixty_percent / batch).unwrap();
    let slots = u32::try_from(sixty_percent / batch).unwrap();
    let drive = |slots, results| LocalDrive { slots: Some(slots), results, ..LocalDrive::default() };
    let with = |buffers, drive: LocalDrive| {
        RunSetup::new(&options.clone().with(|o| o.buffers = buffers).drive(DriveSpec::Local(drive))).map(drop)
    };
    with(buffers, drive(1, LocalResults::Shared)).unwrap();
    with(2, drive(slots, LocalResults::Shared)).unwrap();
    with(buffers, drive(slots, LocalResults::File("slots".into()))).unwrap();
    for results in [LocalResults::Shared, LocalResults::Read] {
        let message = with(buffers, drive(slots, results)).unwrap_err().to_string();
        assert!(message.contains(&format!("{buffers} batch buffers of 64 samples (")), "{message}");
        assert!(message.contains(&format!("{slots} result slots of drive csd (")), "{message}");
    }
}

#[test]
fn room_for_pixels_that_are_read_counts_where_floats_are_delivered() {
    let (folder, dataset) = small();
    let options =
        LoaderBuilder::default().dataset(dataset).with(|o| (o.dataset, o.batch_size) = (Some(folder.path().into()), 4));
    let options = options.drive(DriveSpec::Remote("tcp://127.0.0.1:1/nqn.2024-01.org.example:a".into()));
    let read = LocalDrive { slots: Some(3), results: LocalResults::Read, ..LocalDrive::default() };
    let options = options.drive(DriveSpec::Local(read));
    let slot = SlotLayout::new(4, Pipeline::imagenet_train().validate().unwrap()).unwrap().total_bytes as u64;
    for (strategy, dtype, slots) in
        [(Strategy::Mte, DType::U8, 3), (Strategy::Mte, DType::F32, 3 + 2), (Strategy::Cpu, DType::F32, 0)]
    {
        let options = options.clone().with(|o| (o.strategy, o.dtype) = (strategy, dtype));
        let setup = RunSetup::new(&options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(setup.memory_need(&options, 100).bytes(), 100 + slots * slot, "{strategy}");
    }
}

#[test]
fn a_local_drive_has_slots_for_the_batches_of_the_run() {
    let (folder, dataset) = small();
    let options = LoaderBuilder::default()
        .dataset(dataset)
        .with(|o| (o.dataset, o.batch_size) = (Some(folder.path().into()), 4096));
    let slots = |strategy, epochs, batch| {
        let options = options.clone().with(|o| (o.strategy, o.epochs, o.batch_size) = (strategy, epochs, batch));
        let options = options.drive(DriveSpec::Local(LocalDrive::default()));
        let setup = RunSetup::new(&options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(setup.cut.rows(), batch.min(70));
        setup.local_slots(&options, &LocalDrive::default())
    };
    // Seventy samples are one batch.
    for strategy in [Strategy::Ordered, Strategy::Mte, Strategy::Wrr, Strategy::Csd] {
        assert_eq!((slots(strategy, 1, 4096), slots(strategy, 2, 4096)), (1, 2), "{strategy}");
    }
    assert_eq!((slots(Strategy::Ordered, 1, 10), slots(Strategy::Ordered, 9, 1)), (7, LOCAL_SLOTS));
}

#[test]
fn under_mte_a_local_drive_has_slots_for_its_share_of_the_epoch() {
    let (folder, dataset) = small();
    let options =
        LoaderBuilder::default().dataset(dataset).with(|o| (o.dataset, o.batch_size) = (Some(folder.path().into()), 1));
    let options = options.with(|o| (o.strategy, o.threads) = (Strategy::Mte, Some(3)));
    let slots = |drive: LocalDrive, epochs, room: Option<u64>| {
        let options = options.clone().with(|o| o.epochs = epochs).drive(DriveSpec::Local(drive.clone()));
        let mut setup = RunSetup::new(&options).unwrap_or_else(|error| panic!("{error}"));
        if let Some(slots) = room {
            setup.slot_room = slots * setup.slot_bytes as u64;
        }
        setup.local_slots(&options, &drive)
    };
    let drive = |threads, throttle| LocalDrive { threads: Some(threads), throttle, ..LocalDrive::default() };
    // A quarter of the threads: 70 batches ÷ 4 × 1.25, and 3 more for what is in flight.
    assert_eq!(slots(drive(1, 1.0), 1, None), 22 + 3);
    // At half of its speed: a seventh.
    assert_eq!(slots(drive(1, 0.5), 1, None), 13 + 3);
    assert_eq!(slots(drive(1, 1.0), 9, None), 22 + 3, "a tail is of one epoch");
    assert_eq!(slots(drive(60, 1.0), 9, None), 70, "an epoch has no more batches");
    assert_eq!(slots(drive(1, 1.0), 1, Some(24)), 24, "as many as memory has room for");
    assert_eq!(slots(drive(1, 1.0), 1, Some(0)), 3, "the least that keeps the drive at work");
    assert_eq!(slots(LocalDrive { slots: Some(99), ..drive(1, 1.0) }, 1, Some(0)), 99, "the given number");
}

#[test]
fn processes_of_a_machine_share_the_room_for_local_slots() {
    let (folder, dataset) = small();
    let room = |processes| {
        let options = LoaderBuilder::default()
            .dataset(dataset.clone())
            .with(|o| (o.dataset, o.batch_size) = (Some(folder.path().into()), 1));
        let options = options.drive(DriveSpec::Local(LocalDrive::default())).with(|o| o.local_world_size = processes);
        RunSetup::new(&options).unwrap_or_else(|error| panic!("{error}")).slot_room
    };
    // The available memory changes from call to call.
    let (alone, shared) = (room(1), room(8));
    assert!(shared < alone / 4 && shared > alone / 16, "{alone} {shared}");
}
