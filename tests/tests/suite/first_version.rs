//! Today's version gives what the first version gave: digests of runs, identities of datasets, floats, programs; and it
//! reads that version's packs and states.
//!
//! `fixtures/first` holds all of it; its README says how commit 77a8d6c made it. These tests use the command, and the
//! library only for what the command does not show.

use ddlp_csd::program::Program;
use ddlp_host::{CorruptPolicy, DType, ImageLayout, Loader, LocalResults, Normalize, Pipeline};
use ddlp_pixels::Limits;
use ddlp_tests::agent::program;
use ddlp_tests::runs::{chain, local};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Digits of a digest that the tables keep.
const DIGITS: usize = 16;

fn first() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/first")
}

/// A row of a table: columns that the first version gave, and the arguments for which it gave them.
struct Row {
    columns: Vec<String>,
    arguments: String,
    /// Columns that today's version gives, if they differ for a reason.
    now: Option<Vec<String>>,
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(String::from).collect()
}

/// Reads a table. A line begins a row, unless it is indented: then it says what today's version gives for the row
/// above, and why.
fn table(name: &str) -> Vec<Row> {
    let text = fs::read_to_string(first().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut rows: Vec<Row> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (columns, arguments) = line.split_once('|').unwrap_or_else(|| panic!("{name}: no arguments: {line}"));
        match columns.strip_prefix("  now ") {
            Some(now) => rows.last_mut().expect("a row above").now = Some(words(now)),
            None => rows.push(Row { columns: words(columns), arguments: arguments.trim().into(), now: None }),
        }
    }
    rows
}

/// Returns what is wrong with a row for which today's version gives the columns `found`.
fn difference(row: &Row, found: &[String]) -> Option<String> {
    let expected = row.now.as_ref().unwrap_or(&row.columns);
    if row.now.as_ref() == Some(&row.columns) {
        return Some(format!("{}\n  “now” repeats the row above", row.arguments));
    }
    let is_same = |(expected, found): (&String, &String)| expected == "-" || expected == found;
    let all_same = expected.len() == found.len() && expected.iter().zip(found).all(is_same);
    (!all_same).then(|| format!("{}\n  expected {}\n     found {}", row.arguments, expected.join(" "), found.join(" ")))
}

