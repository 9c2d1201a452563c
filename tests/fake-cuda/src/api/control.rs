//! Functions that a real driver lacks: tests control the stand-in by them.

use std::ffi::{c_char, c_int};
use std::fmt::Write as _;

use super::{put, put_text, text};
use crate::driver::Driver;
use crate::session::{control, is_right_process};
use crate::statistics::Statistics;

/// Changes a setting; `src/settings.rs` has the keys. Returns 0, or 1 if it is not understood.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
extern "C" fn fakeCudaSet(key: *const c_char, value: *const c_char) -> c_int {
    let (Ok(key), Ok(value)) = (text(key), text(value)) else { return 1 };
    control(|driver| {
        let is_understood = driver.settings.set(key, value);
        if is_understood && key == "seed" {
            driver.restart_random();
        }
        (!is_understood).into()
    })
}

/// Fills the counts.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
extern "C" fn fakeCudaStatistics(statistics: *mut Statistics) -> c_int {
    put(statistics, control(|driver| driver.count())).is_err().into()
}

/// Returns how often a function of the driver was called.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
extern "C" fn fakeCudaCalls(name: *const c_char) -> u64 {
    let Ok(name) = text(name) else { return 0 };
    control(|driver| driver.calls.get(name).copied().unwrap_or(0))
}

/// Writes the sentence about a mistake, with a final zero. Returns 1 if no mistake has this number.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
extern "C" fn fakeCudaDefect(index: usize, sentence: *mut u8, room: usize) -> c_int {
    let found = control(|driver| driver.defects.get(index).cloned());
    found.is_none_or(|found| put_text(sentence, room, &found).is_err()).into()
}

/// Does what the driver does when the process exits: every call fails from then on.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
extern "C" fn fakeCudaShutDown() {
    control(|driver| driver.is_shut_down = true);
}

/// Writes the report when the process exits, if the settings name a file for it.
pub(super) fn report_at_exit() {
    extern "C" fn write() {
        if !is_right_process() {
            return;
        }
        control(|driver| {
            if let Some(path) = &driver.settings.report
                && let Err(error) = std::fs::write(path, report(driver))
            {
                eprintln!("fake CUDA: {path}: {error}");
            }
        });
    }
    // SAFETY: the function stays where it is, since the library stays loaded.
    unsafe { libc::atexit(write) };
}

/// Returns the counts as lines, `name: number`, and the mistakes as lines `defect: sentence`.
fn report(driver: &Driver) -> String {
    let mut text = String::new();
    let counts = format!("{:#?}", driver.count());
    for line in counts.lines().filter(|line| line.contains(": ")) {
        let _ = writeln!(text, "{}", line.trim().trim_end_matches(','));
    }
    for sentence in &driver.defects {
        let _ = writeln!(text, "defect: {sentence}");
    }
    text
}
