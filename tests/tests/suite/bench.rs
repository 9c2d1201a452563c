//! `ddlp bench dual` and `ddlp bench gpu` from beginning to end: every case is measured, and the figures of `dual`
//! agree with each other.

use ddlp_tests::agent::{Agent, program};
use ddlp_tests::gpu::on;
use ddlp_tests::photos::Photos;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn figure(case: &serde_json::Value, name: &str) -> f64 {
    case[name].as_f64().unwrap_or_else(|| panic!("{name} is a number in {case}"))
}

fn assert_close(what: &str, left: f64, right: f64) {
    assert!((left - right).abs() <= 1e-9 * left.abs().max(right.abs()), "{what}: {left}, {right} expected");
}

#[test]
fn a_small_bench_measures_every_case_with_figures_that_agree() {
    let photos = Photos::new(48);
    let output = Command::new(program("ddlp"))
        .args(["bench", "dual"])
        .arg(photos.pack())
        .args(["--samples", "480", "--batch", "8", "--rounds", "1", "--results", "shared", "--json", "-"])
        .stdin(Stdio::null())
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let expected =
        serde_json::json!({"samples": 480, "batch": 8, "rounds": 1, "is_complete": true, "dataset_samples": 48});
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&outcome[name], value, "{name}");
    }

    let cpu = &outcome["cpu"];
    let slots = outcome["slots"].as_array().expect("kinds of slots");
    assert_eq!((slots.len(), &slots[0]["results"]), (1, &"shared".into()));
    let cases = slots[0]["cases"].as_array().expect("cases");
    let names: Vec<&str> = cases.iter().filter_map(|case| case["strategy"].as_str()).collect();
    assert_eq!((&cpu["strategy"], names), (&"cpu".into(), vec!["csd", "mte", "wrr", "ordered"]));
    let all: Vec<_> = [cpu].into_iter().chain(cases).cloned().collect();
    assert_eq!(outcome["strategies"], serde_json::Value::from(all.clone()));

    let (cpu_rate, csd_rate) = (figure(cpu, "images_per_s"), figure(&cases[0], "images_per_s"));
    for case in &all {
        let (name, rate) = (case["strategy"].as_str().expect("a name"), figure(case, "images_per_s"));
        for positive in ["host_cpu_s_per_1000_images", "setup_s", "first_batch_s", "host_peak_memory_mb"] {
            assert!(figure(case, positive) > 0.0, "{name}: {positive} in {case}");
        }
        assert!(rate > 0.0, "{name}");
        assert_eq!(case["images_per_s_rounds"], serde_json::json!([rate]), "{name}");
        assert_close(name, figure(case, "factor_over_cpu"), rate / cpu_rate);
        // On a busy machine the CPU may prepare everything before the drive has its first batch.
        let (share, slots_mb) = (figure(case, "drive_share"), figure(case, "slot_memory_mb"));
        let most = if name == "cpu" { 0.0 } else { 1.0 };
        assert!((0.0..=most).contains(&share), "{name}: share {share}");
        assert!(slots_mb > 0.0 || share == 0.0, "{name}: {slots_mb} MB of slots");
        assert!(case["meeting_point"].is_u64() || name != "mte" || share == 0.0, "{name}: {case}");
        assert!(case["meeting_point"].is_null() || name == "mte", "{name}: {case}");
        if ["cpu", "csd"].contains(&name) {
            assert!(case["efficiency"].is_null() && case["factor_over_ideal"].is_null(), "{name}");
        } else {
            assert_close(name, figure(case, "efficiency"), rate / (cpu_rate + csd_rate));
            assert_close(name, figure(case, "factor_over_ideal"), rate / cpu_rate / (1.0 + csd_rate / cpu_rate));
        }
        assert!(said.lines().any(|line| line.starts_with("round 1/1: ") && line.contains(name)), "{name}: {said}");
    }
    assert_eq!(figure(&cases[0], "drive_share"), 1.0, "the drive alone");
    assert!(figure(&slots[0], "host_cpu_us_per_drive_image") > 0.0);
    for row in ["cpu alone", "csd alone", "mte", "wrr", "ordered"] {
        assert!(said.lines().any(|line| line.trim_start().starts_with(row)), "{row}: {said}");
    }
}

