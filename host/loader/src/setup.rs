//! From options to a run: opens the dataset, starts or reaches the drives, and checks that everything fits. `drives`:
//! starting and reaching the drives. `window`: the windowed order.

mod drives;
mod window;

pub(crate) use drives::OpenDrive;

use crate::bucket::Bucket;
use crate::builder::LoaderBuilder;
use crate::classes;
use crate::drive::{DriveSpec, Expected, LocalResults};
use crate::engine::buffer_bytes;
use crate::error::LoaderError;
use crate::fetch::{FetchOptions, FetchPlan};
use crate::fidelity::{Fidelities, RunFidelity};
use crate::memory_need::MemoryNeed;
use crate::mixing::Mixing;
use crate::opening::open_dataset_with;
use crate::options::LoaderOptions;
use crate::order::{
    Buckets, ChoiceRecord, Chosen, Copies, EpochCut, Indices, Portion, Walks, portions_of, read_indices,
};
use crate::plan::Plan;
use crate::recorder::Recorder;
use crate::report::Report;
use crate::splits::{Split, SplitError, part_of};
use crate::state::{LoaderState, STATE_VERSION};
use crate::threads::ThreadShares;
use ddlp_csd::memory;
use ddlp_csd::program::{CorruptPolicy, DriveProgram};
use ddlp_csd::slot::SlotLayout;
use ddlp_dataset::{
    Dataset, ImageSize, MixPart, RESIDENT_BYTES_MAX, Resident, SampleFields, image_sizes, left_out_reason,
};
use ddlp_driver::Host;
use ddlp_pixels::{LABEL, Pipeline, SIZE, Shape};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};
use std::time::Instant;

/// Share of the memory beside the buffers that the slots of local drives may take by default.
const LOCAL_SLOTS_SHARE: u64 = 8;

/// Datasets of a mix that the report names.
const PARTS_NAMED: usize = 8;

/// A run as derived from the options.
pub(crate) struct RunSetup {
    pub dataset: Arc<dyn Dataset>,
    /// Fields beside the dataset.
    pub beside: SampleFields,
    /// This machine, as drives know it.
    host: Host,
    /// Buckets of the samples, at least one.
    pub buckets: Vec<Bucket>,
    /// Sizes of the dataset's images; empty if no field needs them.
    pub sizes: Vec<ImageSize>,
    /// How batches are mixed, if they are.
    pub mixing: Option<Mixing>,
    pub walks: Arc<Walks>,
    /// How exactly the images of each epoch are read.
    pub fidelity: RunFidelity,
    pub cut: EpochCut,
    pub batches: u32,
    /// Least size of a drive's slots.
    pub slot_bytes: usize,
    pub expected: Expected,
    pub fresh: LoaderState,
    pub first_epoch: u32,
    /// Bytes that a local drive's slots may take by default.
    slot_room: u64,
    /// Says that no label tells anything, if that is so.
    note_of_labels: Option<String>,
    /// Says that a list numbers its own classes, if that is so.
    note_of_classes: Option<String>,
}

