//! `ddlp run --device`.

use super::*;
use serde_json::Value;
use std::path::Path;

/// Runs the command, and returns its standard output, standard error and exit status.
fn command(folder: &Path, dataset: &Path, extra: &[&str]) -> (String, String, Option<i32>) {
    with_fault(folder, dataset, "", extra)
}

/// Runs the command on a stand-in whose context is lost as `lost` says.
fn with_fault(folder: &Path, dataset: &Path, lost: &str, extra: &[&str]) -> (String, String, Option<i32>) {
    let mut command = Command::new(program("ddlp"));
    command.arg("run").arg(dataset).args(["--batch-size", "8", "--pipeline", "cifar-train"]).args(extra);
    if !lost.is_empty() {
        command.env("FAKE_CUDA_LOST", lost);
    }
    let done = on(&mut command, folder).env_remove("LOCAL_RANK").output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (text(done.stdout), text(done.stderr), done.status.code())
}

#[test]
fn the_command_delivers_to_a_device_and_reads_back_for_the_digest() {
    let photos = Photos::new(SAMPLES);
    let (pack, folder) = (photos.pack(), fake_cuda::folder());
    let digests =
        |out: &str| -> Vec<String> { out.lines().filter(|line| line.contains("digest")).map(str::to_owned).collect() };
    let (expected, _, _) = command(folder.path(), &pack, &["--digest", "--drive", "none"]);
    for (device, drive) in [("cuda:0", "none"), ("cuda", "none"), ("cuda:0", "local")] {
        let (out, err, code) = command(folder.path(), &pack, &["--digest", "--device", device, "--drive", drive]);
        assert_eq!((digests(&out), code), (digests(&expected), Some(0)), "{err}");
        assert!(
            out.lines().any(|line| line.trim_start().starts_with("delivered to") && line.contains("cuda:0 (")),
            "{out}"
        );
    }
    let (out, err, code) = command(folder.path(), &pack, &["--device", "cuda:0", "--epochs", "3"]);
    assert_eq!(code, Some(0), "{out}{err}");
    let (_, err, code) = command(folder.path(), &pack, &["--device", "cuda:1", "--quiet"]);
    assert_eq!((err.lines().count(), code), (1, Some(1)), "{err}");
    let (_, err, code) = command(folder.path(), &pack, &["--device", "gpu", "--quiet"]);
    assert!(code == Some(2) && err.contains("cuda:N"), "{err}");
}

#[test]
fn the_command_says_in_one_line_that_there_is_no_driver() {
    let photos = Photos::new(9);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libcuda.so.1"), vec![b'x'; 4096]).unwrap();
    let (out, err, code) = command(folder.path(), &photos.pack(), &["--device", "cuda:0"]);
    assert_eq!((out.as_str(), err.lines().count(), code), ("", 1, Some(1)), "{err}");
    assert!(err.starts_with("error: there is no CUDA driver on this machine ("), "{err}");
}

#[test]
fn a_batch_that_did_not_reach_the_device_is_not_delivered() {
    let photos = Photos::new(SAMPLES);
    let (pack, folder) = (photos.pack(), fake_cuda::folder());
    let (state, report) = (folder.path().join("s.json"), folder.path().join("r.json"));
    let json = |path: &Path| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    let sum = |out: &str| {
        let digest = out.lines().find_map(|line| line.strip_prefix("digest ")).unwrap_or_else(|| panic!("{out}"));
        u128::from_str_radix(digest, 16).unwrap()
    };
    let same = ["--drive", "none", "--epochs", "2", "--json", report.to_str().unwrap()];
    let to_device = [&same[..], &["--device", "cuda:0", "--state-out", state.to_str().unwrap()]].concat();
    let digests = ["--digest"];
    let expected = sum(&command(folder.path(), &pack, &[&same[..], &digests].concat()).0);
    let batches = json(&report)["batches"].as_u64().unwrap();
    let mut delivered = Vec::new();
    for operation in [1, 2, 3, 5, 8, 13, 21, 34, 55] {
        for extra in [&digests[..], &[]] {
            let extra = [&to_device[..], extra].concat();
            let (out, err, code) = with_fault(folder.path(), &pack, &format!("{operation}:700"), &extra);
            assert_eq!(code, Some(1), "{operation}: {out}{err}");
            let (left, before) = (json(&state), json(&report));
            let in_epochs = left["epoch"].as_u64().unwrap() * batches / 2;
            let in_state = in_epochs + left["delivered"].as_array().unwrap().len() as u64;
            assert_eq!(in_state, before["batches"].as_u64().unwrap(), "{operation}: {left}");
            assert!(err.contains(&format!("the run ended after {in_state} batch")), "{operation}: {err}");
            delivered.push(in_state);
            let (rest, err, code) = command(
                folder.path(),
                &pack,
                &[&to_device[..], &digests, &["--resume", state.to_str().unwrap()]].concat(),
            );
            assert_eq!(code, Some(0), "{operation}: {err}");
            assert_eq!(in_state + json(&report)["batches"].as_u64().unwrap(), batches, "{operation}");
            if extra.contains(&"--digest") {
                assert_eq!(sum(&out).wrapping_add(sum(&rest)), expected, "{operation}");
            }
        }
    }
    assert!(delivered.contains(&0) && delivered.iter().any(|&count| count > 0), "{delivered:?}");
}
