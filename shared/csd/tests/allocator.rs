//! Refused memory, with the programs' allocator. This test is a program of its own, since the allocator serves a whole
//! process.

use ddlp_csd::memory::allocator::{self, Allocator};
use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Tells a child process what to do without memory.
const CHILD: &str = "DDLP_TEST_WITHOUT_MEMORY";
const CAN_FAIL: &str = "can fail";
const CANNOT_FAIL: &str = "cannot fail";
/// The process aborts for another reason, after a refusal that it has handled.
const ABORTS: &str = "aborts";
/// As much address space as an arena reserves; part of it is already in use.
const BYTES: usize = 64 << 20;

/// Leaves this process little address space, and requests more.
fn run_out_of_memory(what: &str) -> ! {
    allocator::set_up();
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
    // SAFETY: the call reads the limit, which lives long enough.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    if what != CANNOT_FAIL {
        assert!(Vec::<u8>::new().try_reserve_exact(BYTES).is_err());
        drop(std::hint::black_box(Box::new(0u8)));
        println!("went on");
    }
    match what {
        ABORTS => std::process::abort(),
        CANNOT_FAIL => drop(std::hint::black_box(Vec::<u8>::with_capacity(BYTES))),
        _ => {}
    }
    std::process::exit(0);
}

/// Runs a child process. Returns its exit status, the signal that ended it, and its output.
fn child(what: &str, backtrace: &str) -> (Option<i32>, Option<i32>, String) {
    let mut command = Command::new(env::current_exe().unwrap());
    let test = "a_refusal_is_an_error_where_it_can_be_and_a_sentence_elsewhere";
    command.args(["--exact", test, "--nocapture"]).env(CHILD, what).env("RUST_BACKTRACE", backtrace);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), output.status.signal(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_refusal_is_an_error_where_it_can_be_and_a_sentence_elsewhere() {
    if let Ok(what) = env::var(CHILD) {
        run_out_of_memory(&what);
    }
    let (status, _, said) = child(CAN_FAIL, "0");
    assert!(status == Some(0) && said.contains("went on"), "{status:?}: {said}");
    // Rust allocates memory for the variable's value, and for a backtrace.
    for backtrace in ["0", "1"] {
        let (status, _, said) = child(CANNOT_FAIL, backtrace);
        assert!(status == Some(1) && said.contains("the system refuses memory"), "{status:?}: {said}");
        assert!(said.contains("ulimit -v"), "{said}");
    }
    let (_, signal, said) = child(ABORTS, "0");
    assert!(signal == Some(libc::SIGABRT) && said.contains("went on"), "{signal:?}: {said}");
    assert!(!said.contains("the system refuses memory"), "the refusal was handled: {said}");
}
