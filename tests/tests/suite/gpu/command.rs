//! `ddlp run --device`.

use super::*;

/// Runs the command, and returns its standard output, standard error and exit status.
fn command(folder: &std::path::Path, dataset: &std::path::Path, extra: &[&str]) -> (String, String, Option<i32>) {
    let mut command = Command::new(program("ddlp"));
    command.arg("run").arg(dataset).args(["--batch-size", "8", "--pipeline", "cifar-train"]).args(extra);
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
