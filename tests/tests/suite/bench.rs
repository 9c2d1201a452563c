//! `ddlp bench dual` from beginning to end: every case is measured, and the figures agree with each other.

use ddlp_tests::agent::{Agent, program};
use ddlp_tests::photos::Photos;
use std::process::{Command, Stdio};

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