impl RunSetup {
    pub fn new(builder: &LoaderBuilder) -> Result<Self, LoaderError> {
        let options = &builder.options;
        let host = builder.host.clone().map_or_else(|| options.host(), Ok)?;
        let shapes = options.shapes()?;
        check_functions(builder)?;
        let dataset: Arc<dyn Dataset> = match (&builder.dataset, &options.dataset) {
            (Some(dataset), _) => dataset.clone(),
            (None, Some(path)) => open_dataset_with(path, &host, &options.opening(), options.cache().as_ref())?,
            (None, None) => return Err(LoaderError::Options("no dataset is given".into())),
        };
        let own_classes = dataset;
        let mut dataset = classes::for_fields(&own_classes, &options.class_names)?;
        let mut beside = match (&builder.table, &options.fields) {
            (Some(table), _) => SampleFields::from_table(table, &*dataset)?,
            (None, Some(path)) => SampleFields::read(path, &*dataset)?,
            (None, None) => SampleFields::default(),
        };
        for (field, values) in &builder.fields {
            beside.add(dataset.len(), field.clone(), values.clone())?;
        }
        let note_of_labels = note_of_labels(&*own_classes, &beside);
        let note_of_classes = note_of_classes(&*own_classes, &options.class_names, &beside);
        if !options.class_names.is_empty() {
            dataset = classes::given(own_classes, dataset, &beside, &options.class_names)?;
        }
        let (chosen, choice) = chosen_of(builder, &*dataset, &beside)?;
        let mut sizes = sizes_of(builder, &*dataset)?;
        let (walks, cut) = epochs_of(options, &dataset, chosen, &shapes, &sizes)?;
        let fidelity = RunFidelity::new(&options.fidelity, builder.fidelity.as_ref(), &*dataset);
        let fidelity = fidelity.map_err(LoaderError::Options)?;
        let batches = u32::try_from(cut.batches()).expect("not more batches than samples");
        let slot_bytes = slot_bytes(&cut, &shapes)?;
        let mixing = Mixing::new(options, beside.classes().unwrap_or_else(|| dataset.classes()))?;
        let pipelines = options.pipelines().iter();
        let by_target = builder.target.as_ref().is_some_and(|target| target.finishes);
        let buckets = pipelines.map(|pipeline| Bucket::new(options, pipeline, mixing.as_ref(), &beside, by_target));
        let buckets = buckets.collect::<Result<Vec<_>, _>>().map_err(LoaderError::Pipeline)?;
        if options.pipelines()[0].has_canvas() {
            check_canvas(&beside)?;
        } else {
            sizes = Vec::new();
        }
        let buffers = (options.buffers as u64).saturating_mul(buffer_bytes(&cut, &buckets) as u64);
        let fresh = LoaderState {
            version: STATE_VERSION,
            seed: options.seed,
            shuffle: options.shuffle,
            // An option of at most 4096.
            shuffle_window: options.shuffle_window.map(|count| count as u32),
            dataset: dataset.identity().to_string(),
            program: program_digest(&buckets, &cut)?,
            pipeline: options.buckets.is_empty().then(|| options.pipeline.clone()),
            buckets: options.buckets.clone(),
            classes: options.class_names.clone(),
            policy: Some(options.policy),
            fidelity: Fidelities::default(),
            epochs: options.epochs,
            epoch_samples: cut.samples,
            portions: walks.portions().to_vec(),
            choice,
            batch_size: cut.batch,
            last: cut.last,
            strategy: options.strategy,
            world: options.world_size,
            epoch: 0,
            delivered: Vec::new(),
            moved: None,
        }
        .with_fidelity(fidelity.recorded());
        let expected = Expected {
            dataset: *dataset.identity().as_bytes(),
            programs: if options.drives_taking_part().is_empty() {
                // No drive could do what a pipeline with a function needs.
                Vec::new()
            } else {
                let program = |bucket: &Bucket| DriveProgram::new(bucket.program.clone(), dataset.decoders());
                buckets.iter().map(program).collect()
            },
            slot_bytes,
        };
        let available = memory::available_bytes().unwrap_or(1 << 30);
        // Each process of this machine starts as many local drives.
        let local_drives = options.drives_taking_part().len().max(1) as u64 * u64::from(options.local_world_size);
        let slot_room = available.saturating_sub(buffers) / LOCAL_SLOTS_SHARE / local_drives;
        let setup = Self {
            dataset,
            beside,
            host,
            buckets,
            sizes,
            mixing,
            walks,
            fidelity,
            cut,
            batches,
            slot_bytes,
            expected,
            fresh,
            first_epoch: 0,
            slot_room,
            note_of_labels,
            note_of_classes,
        };
        setup.fit_memory(builder, buffers)?.with_history(builder)
    }

