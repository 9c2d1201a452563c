//! Refused memory, with the programs' allocator. This test is a program of its own, since the allocator serves a whole
//! process.

use ddlp_csd::memory::allocator::{self, Allocator};
use std::env;
use std::process::Command;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Tells a child process what to do without memory.
const CHILD: &str = "DDLP_TEST_WITHOUT_MEMORY";
/// As much address space as an arena reserves; part of it is already in use.
const BYTES: usize = 64 << 20;

/// Leaves this process little address space, and requests more.
fn run_out_of_memory(can_fail: bool) -> ! {
    allocator::prepare();
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
    // SAFETY: the call reads the limit, which lives long enough.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    if can_fail {
        assert!(Vec::<u8>::new().try_reserve_exact(BYTES).is_err());
        println!("went on");
        std::process::exit(0);
    }
    drop(std::hint::black_box(Vec::<u8>::with_capacity(BYTES)));
    std::process::exit(0);
}

fn child(what: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env::current_exe().unwrap());
    let test = "a_refusal_is_an_error_where_it_can_be_and_a_sentence_elsewhere";
    let output = command.args(["--exact", test, "--nocapture"]).env(CHILD, what).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_refusal_is_an_error_where_it_can_be_and_a_sentence_elsewhere() {
    if let Ok(what) = env::var(CHILD) {
        run_out_of_memory(what == "can fail");
    }
    let (status, said) = child("can fail");
    assert!(status == Some(0) && said.contains("went on"), "{status:?}: {said}");
    let (status, said) = child("cannot fail");
    assert!(status == Some(1) && said.contains("the system refuses memory") && said.contains("ulimit -v"), "{said}");
}