#[test]
fn a_drive_that_alone_holds_the_dataset_is_measured_in_place_of_a_local_one() {
    let photos = Photos::new(48);
    let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "8"]);
    let bench = |more: &[&str]| {
        Command::new(program("ddlp"))
            .args(["bench", "dual", &agent.url(), "--samples", "96", "--batch", "8", "--rounds", "1", "--json", "-"])
            .args(more)
            .stdin(Stdio::null())
            .output()
            .expect("the command runs")
    };
    let output = bench(&[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let slots = outcome["slots"].as_array().expect("kinds of slots");
    assert_eq!((slots.len(), &slots[0]["results"]), (1, &"read".into()));
    let cases = slots[0]["cases"].as_array().expect("cases");
    let names: Vec<&str> = cases.iter().filter_map(|case| case["strategy"].as_str()).collect();
    assert_eq!(names, ["csd", "mte", "wrr", "ordered"]);
    assert!(figure(&outcome["cpu"], "images_per_s") > 0.0);
    assert_eq!(figure(&cases[0], "drive_share"), 1.0, "the drive alone");

    let refused = bench(&["--throttle", "0.5"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("--throttle") && said.contains("leave it out"), "{said}");
}

/// Runs `ddlp bench gpu` with the driver in a folder.
fn bench_gpu(photos: &Photos, driver: &Path, extra: &[&str]) -> Output {
    let mut command = Command::new(program("ddlp"));
    command.args(["bench", "gpu"]).arg(photos.folder()).args(extra);
    on(&mut command, driver).env("FAKE_CUDA_VERBOSE", "true").stdin(Stdio::null()).output().expect("the command runs")
}

#[test]
fn a_small_bench_of_a_gpu_measures_every_case_and_uses_the_driver_rightly() {
    let photos = Photos::new(8);
    let folder = fake_cuda::folder();
    let small = ["--batch", "2", "--threads", "1,1024", "--rounds", "2", "--seconds", "0.01", "--json", "-"];
    let output = bench_gpu(&photos, folder.path(), &small);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let expected = [
        ("copies", vec!["locked memory", "plain memory", "target"]),
        ("images", vec!["files, 1 thread", "indexed pack, 1 thread", "raw pack, 1 thread"]),
    ];
    for (group, names) in expected {
        assert_eq!(outcome[group].as_object().expect(group).keys().collect::<Vec<_>>(), names);
    }
    assert_eq!(outcome["kernels"].as_object().expect("kernels").len(), 4 * 2);
    for group in ["copies", "kernels", "images"] {
        for (name, case) in outcome[group].as_object().expect(group) {
            assert!(said.lines().any(|line| line.trim_start().starts_with(name.as_str())), "{name}: {said}");
            for of in ["rate", "ratio", "control"] {
                let figure = figure(&case[of], "median");
                assert!(figure.is_finite() && figure > 0.0, "{name}: {of} in {case}");
                assert_eq!(case[of]["rounds"].as_array().map(Vec::len), Some(2), "{name}");
            }
        }
    }
    assert!(!said.contains("fake CUDA"), "the driver is used rightly: {said}");
    // A byte of each row is read, and two of a float are written.
    let rows = 2 * 224 * 224 * 3;
    assert_eq!(outcome["kernels"]["float16 NCHW"]["bytes"], serde_json::json!(rows * 3));
    assert_eq!(outcome["copies"]["target"]["bytes"], serde_json::json!(rows));
}

#[test]
fn without_a_driver_a_gpu_is_not_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("libcuda.so.1"), vec![b'x'; 4096]).expect("a file");
    let output = bench_gpu(&Photos::new(3), folder.path(), &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len(), said.lines().count()), (Some(1), 0, 1), "{said}");
    assert!(said.starts_with("error: there is no CUDA driver on this machine ("), "{said}");
}