    /// Checks that memory suffices for the run, and tells the dataset how much the run takes.
    fn fit_memory(mut self, builder: &LoaderBuilder, buffers: u64) -> Result<Self, LoaderError> {
        let need = self.memory_need(builder, buffers);
        need.check(memory::check_room)?;
        memory::fit(&*self.dataset, need.bytes());
        if builder.options.epochs > 1 {
            self.dataset = resident_beside(need.bytes(), self.dataset, memory::check_room);
        }
        Ok(self)
    }

    /// Computes the memory that the run needs beside the dataset.
    fn memory_need(&self, builder: &LoaderBuilder, buffers: u64) -> MemoryNeed {
        let options = &builder.options;
        let mut need = MemoryNeed::default();
        need.add(buffers, format!("{} batch buffers of {} samples", options.buffers, self.cut.rows()));
        if let Some(mixing) = &self.mixing {
            let bytes = (mixing.label().bytes() as u64).saturating_mul((options.buffers * self.cut.rows()) as u64);
            need.add(bytes, "labels of one number for each class".into());
        }
        let fetching = FetchPlan::new(&*self.dataset, FetchOptions::of(options), self.cut.rows(), self.walks.window());
        let threads = ThreadShares::of(options).cpu + fetching.threads;
        match memory::threads_bytes(threads) {
            0 => {}
            bytes => need.add(bytes, counted(threads as u64, "thread")),
        }
        match fetching.bytes_max() {
            0 => {}
            bytes => need.add(bytes, "samples that are fetched ahead".into()),
        }
        for (name, spec) in options.drives_by_name() {
            let is_read = match spec {
                DriveSpec::Local(local) => {
                    let slots = self.local_slots(builder, &local);
                    let bytes = u64::from(slots).saturating_mul(self.slot_bytes as u64);
                    // A file's pages make room when it is needed.
                    if !matches!(local.results, LocalResults::File(_)) {
                        need.add(bytes, format!("{slots} result slots of drive {name}"));
                    }
                    local.results == LocalResults::Read
                }
                DriveSpec::Remote(_) | DriveSpec::Auto => true,
            };
            if is_read && !self.buckets[0].images.is_as_prepared() {
                need.add(self.slot_bytes as u64, format!("a batch of pixels that drive {name} made"));
            }
        }
        need
    }

    /// Applies the state to resume from and checks the plan to replay, if any.
    fn with_history(mut self, builder: &LoaderBuilder) -> Result<Self, LoaderError> {
        if let Some(state) = &builder.options.resume {
            if state.epoch < builder.options.epochs {
                self.fidelity.ask(state.epoch).map_err(LoaderError::Options)?;
            }
            state.check_fits(&self.fresh, self.batches, &self.fidelity).map_err(LoaderError::State)?;
            state.check_rank(&self.fresh, builder.options.rank).map_err(LoaderError::State)?;
            self.first_epoch = state.epoch;
        }
        if let Some(plan) = &builder.options.replay {
            if self.fidelity.calls_program() {
                let message = "a function of the epoch as `fidelity` cannot be used with `replay`: the plan has the \
                               fidelity of each epoch (`Plan::options`)";
                return Err(LoaderError::Options(message.into()));
            }
            let LoaderOptions { seed, shuffle, strategy, .. } = builder.options;
            let (order, dataset) = ((seed, shuffle, strategy), self.dataset.identity());
            let task = Plan::empty(
                order,
                self.buckets.iter().map(|bucket| &bucket.program),
                &dataset,
                &self.cut,
                (self.walks.portions(), &self.fresh.choice, self.fidelity.recorded(), self.fresh.shuffle_window),
                self.batches,
            );
            plan.check_is_for(&task).map_err(LoaderError::Plan)?;
        }
        Ok(self)
    }

