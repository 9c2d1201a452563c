use super::*;

fn args(change: impl FnOnce(&mut ServeArgs)) -> Result<Settings> {
    let mut args = ServeArgs { dataset: Some("d".into()), ephemeral: true, ..ServeArgs::default() };
    change(&mut args);
    Settings::from_args(args)
}

#[test]
fn defaults() {
    let settings = args(|_| {}).unwrap();
    assert_eq!(settings.listen.to_string(), DEFAULT_LISTEN);
    assert_eq!(settings.discovery, Some(DiscoveryPort { port: 8009, required: false }));
    assert_eq!(settings.results, Backing::Memory);
    assert_eq!(settings.geometry, Geometry { slots: 4, slot_bytes: 38_547_456 });
    assert_eq!(settings.throttle, Throttle::FULL);
}

#[test]
fn a_slot_of_the_size_that_help_computes_holds_its_batch() {
    for samples in [1, 100, 171, 256, 512] {
        for (height, width) in [(1, 1), (32, 32), (224, 224), (299, 301)] {
            let asked = samples as u64 * (u64::from(height) * u64::from(width) * 3 + 24) + 8192;
            let geometry = geometry(None, Some(asked)).unwrap();
            let layout = SlotLayout::new(samples, Shape { height, width, channels: 3 }).unwrap();
            assert!(geometry.slot_bytes >= layout.total_bytes as u64, "{samples} samples of {height} × {width}");
        }
    }
    assert_eq!(512 * (224 * 224 * 3 + 24) + 8192, 77_090_816);
}

#[test]
fn cores_are_lists_of_ranges() {
    assert_eq!(cores("3,0,5-7,6").unwrap(), [0, 3, 5, 6, 7]);
    for wrong in ["", "a", "3-1", "1,", "9999999", "1-"] {
        assert!(cores(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn listening_for_other_machines_needs_allowed_hosts() {
    let error = args(|args| args.listen = Some("0.0.0.0:4420".into())).unwrap_err().to_string();
    assert!(error.contains("allowed-hosts"), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("c.toml");
    std::fs::write(&config, "listen = \"0.0.0.0:4420\"\nallowed-hosts = [\"nqn.a\"]\nslots = 7\ndiscovery = 8010")
        .unwrap();
    let settings = args(|args| args.config = Some(config.clone())).unwrap();
    assert_eq!((settings.geometry.slots, settings.allowed_hosts.len()), (7, 1));
    assert_eq!(settings.discovery, Some(DiscoveryPort { port: 8010, required: true }));
    let off = Some(DiscoveryChoice::Off);
    let settings =
        args(|args| (args.config, args.slots, args.discovery) = (Some(config.clone()), Some(9), off)).unwrap();
    assert_eq!((settings.geometry.slots, settings.discovery), (9, None), "the command line wins");
    std::fs::write(&config, "allowed-hosts = [\"host\"]").unwrap();
    assert!(args(|args| args.config = Some(config.clone())).is_err());
    std::fs::write(&config, "lisen = \"127.0.0.1:1\"").unwrap();
    assert!(args(|args| args.config = Some(config.clone())).is_err(), "unknown keys are refused");
}

#[test]
fn results_never_go_to_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let (config, link) = (directory.path().join("e.toml"), directory.path().join("link"));
    std::fs::write(&config, "").unwrap();
    std::os::unix::fs::symlink(&config, &link).unwrap();
    let refused = |results: &Path| {
        args(|args| (args.config, args.results) = (Some(config.clone()), Some(results.display().to_string())))
    };
    for results in [&config, &link] {
        let error = refused(results).unwrap_err().to_string();
        assert!(error.contains("is the configuration file: name another file"), "{error}");
    }
    refused(&directory.path().join("slots")).unwrap();
}

#[test]
fn a_configuration_is_a_regular_file_of_bounded_size() {
    let refused = |path: &Path| format!("{:#}", args(|args| args.config = Some(path.into())).unwrap_err());
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in [Path::new("/dev/zero"), &pipe, directory.path()] {
        assert!(refused(path).contains("not a regular file"), "{}", path.display());
    }
    let config = directory.path().join("c.toml");
    std::fs::write(&config, "#".repeat(CONFIG_BYTES_MAX as usize)).unwrap();
    args(|args| args.config = Some(config.clone())).unwrap();
    std::fs::write(&config, "#".repeat(CONFIG_BYTES_MAX as usize + 1)).unwrap();
    assert!(refused(&config).contains("more than 1048576 bytes"));
}

#[test]
fn values_out_of_range_are_refused() {
    type Change = fn(&mut ServeArgs);
    let changes: [Change; 9] = [
        |args| args.throttle = Some(0.0),
        |args| args.throttle = Some(1.5),
        |args| args.throttle = Some(f64::NAN),
        |args| args.slots = Some(0),
        |args| args.slot_bytes = Some(0),
        |args| args.slot_bytes = Some(8192),
        |args| args.threads = Some(0),
        |args| args.results = Some("fd:x".into()),
        |args| args.dataset = None,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert!(args(change).is_err(), "case {number}");
    }
}

#[test]
fn a_slot_holds_at_least_one_pixel() {
    let refused = geometry(None, Some(1)).unwrap_err().to_string();
    assert_eq!(refused, "--slot-bytes 1: expected 12288 to 17179869184");
    assert_eq!(geometry(None, Some(12_288)).unwrap().slot_bytes, 12_288);
}

#[test]
fn names_stay_within_the_state_directory() {
    for name in ["..", "a/b", ""] {
        let choice = (false, None, Some(name.to_owned()));
        assert!(identity(choice, (false, None, None)).is_err(), "{name}");
    }
    let file = (true, None, None);
    assert_eq!(identity((false, None, None), file.clone()).unwrap(), IdentitySource::Ephemeral);
    let line = (false, Some("s".into()), None);
    assert_eq!(identity(line, file).unwrap(), IdentitySource::Directory("s".into()));
}
