//! Runs a test on the stand-in for NVIDIA's driver: in a process of its own, which finds the stand-in as programs find
//! the driver. With `DDLP_CUDA` in the environment, tests that need nothing of the stand-in run on this machine's
//! driver.

use fake_cuda::StandIn;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Tells a process that it runs the test itself.
const WITHIN: &str = "DDLP_TEST_ON_GPU";
/// Makes tests run on this machine's driver.
const REAL: &str = "DDLP_CUDA";
/// Time after which a test hangs: ten thousand orders of work take minutes.
const HANGS_AFTER: Duration = Duration::from_secs(3600);

/// Runs `test` in a process of its own, on a stand-in with these settings. `name` is the name of the calling test.
///
/// # Panics
///
/// If the test fails or hangs.
pub fn on_stand_in(name: &str, settings: &[(&str, &str)], test: impl FnOnce(&StandIn)) {
    if std::env::var(WITHIN).is_ok_and(|within| within == name) {
        return test(&StandIn::in_use());
    }
    let folder = fake_cuda::folder();
    in_child(name, folder.path(), settings);
}

/// Runs `test` on this machine's driver if `DDLP_CUDA` is in the environment, and otherwise as [`on_stand_in`] does.
///
/// # Panics
///
/// As [`on_stand_in`].
pub fn on_driver(name: &str, test: impl FnOnce(Option<&StandIn>)) {
    if std::env::var_os(REAL).is_some() {
        return test(None);
    }
    on_stand_in(name, &[], |driver| test(Some(driver)));
}

/// Runs `test` in a process of its own, which finds the driver in this folder or nowhere.
///
/// # Panics
///
/// As [`on_stand_in`].
pub fn with_driver_in(name: &str, folder: &Path, test: impl FnOnce()) {
    if std::env::var(WITHIN).is_ok_and(|within| within == name) {
        return test();
    }
    in_child(name, folder, &[]);
}

fn in_child(name: &str, folder: &Path, settings: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().expect("the test has a path"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(WITHIN, name).env("FAKE_CUDA_VERBOSE", "true");
    on(&mut command, folder);
    command.envs(settings.iter().map(|(key, value)| (format!("FAKE_CUDA_{}", key.to_uppercase()), value)));
    let mut printed = tempfile::tempfile().expect("a temporary file");
    command.stdout(printed.try_clone().expect("a temporary file"));
    let mut child = command.spawn().expect("the test runs again");
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if begun.elapsed() > HANGS_AFTER {
            child.kill().expect("a child");
            panic!("{name} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{name}: {status}; standard error has the reason");
    let mut text = String::new();
    printed.rewind().and_then(|()| printed.read_to_string(&mut text)).expect("a temporary file");
    assert!(text.contains("running 1 test\n"), "{name} is not the name of the calling test");
}

/// Makes a program find the driver in this folder first.
pub fn on<'c>(command: &'c mut Command, folder: &Path) -> &'c mut Command {
    let others = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let all = std::iter::once(folder.to_path_buf()).chain(std::env::split_paths(&others));
    command.env("LD_LIBRARY_PATH", std::env::join_paths(all).expect("folders without a colon"))
}