    pub fn recorder(&self, options: &LoaderOptions, drives: &[OpenDrive], setup_s: f64) -> Recorder {
        let report = Report {
            setup_s,
            strategy: options.strategy.to_string(),
            dataset: options.dataset.as_ref().map_or(self.dataset.kind().into(), |path| path.display().to_string()),
            epoch_samples: self.cut.samples,
            batch_size: self.cut.batch,
            seed: options.seed,
            threads: ThreadShares::of(options).cpu,
            ..Report::default()
        };
        let names = std::iter::once("cpu".to_string()).chain(drives.iter().map(|drive| drive.name.clone())).collect();
        let mut recorder = Recorder::new(report, names);
        if options.world_size > 1 {
            static SAID: Once = Once::new();
            let (batch, ranks) = (options.batch_size, options.world_size);
            SAID.call_once(|| {
                tracing::info!(
                    "batch_size {batch} is that of all {ranks} ranks together: each rank gets at most {} of them",
                    batch.div_ceil(ranks as usize)
                );
            });
        }
        if let Some(note) = note_of_mix(&self.dataset.parts(), self.walks.portions()) {
            recorder.note(note);
        }
        match self.dataset.left_out() {
            0 => {}
            files => recorder.note(format!(
                "{} left out: {}; `ddlp inspect` lists them",
                counted(files, "file"),
                left_out_reason(self.dataset.kind())
            )),
        }
        if let Some(hidden) = self.dataset.classes().iter().find(|class| class.starts_with('.')) {
            let note = format!(
                "the hidden folder {hidden} counts as a class, as in torchvision: if it is not one, move it away"
            );
            tracing::warn!("{note}");
            recorder.note(note);
        }
        if let Some(note) = note_of_rejected(&*self.dataset, options.policy) {
            tracing::warn!("{note}");
            recorder.note(note);
        }
        if let Some(note) = window::note_of_window(options) {
            tracing::warn!("{note}");
            recorder.note(note);
        }
        if let Some(note) = &self.note_of_labels {
            tracing::warn!("{note}");
            recorder.note(note.clone());
        }
        if let Some(note) = &self.note_of_classes {
            recorder.note(note.clone());
        }
        recorder
    }
}

/// Checks the functions that the pipelines call.
fn check_functions(builder: &LoaderBuilder) -> Result<(), LoaderError> {
    let has_drives = !builder.options.drives_taking_part().is_empty();
    for name in builder.options.pipelines().iter().flat_map(Pipeline::functions) {
        if !builder.functions.has(name) {
            return Err(LoaderError::Options(format!(
                "the pipeline calls the function `{name}`, which this run does not have: give it to the loader \
                 (ddlp.Function in Python, LoaderBuilder::function in Rust), or leave the operation out"
            )));
        }
        if has_drives {
            return Err(LoaderError::Options(format!(
                "drives cannot call the pipeline's function `{name}`, which runs in this process alone: leave \
                 `drives` out or choose `strategy=\"cpu\"`, or call the function on the loader's batches"
            )));
        }
    }
    Ok(())
}

/// Returns the indices of a part of a split, which is named by `FILE:PART`, and what states record of it.
fn part_of_split(named: &str, dataset: &dyn Dataset) -> Result<(Arc<[u64]>, String), LoaderError> {
    let refused = |problem: String| LoaderError::Options(format!("`split` is {named}: {problem}"));
    let (file, part) = part_of(named).map_err(refused)?;
    let read = || -> Result<_, SplitError> {
        let split = Split::read(file)?;
        split.check_is_of(dataset)?;
        Ok((Arc::from(split.part(part)?), format!("part {part} of the split {}", split.identity())))
    };
    read().map_err(|error| refused(error.to_string()))
}

