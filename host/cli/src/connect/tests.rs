use super::*;
use crate::kernel::planted::{Planted, kernel};
use clap::Parser;
use ddlp_test_support::trees;
use std::fs;
use std::net::TcpListener;

const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:5a4c3b2e-1f00-4e6b-9d0a-6f6f1d2c3b4a";
const SOON: Duration = Duration::from_millis(100);

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: ConnectArgs,
}

fn args(words: &[&str]) -> ConnectArgs {
    Line::try_parse_from(["connect"].iter().chain(words)).unwrap_or_else(|error| panic!("{error}")).args
}

/// A kernel that answers with `instance`, and something that listens. What the kernel was told is at the beginning of the file
/// that stands for its node.
fn with_answer(tree: &str, instance: u32, extra: &[&str]) -> (Planted, anyhow::Result<(Ending, String)>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("tcp://127.0.0.1:{port}/{NQN}");
    let args = args(&[&[&*url, "--host-nqn", HOST], extra].concat());
    let association = Association {
        place: peer::Place { address: "127.0.0.1".into(), port },
        nqn: NQN.into(),
        host: HostIdentity::of(HOST, None, "", "").unwrap(),
        timing: args.timing().unwrap(),
    };
    let planted = kernel(tree, "6.12.1");
    for controller in planted.kernel.sysfs.controllers().unwrap() {
        if controller.fast_io_fail_tmo.is_none() {
            planted.write(&format!("sys/class/nvme/{}/fast_io_fail_tmo", controller.name), "");
        }
    }
    // A regular file goes on reading behind what was written.
    let told = association.options();
    planted.write("dev/nvme-fabrics", &format!("{}instance={instance},cntlid=1\n", " ".repeat(told.len())));
    let result = connect_with(&args, &planted.kernel, |_| Ok(()), SOON);
    let told = planted.read("dev/nvme-fabrics")[..told.len()].to_string();
    (planted, result, told)
}

fn error(result: anyhow::Result<(Ending, String)>) -> String {
    format!("{:#}", result.unwrap_err())
}

#[test]
fn a_drive_is_connected_and_the_next_command_named() {
    let (planted, result, told) = with_answer(trees::DISK_AND_DRIVE, 1, &[]);
    let (ending, said) = result.unwrap();
    assert_eq!(ending, Ending::Done);
    assert!(told.starts_with("transport=tcp,traddr=127.0.0.1,trsvcid="), "{told}");
    assert!(told.ends_with("keep_alive_tmo=10,reconnect_delay=2,ctrl_loss_tmo=600,fast_io_fail_tmo=5"), "{told}");
    let said = planted.rooted(&said);
    assert!(said.starts_with(&format!("/dev/nvme1 is DDLP computational storage, {NQN}\n")), "{said}");
    assert!(said.contains(&format!("this host   {HOST}\n")), "{said}");
    assert!(said.ends_with("Next:\n  sudo ddlp run DATASET --drive /dev/nvme1\n"), "{said}");
}

#[test]
fn a_time_out_that_the_kernel_did_not_take_is_set() {
    let (planted, result, _) = with_answer(trees::NO_MULTIPATH, 0, &["--fast-io-fail", "3", "--ctrl-loss=-1"]);
    let (ending, said) = result.unwrap();
    assert_eq!(ending, Ending::Done);
    assert_eq!(planted.read("sys/class/nvme/nvme0/fast_io_fail_tmo"), "3");
    assert!(said.contains("commands fail after 3 s, reconnects every 2 s for ever"), "{said}");
}

#[test]
fn a_drive_whose_namespaces_do_not_come_is_no_success() {
    let planted = kernel(trees::TWO_DRIVES, "6.12.1");
    fs::remove_file(planted.kernel.path("dev/ng0n3")).unwrap();
    let controller = settle::wait(&planted.kernel, "nvme0", SOON).unwrap();
    assert!(!settle::is_settled(&controller));

    let (_planted, result, _) = with_answer(trees::TWO_DRIVES, 3, &[]);
    let (ending, said) = result.unwrap();
    assert_eq!(ending, Ending::Wrong);
    assert!(said.contains("ddlp devices says what is missing"), "{said}");
}

#[test]
fn what_is_no_drive_is_said_to_be_none() {
    let tree = trees::NO_MULTIPATH.replace("DDLP computational storage", "Linux");
    let (_planted, result, _) = with_answer(&tree, 0, &[]);
    let (ending, said) = result.unwrap();
    assert_eq!(ending, Ending::Done);
    assert!(said.contains("This is no DDLP drive"), "{said}");
}

#[test]
fn a_controller_that_goes_again_is_an_error() {
    let (_planted, result, _) = with_answer(trees::NO_MULTIPATH, 7, &[]);
    assert!(error(result).contains("the kernel made nvme7, and lost it again"));
}

#[test]
fn a_kernel_without_the_module_is_said_how_to_get_it() {
    let planted = kernel("", "6.12.1");
    let args = args(&[&format!("tcp://127.0.0.1:1/{NQN}")]);
    let said = |planted: &Planted| planted.rooted(&error(connect_with(&args, &planted.kernel, |_| Ok(()), SOON)));
    assert!(said(&planted).contains("no module nvme-tcp is installed for this kernel (6.12.1)"), "{}", said(&planted));
    planted.write("lib/modules/6.12.1/modules.dep", "kernel/drivers/nvme/host/nvme-tcp.ko.xz:\n");
    assert!(
        said(&planted).ends_with("/dev/nvme-fabrics does not exist. To do: sudo modprobe nvme-tcp"),
        "{}",
        said(&planted)
    );
    planted.write("sys/module/nvme_tcp/refcnt", "0");
    assert!(said(&planted).contains("in a container"), "{}", said(&planted));
    // Nothing was kept for a machine that cannot connect.
    assert!(!planted.kernel.path("var/lib/ddlp").exists());
}

#[test]
fn nothing_that_listens_is_found_before_the_kernel_is_asked() {
    let planted = kernel(trees::NO_MULTIPATH, "6.12.1");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let args = args(&[&format!("127.0.0.1:{port}"), "--nqn", NQN]);
    let said = error(connect_with(&args, &planted.kernel, |_| Ok(()), SOON));
    assert!(said.contains("nothing listens at 127.0.0.1:"), "{said}");
    assert_eq!(planted.read("dev/nvme-fabrics"), "");
}

#[test]
fn time_outs_must_fit_together() {
    let wrong = args(&["10.0.0.7", "--nqn", NQN, "--ctrl-loss", "2", "--fast-io-fail", "5"]);
    assert!(wrong.timing().unwrap_err().to_string().contains("--ctrl-loss 2 is shorter than --fast-io-fail 5"));
    assert!(args(&["10.0.0.7", "--ctrl-loss=-1"]).timing().is_ok());
    for words in
        [["--keep-alive", "0"], ["--reconnect-delay", "0"], ["--ctrl-loss=-2", "--nqn=nqn.x"], ["--host-id", HOST]]
    {
        assert!(Line::try_parse_from(["connect", "10.0.0.7"].iter().chain(&words)).is_err(), "{words:?}");
    }
}
