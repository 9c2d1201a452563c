//! `ddlp-host` alone is enough to build and run a loader: nothing here names another crate of the workspace.

use super::{SAMPLES, cifar, images, loader};
use ddlp_host::{
    Batch, BatchMemory, BufferNeed, ControllerState, CorruptPolicy, DType, Dataset, DeliveryError, DeliveryTarget,
    Digest, DriveError, DriveSpec, Field, FieldError, FieldKind, FieldView, Host, HostError, HostIdentity, ImageLayout,
    KernelController, KernelNamespace, LastBatch, Limits, Loader, LoaderBuilder, LoaderError, LoaderErrorKind,
    LoaderOptions, LoaderState, LocalDrive, MaxCorrupt, Normalize, OpenError, Outcome, Pipeline, PipelineError, Plan,
    PlanError, ProgramError, Progress, ProgressHandle, Report, SampleRecord, SharedField, StateError, Stopper,
    Strategy, Unavailable, open_dataset, pixels,
};
use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Takes every option that the builder has.
fn with_all_options(dataset: Arc<dyn Dataset>, path: &Path) -> LoaderBuilder {
    let crop = pixels::ops::CenterCrop::to(32);
    Loader::builder()
        .dataset(dataset)
        .with(|o| {
            o.dataset = Some(path.into());
            o.pipeline = Pipeline { exif_orientation: false, operations: vec![crop.into()] };
            o.dtype = DType::U8;
            o.layout = ImageLayout::Nhwc;
            o.batch_size = 8;
            o.epochs = 2;
            o.strategy = Strategy::Cpu;
        })
        .drive(DriveSpec::Local(LocalDrive::default()))
        .host(Host::system())
        .with(|o| {
            o.drive_depth = Some(2);
            o.drive_timeout = Duration::from_secs(1);
            o.drive_optional = true;
            o.threads = Some(2);
            o.cores = Vec::new();
            o.local_world_size = 1;
            o.seed = 7;
            o.shuffle = true;
            o.policy = CorruptPolicy::Skip;
            o.max_corrupt = MaxCorrupt::Samples(1);
            o.limits = Limits::default();
            o.last = LastBatch::Short;
            (o.rank, o.world_size) = (0, 1);
            o.buffers = 3;
            o.window = Some(4);
            o.epoch_samples = Some(SAMPLES as u64);
            o.stall_after = Duration::from_secs(9);
            o.metrics = Some((Ipv4Addr::LOCALHOST, 0).into());
        })
}

/// Reads everything that a batch has.
fn rows(batch: &Batch) -> usize {
    let records: &[SampleRecord] = batch.records();
    assert!(records.iter().all(|record| record.outcome == Outcome::Prepared));
    let fields: Vec<&Field> = batch.fields().collect();
    assert_eq!((fields[0].kind, fields[1].kind), (FieldKind::Image, FieldKind::Label));
    assert_eq!((images(batch).len(), batch.labels().unwrap().len()), (batch.len() * fields[0].bytes(), batch.len()));
    batch.len()
}

#[test]
fn a_loader_is_built_and_run_by_names_of_this_crate_alone() {
    let folder = cifar();
    let opened: Result<Arc<dyn Dataset>, LoaderError> = open_dataset(folder.path(), &Host::system());
    let dataset = opened.unwrap_or_else(|error| panic!("{error}"));
    let mut loader: Loader = with_all_options(dataset, folder.path()).build().expect("it builds");
    let (stopper, progress): (Stopper, ProgressHandle) = (loader.stopper(), loader.progress());
    let (mut images, mut digest) = (0, Digest::default());
    for batch in loader.by_ref() {
        let batch = batch.expect("every batch comes");
        digest.update(&batch).unwrap();
        images += rows(&batch);
    }
    let (report, state, plan): (Report, LoaderState, Plan) = (loader.report(), loader.state(), loader.plan());
    let seen: Progress = progress.snapshot();
    assert_eq!((images, report.images, seen.images), (2 * SAMPLES, 2 * SAMPLES as u64, 2 * SAMPLES as u64));
    assert_eq!((state.epoch, plan.epochs.len(), digest.unordered().len()), (2, 2, 32));
    let figures = page(loader.metrics_address().expect("the option asks for it"));
    let of_cpu = format!("\nddlp_prong_images_total{{prong=\"cpu\"}} {}.0\n", 2 * SAMPLES);
    assert!(figures.contains(&of_cpu) && figures.contains("\nddlp_run_epoch 2.0\n"), "{figures}");
    stopper.stop();
}