/// Checks the choice of samples, and returns it with what states record of it.
fn chosen_of(
    builder: &LoaderBuilder,
    dataset: &dyn Dataset,
    beside: &SampleFields,
) -> Result<(Chosen, ChoiceRecord), LoaderError> {
    let (mut choice, options) = (builder.choice.clone(), &builder.options);
    if let (None, Some(file)) = (&choice.indices, &options.indices) {
        let indices = read_indices(file).map_err(|problem| LoaderError::Options(format!("`indices`: {problem}")))?;
        choice.indices = Some(Indices::Fixed(indices.into()));
    }
    let split = options.split.as_deref().map(|named| part_of_split(named, dataset)).transpose()?;
    if let Some((indices, _)) = &split {
        if choice.indices.is_some() {
            let message = "`split` and `indices` both say which samples an epoch has: leave one of them out";
            return Err(LoaderError::Options(message.into()));
        }
        choice.indices = Some(Indices::Fixed(indices.clone()));
    }
    let is_mix = !dataset.parts().is_empty();
    let refusals = [
        (
            is_mix && (choice.indices.is_some() || choice.weights.is_some()),
            "`indices` and `weights` cannot be used with a mix, which has weights of its own: choose samples of one \
             dataset",
        ),
        (
            choice.weights.is_some() && !options.shuffle,
            "`weights` draw the samples of an epoch at random, but `shuffle` is false: leave one of them out",
        ),
        (
            choice.indices.is_some() && options.policy == CorruptPolicy::Replace,
            "`policy` is \"replace\", and might replace a corrupt sample by one that `indices` leaves out: choose \
             \"skip\", or leave corrupt samples out of `indices`",
        ),
        (
            options.views > 1 && options.policy != CorruptPolicy::Fail,
            "`policy` must be \"fail\" with several `views`, since a view of a corrupt sample would be missing or be \
             that of another sample: leave corrupt samples out by `indices`",
        ),
        (
            options.views > 1 && (options.mixup > 0.0 || options.cutmix > 0.0),
            "`mixup` and `cutmix` mix the samples of a batch, which has each of them several times under `views`: \
             leave `views` out, or mix the batches yourself",
        ),
    ];
    if let Some((_, message)) = refusals.iter().find(|(is_refused, _)| *is_refused) {
        return Err(LoaderError::Options((*message).into()));
    }
    let label = |index| beside.label(dataset, index);
    let classes = beside.classes().unwrap_or_else(|| dataset.classes()).len();
    let copies = Copies { dataset: dataset.len(), repeats: options.repeats.into(), views: options.views.into() };
    let mut chosen = Chosen::new(&choice, copies, classes, label).map_err(LoaderError::of_order)?;
    if let Some((_, identity)) = split {
        chosen.record.indices = Some(identity);
    }
    if options.buckets.len() > 1 && chosen.is_of_epoch() {
        let message = "several pipelines (`buckets`) cannot be used with `weights`, `repeats`, or a function as \
                       `indices`: which samples an epoch takes differs from epoch to epoch, and so would the number of \
                       batches";
        return Err(LoaderError::Options(message.into()));
    }
    let record = chosen.record.clone();
    Ok((chosen, record))
}