/// Compares a table with today's version: `columns` returns a row's columns for its arguments. Tries several rows at a
/// time, and names every row that differs.
fn compare(name: &str, columns: impl Fn(&[&str]) -> Vec<String> + Sync) {
    let rows = table(name);
    let (next, differing) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(row) = rows.get(index) else { return };
            let arguments: Vec<&str> = row.arguments.split_whitespace().collect();
            if let Some(difference) = difference(row, &columns(&arguments)) {
                differing.lock().unwrap().insert(index, difference);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
    let differing: Vec<String> = differing.into_inner().unwrap().into_values().collect();
    let (count, of) = (differing.len(), rows.len());
    assert!(differing.is_empty(), "{count} of {of} rows of {name} differ:\n{}", differing.join("\n"));
}

fn ddlp(arguments: &[&str]) -> Output {
    let mut command = Command::new(program("ddlp"));
    command.args(arguments).current_dir(first()).stdin(Stdio::null()).env_remove("RUST_LOG");
    command.output().expect("ddlp starts")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}

fn run(arguments: &[&str]) -> Vec<String> {
    let output = ddlp(&[&["run"], arguments, &["--digest", "--quiet", "--json", "-"]].concat());
    match output.status.code() {
        Some(0) => {}
        Some(1) => return words("fails - - -"),
        // Options that contradict a state, or one another, are wrong options today.
        Some(2) if ["--resume", "none"].iter().any(|word| arguments.contains(word)) => return words("fails - - -"),
        _ => return words(&format!("{} {}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
    let figures = json(&output);
    let digest = |name: &str| text(&figures[name])[..DIGITS].to_string();
    let corrupt = figures["corrupt"].as_array().expect("a list").len();
    vec![text(&figures["images"]), corrupt.to_string(), digest("digest"), digest("ordered_digest")]
}

fn dataset(arguments: &[&str]) -> Vec<String> {
    let figures = json(&ddlp(&[&["inspect"], arguments, &["--json"]].concat()));
    let pack = &figures["pack"];
    let counts = match pack {
        Value::Null => "-".to_string(),
        _ => {
            let verified = ddlp(&[&["verify", "--quiet"], arguments].concat());
            assert!(verified.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&verified.stderr));
            let counts = ["kept", "planar", "indexed", "raw", "shrunk", "intact", "repaired", "rejected"];
            counts.map(|name| text(&pack[name])).join("/")
        }
    };
    vec![text(&figures["identity"]), text(&figures["kind"]), text(&figures["samples"]), counts]
}

fn pipeline(name: &str) -> Pipeline {
    let description = || fs::read_to_string(first().join(name)).expect("a pipeline's name or file");
    Pipeline::named(name).unwrap_or_else(|| Pipeline::from_toml(&description()).expect("a valid pipeline"))
}

fn policy(name: &str) -> CorruptPolicy {
    match name {
        "fail" => CorruptPolicy::Fail,
        "skip" => CorruptPolicy::Skip,
        "replace" => CorruptPolicy::Replace,
        _ => panic!("there is no policy {name}"),
    }
}

/// Returns a digest of all rows, in the order of epochs and ids. The first version's labels were u32.
fn digest_of_floats(loader: Loader) -> String {
    let mut rows: BTreeMap<(u32, u64), Vec<blake3::Hash>> = BTreeMap::new();
    for batch in loader {
        let batch = batch.unwrap_or_else(|error| panic!("a batch is missing: {}", chain(&error)));
        let images = batch.field("image").unwrap_or_else(|error| panic!("{error}"));
        let rows_of_bytes = images.bytes().expect("they can be read").chunks_exact(images.field().bytes());
        for ((&id, &label), row) in
            batch.requested_ids().iter().zip(batch.labels().expect("class indices")).zip(rows_of_bytes)
        {
            let label = u32::try_from(label).expect("a class index");
            let mut hasher = blake3::Hasher::new();
            hasher.update(&id.to_le_bytes()).update(&label.to_le_bytes()).update(row);
            rows.entry((batch.epoch(), id)).or_default().push(hasher.finalize());
        }
    }
    let mut hasher = blake3::Hasher::new();
    for row in rows.values().flatten() {
        hasher.update(row.as_bytes());
    }
    hasher.finalize().to_hex()[..DIGITS].to_string()
}

fn floats(arguments: &[&str]) -> Vec<String> {
    let &[kind, dataset, named, corrupt, strategy] = arguments else { panic!("{arguments:?}") };
    let mut builder = Loader::builder().with(|o| {
        o.dataset = Some(first().join(dataset));
        o.pipeline = pipeline(named);
        o.policy = policy(corrupt);
    });
    builder = builder.with(|o| {
        o.batch_size = 5;
        o.epochs = 2;
        o.seed = 3;
        o.threads = Some(2);
        o.strategy = strategy.parse().expect("a strategy");
    });
    if strategy != "cpu" {
        builder = builder.drive(local(LocalResults::Shared));
    }
    let dtype = match kind {
        "f32" => DType::F32,
        "f16" => DType::F16,
        _ => panic!("there is no type {kind}"),
    };
    let built = builder
        .with(|o| (o.dtype, o.layout, o.normalize) = (dtype, ImageLayout::Nchw, Some(Normalize::IMAGENET)))
        .build();
    vec![built.map(digest_of_floats).unwrap_or_else(|error| panic!("{arguments:?}: {}", chain(&error)))]
}

fn program_bytes(arguments: &[&str]) -> Vec<String> {
    let &[named, corrupt] = arguments else { panic!("{arguments:?}") };
    let program = Program { pipeline: pipeline(named), limits: Limits::default(), policy: policy(corrupt) };
    let bytes = program.state_bytes().expect("a program is encodable");
    vec![bytes.iter().map(|byte| format!("{byte:02x}")).collect()]
}

#[test]
fn runs_have_the_same_digests() {
    compare("runs.txt", run);
}

#[test]
fn datasets_have_the_same_identities() {
    compare("datasets.txt", dataset);
}

#[test]
fn floats_are_the_same() {
    compare("floats.txt", floats);
}

#[test]
fn programs_are_the_same_bytes() {
    compare("programs.txt", program_bytes);
}
