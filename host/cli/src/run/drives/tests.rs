use super::*;
use crate::run::args::parse;
use ddlp_host::{LocalDrive, LocalResults};

fn of(args: &RunArgs, strategy: Strategy) -> Result<Vec<DriveSpec>, String> {
    let mut options = LoaderOptions::default();
    (options.dataset, options.strategy) = (Some(args.dataset.clone()), strategy);
    add_drives(args, &mut options).map_err(|error| error.to_string())?;
    Ok(options.drives_taking_part())
}

fn specs(line: &[&str]) -> Result<Vec<DriveSpec>, String> {
    let args = parse(line).unwrap();
    let strategy = args.given.loader.get("strategy").map(|name| name.as_str().unwrap().parse().unwrap());
    of(&args, strategy.unwrap_or_default())
}

#[test]
fn a_run_has_one_local_drive_unless_others_are_named() {
    assert_eq!(specs(&[]), Ok(vec![DriveSpec::Local(LocalDrive::default())]));
    assert_eq!(specs(&["--drive", "local", "--drive", "local"]).unwrap().len(), 2);
    assert_eq!(specs(&["--drive", "none"]), Ok(Vec::new()));
    assert_eq!(specs(&["--strategy", "cpu"]), Ok(Vec::new()));
}

#[test]
fn named_drives_are_used() {
    let local = LocalDrive { threads: Some(2), cores: vec![1], ..LocalDrive::default() };
    assert_eq!(specs(&["--drive-threads", "2", "--drive-cores", "1"]), Ok(vec![DriveSpec::Local(local)]));
}

#[test]
fn contradictions_are_named() {
    for line in [
        &["--strategy", "cpu", "--drive", "local"][..],
        &["--strategy", "csd", "--drive", "none"],
        &["--strategy", "mte", "--drive", "none"],
        &["--strategy", "wrr", "--drive", "none"],
        &["--drive", "none", "--drive", "local"],
    ] {
        assert!(specs(line).unwrap_err().contains("--drive"), "{line:?}");
    }
    // A run that had a drive can be resumed without one, and keeps the strategy of the state.
    let args = parse(&["--drive", "none", "--resume", "at.json"]).unwrap();
    assert!(of(&args, Strategy::Mte).is_ok());
}

#[test]
fn options_without_effect_are_refused() {
    let tcp = "tcp://h:1/nqn.x";
    for option in
        [["--throttle", "1"], ["--drive-threads", "2"], ["--drive-cores", "0"], ["--slots", "4"], ["--results", "read"]]
    {
        for drive in [&["--drive", tcp][..], &["--drive", "none"], &["--strategy", "cpu"]] {
            let error = specs(&[&option[..], drive].concat()).unwrap_err();
            assert!(error.contains(option[0]) && error.contains("local drive"), "{error}");
        }
        assert!(specs(&[&option[..], &["--drive", tcp, "--drive", "local"]].concat()).is_ok());
    }
}

#[test]
fn only_drives_at_an_address_are_told_an_nqn() {
    let host = ["--host-nqn", "nqn.2024-01.example:host"];
    for drive in [&[][..], &["--drive", "/dev/nvme0"], &["--drive", "none"]] {
        assert!(specs(&[&host[..], drive].concat()).unwrap_err().contains("--host-nqn"), "{drive:?}");
    }
    assert!(specs(&[&host[..], &["--drive", "tcp://h:1/nqn.x", "--drive", "local"]].concat()).is_ok());
    assert!(parse(&["--host-nqn", "host"]).unwrap_err().contains("nqn."));
}

#[test]
fn the_drive_that_holds_the_dataset_takes_part() {
    for (address, has_nqn) in [("tcp://h:1/nqn.x", true), ("/dev/nvme3", false)] {
        let place = |line: &[&str]| {
            let mut args = parse(line).unwrap();
            args.dataset = address.into();
            of(&args, Strategy::Ordered)
        };
        assert_eq!(place(&[]), Ok(vec![DriveSpec::Remote(address.to_owned())]));
        assert_eq!(place(&["--drive", "none"]), Ok(Vec::new()));
        assert_eq!(place(&["--host-nqn", "nqn.2024-01.example:host"]).is_ok(), has_nqn, "{address}");
    }
}

#[test]
fn only_drives_at_an_address_are_optional() {
    for drive in [&[][..], &["--drive", "auto"], &["--drive", "none"], &["--drive", "/dev/nvme0"]] {
        assert!(specs(&[&["--drive-optional"], drive].concat()).unwrap_err().contains("--drive-optional"));
    }
    assert!(specs(&["--drive-optional", "--drive", "tcp://h:1/nqn.x"]).is_ok());
}

#[test]
fn results_are_shared_read_or_a_file() {
    let results = |place: &str| parse(&["--results", place]).map(|args| args.given.drive.results);
    assert_eq!(results("shared"), Ok(LocalResults::Shared));
    assert_eq!(results("read"), Ok(LocalResults::Read));
    assert_eq!(results("./shared"), Ok(LocalResults::File("./shared".into())));
}