/// Returns the samples of every epoch, and how an epoch is cut into batches.
fn epochs_of(
    options: &LoaderOptions,
    dataset: &Arc<dyn Dataset>,
    chosen: Chosen,
    shapes: &[Shape],
    sizes: &[ImageSize],
) -> Result<(Arc<Walks>, EpochCut), LoaderError> {
    let samples = options.epoch_samples.unwrap_or(chosen.count);
    if samples == 0 || dataset.is_empty() {
        return Err(LoaderError::Options("the epoch has no samples".into()));
    }
    let parts = dataset.parts();
    let mix = (!parts.is_empty()).then(|| ("the mix", dataset.len()));
    for (what, samples) in [Some(("an epoch", samples)), mix].into_iter().flatten() {
        if samples > u64::from(u32::MAX) {
            let most = u32::MAX;
            return Err(LoaderError::Options(format!("{what} has {samples} samples, but at most {most} are possible")));
        }
    }
    let (batch, last) = (options.batch_size as u64, options.last);
    let buckets = match shapes {
        [_] => None,
        shapes => Some(Arc::new(Buckets::new(sizes, chosen.first(samples), shapes, batch, last))),
    };
    let (rank, world) = (u64::from(options.rank), u64::from(options.world_size));
    let (repeats, views) = (chosen.copies.repeats, chosen.copies.views);
    let cut = EpochCut { samples, batch, last, rank, world, repeats, views, buckets };
    if cut.batches() == 0 {
        let of = if cut.buckets.is_some() { " of one bucket" } else { "" };
        return Err(LoaderError::Options(format!(
            "an epoch of {samples} samples has no whole batch of {batch}{of}, and the last batch is dropped"
        )));
    }
    let seed = options.shuffle.then_some(options.seed);
    let chooses = chosen.record.indices.is_some() || chosen.record.weights.is_some();
    let window = window::window_of(options, dataset, &cut, chooses).map_err(LoaderError::Options)?;
    let walks = if parts.is_empty() {
        Walks::plain(seed, samples, chosen).windowed(window)
    } else {
        let portions = portions_of(&parts, samples.div_ceil(repeats)).map_err(LoaderError::Options)?;
        Walks::of_mix(seed, samples, portions, chosen.copies)
    };
    Ok((Arc::new(walks), cut))
}

/// Reads the sizes of a dataset's images, if buckets or canvases need them.
fn sizes_of(builder: &LoaderBuilder, dataset: &dyn Dataset) -> Result<Vec<ImageSize>, LoaderError> {
    let options = &builder.options;
    if options.buckets.len() < 2 && !options.pipelines()[0].has_canvas() {
        return Ok(Vec::new());
    }
    if options.buckets.len() > 1 && !dataset.parts().is_empty() {
        let message = "several pipelines (`buckets`) cannot be used with a mix: which samples an epoch takes of its \
                       datasets differs from epoch to epoch, and so would the number of batches";
        return Err(LoaderError::Options(message.into()));
    }
    let begun = Instant::now();
    let upright = options.pipelines()[0].exif_orientation;
    let (threads, is_over) = (ThreadShares::of(options).cpu, || builder.given_up.load(Ordering::Relaxed));
    let sizes = image_sizes(dataset, options.limits, upright, threads, &is_over).map_err(LoaderError::Unavailable)?;
    let Some(sizes) = sizes else {
        return Err(LoaderError::System { what: "the start of a run", source: io::ErrorKind::Interrupted.into() });
    };
    let (images, seconds) = (counted(sizes.len() as u64, "image"), begun.elapsed().as_secs_f64());
    tracing::info!("reading the sizes of {images} took {seconds:.1} s");
    Ok(sizes)
}

/// Checks what cannot go with images on canvases.
fn check_canvas(beside: &SampleFields) -> Result<(), LoaderError> {
    if beside.position(SIZE).is_none() {
        return Ok(());
    }
    let message = "`fields` has a field with the name size, but that name belongs to the sizes that images have on the \
                   canvases of PadTo: choose another one";
    Err(LoaderError::Options(message.into()))
}

/// Returns the bytes of a slot that has room for each batch.
fn slot_bytes(cut: &EpochCut, shapes: &[Shape]) -> Result<usize, LoaderError> {
    let bytes = |(bucket, &shape): (usize, &Shape)| {
        let rows = cut.rows_of(bucket);
        SlotLayout::new(rows, shape).map(|layout| layout.total_bytes).ok_or_else(|| {
            LoaderError::Options(format!(
                "a batch of {rows} samples of {shape} values is too large for a slot: use a smaller `batch_size`"
            ))
        })
    };
    let most = shapes.iter().enumerate().filter(|(bucket, _)| cut.rows_of(*bucket) > 0).map(bytes);
    most.reduce(|most, bytes| Ok(most?.max(bytes?))).expect("a bucket has samples")
}