/// Reads the figures for Prometheus.
fn page(address: SocketAddr) -> String {
    let mut client = TcpStream::connect(address).expect("the loader listens");
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it takes a request");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn figures_that_cannot_be_served_are_an_error_of_the_options() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = taken.local_addr().expect("an address");
    let folder = cifar();
    let error = loader(&folder).with(|o| o.metrics = Some(address)).build().map(drop).unwrap_err();
    assert_eq!(error.kind(), LoaderErrorKind::Configuration);
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn a_loader_is_opened_with_options_that_are_plain_data() {
    let folder = cifar();
    let options = LoaderOptions {
        dataset: Some(folder.path().into()),
        pipeline: Pipeline::cifar_train(),
        strategy: Strategy::Cpu,
        ..LoaderOptions::default()
    };
    let by_options: Vec<Vec<u64>> = ids(Loader::open(options).expect("it builds"));
    let by_builder = ids(loader(&folder).with(|o| o.batch_size = 256).build().expect("it builds"));
    assert_eq!(by_options, by_builder);
}

fn ids(loader: Loader) -> Vec<Vec<u64>> {
    loader.map(|batch| batch.expect("every batch comes").sample_ids().to_vec()).collect()
}

#[test]
fn callers_can_treat_kinds_of_errors_differently() {
    let folder = cifar();
    let kind = |builder: LoaderBuilder| builder.build().map(drop).unwrap_err().kind();
    assert_eq!(kind(Loader::builder()), LoaderErrorKind::Configuration);
    assert_eq!(
        kind(Loader::builder().with(|o| o.dataset = Some("/no/such/file".into()))),
        LoaderErrorKind::Unavailable
    );
    assert_eq!(
        kind(loader(&folder).with(|o| (o.batch_size, o.buffers, o.last) = (1 << 16, 4096, LastBatch::Pad))),
        LoaderErrorKind::Memory
    );
    let nowhere = DriveSpec::Remote("tcp://127.0.0.1:1/nqn.2024-01.org.example:none".into());
    assert_eq!(kind(loader(&folder).with(|o| o.strategy = Strategy::Mte).drive(nowhere)), LoaderErrorKind::Drive);
}

/// Every public type can be printed.
#[test]
fn every_type_has_a_debug_form() {
    fn is_debug<T: Debug>() {}
    is_debug::<(
        Batch,
        FieldView<'_>,
        SharedField,
        FieldError,
        Loader,
        LoaderBuilder,
        LoaderError,
        Stopper,
        ProgressHandle,
        Digest,
    )>();
    is_debug::<(DriveError, OpenError, DeliveryError, PlanError, StateError, ProgramError, PipelineError, Unavailable)>(
    );
    is_debug::<(HostError, HostIdentity, KernelController, KernelNamespace, ControllerState)>();
    is_debug::<(Box<dyn DeliveryTarget>, Box<dyn BatchMemory>, BufferNeed, Normalize)>();
    let shown = format!("{:?}", Loader::builder().with(|o| o.seed = 4711));
    assert!(shown.contains("4711"), "{shown}");
}

#[test]
fn channels_last_has_the_dimensions_of_nchw_in_the_memory_of_nhwc() {
    let folder = cifar();
    let [rows, last] = [ImageLayout::Nhwc, ImageLayout::ChannelsLast].map(|layout| {
        let loader = loader(&folder).with(|o| (o.dtype, o.layout) = (DType::F32, layout)).build().unwrap();
        loader.map(|batch| batch.unwrap().into_owned().unwrap()).collect::<Vec<_>>()
    });
    for (rows, last) in rows.iter().zip(&last) {
        let [rows, last] = [rows, last].map(|batch| batch.field("image").unwrap());
        assert_eq!((last.shape(), last.strides()), (vec![8, 3, 32, 32], vec![3072, 1, 96, 3]));
        assert!(last.bytes().unwrap() == rows.bytes().unwrap());
        assert!(matches!(last.as_slice::<f32>(), Err(FieldError::Strided { layout: ImageLayout::ChannelsLast, .. })));
    }
}