/// Returns the digest by which states identify pipelines, limits and policy, and the samples of each bucket.
fn program_digest(buckets: &[Bucket], cut: &EpochCut) -> Result<String, LoaderError> {
    let mut hasher = blake3::Hasher::new();
    for bucket in buckets {
        hasher.update(&bucket.program.state_bytes().map_err(LoaderError::Program)?);
    }
    // The dataset's identity says nothing of the sizes of images in files.
    if let Some(buckets) = &cut.buckets {
        hasher.update(buckets.of_sample());
    }
    Ok(hasher.finalize().to_hex()[..32].to_string())
}

/// Says in words what an epoch takes of each dataset of a mix; nothing for any other dataset.
fn note_of_mix(parts: &[MixPart], portions: &[Portion]) -> Option<String> {
    let taken = parts.iter().zip(portions).map(|(part, portion)| {
        let (taken, of) = (portion.taken, portion.samples);
        format!("{} ({taken} of {})", part.name, counted(of, "sample"))
    });
    let mut named: Vec<String> = taken.take(PARTS_NAMED).collect();
    if parts.len() > PARTS_NAMED {
        named.push(format!("{} more", parts.len() - PARTS_NAMED));
    }
    (!parts.is_empty()).then(|| format!("each epoch takes samples of {}", named.join(", ")))
}

/// Says that a run under the policy `fail` will meet samples that were rejected when the dataset was packed. Returns
/// `None` for another policy, or if the dataset knows of no rejected sample.
pub fn note_of_rejected(dataset: &dyn Dataset, policy: CorruptPolicy) -> Option<String> {
    let rejected = dataset.rejected();
    let were = if rejected == 1 { "1 sample was".to_owned() } else { format!("{rejected} samples were") };
    (rejected > 0 && policy == CorruptPolicy::Fail).then(|| {
        format!(
            "{were} rejected when the dataset was packed: the run ends at the first of them, unless `policy` is skip \
             or replace (`ddlp inspect` lists them)"
        )
    })
}

/// Says that no label of a run tells anything. Returns `None` if the dataset has labels, or there are fields beside it.
fn note_of_labels(dataset: &dyn Dataset, beside: &SampleFields) -> Option<String> {
    // Other sources may have to read each sample for its label.
    let knows_labels = matches!(dataset.kind(), "folder" | "list" | "tar" | "pack");
    let has_labels = !dataset.classes().is_empty() || !beside.is_empty() || !knows_labels;
    (!has_labels && (0..dataset.len()).all(|index| dataset.label(index) == 0)).then(|| {
        "every label is 0, and no class has a name: `fields` names a file of labels, and a list of files has them in \
         its column label"
            .into()
    })
}

/// Says that a list with names of classes numbers them itself, so that another list may number them otherwise. Returns
/// `None` for any other dataset, if `given` names the classes, or if the labels come from fields.
pub fn note_of_classes(dataset: &dyn Dataset, given: &[String], beside: &SampleFields) -> Option<String> {
    let has_own = dataset.kind() == "list" && !dataset.classes().is_empty();
    (has_own && given.is_empty() && beside.position(LABEL).is_none()).then(|| {
        "the list numbers its classes by their sorted names, so a class may have another label in another list: name \
         all classes by `classes`"
            .into()
    })
}

/// Formats a number with its noun.
fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Loads the dataset into memory if it is small and there is room for it beside the memory that the loader takes.
fn resident_beside(
    taken: u64,
    dataset: Arc<dyn Dataset>,
    check_room: impl Fn(u64) -> io::Result<()>,
) -> Arc<dyn Dataset> {
    match check_room(taken.saturating_add(RESIDENT_BYTES_MAX)) {
        Ok(()) => Resident::of(dataset),
        Err(_) => dataset,
    }
}

#[cfg(test)]
mod tests;
