//! If something is missing when a device is opened, the error says what in a sentence.

use super::*;

#[test]
fn the_library_may_be_missing() {
    // Nobody searches on behind a file of this name that is no library.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libcuda.so.1"), vec![b'x'; 4096]).unwrap();
    with_driver_in("gpu::opening::the_library_may_be_missing", folder.path(), || {
        let error = Device::open(DeviceName::number(0)).unwrap_err();
        assert!(matches!(error, CudaError::NoLibrary { .. }), "{error}");
        assert!(error.to_string().starts_with("there is no CUDA driver on this machine (/"), "{error}");
    });
}

#[test]
fn a_library_without_the_functions_is_named() {
    let folder = tempfile::tempdir().unwrap();
    // A library that is there wherever tests run.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.contains("/libc.so.6")).expect("this process uses it");
    std::os::unix::fs::symlink(libc, folder.path().join("libcuda.so.1")).unwrap();
    with_driver_in("gpu::opening::a_library_without_the_functions_is_named", folder.path(), || {
        let error = Device::open(DeviceName::number(0)).unwrap_err();
        assert!(matches!(error, CudaError::NoFunction { .. }) && error.to_string().contains("cu"), "{error}");
    });
}

/// Opens the device on a stand-in with these settings, and asserts what the error says.
fn cannot_open(name: &str, settings: &[(&str, &str)], says: &str, is_it: fn(&CudaError) -> bool) {
    on_stand_in(name, settings, |driver| {
        for _ in 0..2 {
            let error = Device::open(DeviceName::number(0)).unwrap_err();
            assert!(is_it(&error) && error.to_string().contains(says), "{error}");
        }
        assert_clean(driver);
    });
}

#[test]
fn the_library_may_be_a_stub() {
    cannot_open("gpu::opening::the_library_may_be_a_stub", &[("init", "34")], "stub", |error| {
        matches!(error, CudaError::Stub)
    });
}

#[test]
fn there_may_be_no_device() {
    let is_it: fn(&CudaError) -> bool = |error| matches!(error, CudaError::NoDevice);
    cannot_open("gpu::opening::there_may_be_no_device", &[("init", "100")], "CUDA_VISIBLE_DEVICES", is_it);
}

#[test]
fn the_driver_may_be_too_old() {
    let is_it: fn(&CudaError) -> bool = |error| matches!(error, CudaError::TooOld { major: 11, minor: 8 });
    cannot_open(
        "gpu::opening::the_driver_may_be_too_old",
        &[("driver", "11080")],
        "supports CUDA 11.8, but 12.0",
        is_it,
    );
}

#[test]
fn the_driver_may_fail_in_its_own_words() {
    let is_it: fn(&CudaError) -> bool = |error| matches!(error, CudaError::Call { call: "cuInit", .. });
    cannot_open(
        "gpu::opening::the_driver_may_fail_in_its_own_words",
        &[("init", "803")],
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)",
        is_it,
    );
}

#[test]
fn the_device_may_register_no_memory() {
    let is_it: fn(&CudaError) -> bool = |error| matches!(error, CudaError::NoRegistration { .. });
    cannot_open("gpu::opening::the_device_may_register_no_memory", &[("registration", "false")], "register", is_it);
}

#[test]
fn a_device_is_chosen_by_number_or_rank() {
    on_stand_in("gpu::opening::a_device_is_chosen_by_number_or_rank", &[("devices", "3")], |driver| {
        let index = |name: &str| Device::open(name.parse().unwrap()).map(|device| device.index());
        assert_eq!((index("cuda").unwrap(), index("cuda:2").unwrap()), (0, 2));
        let error = index("cuda:3").unwrap_err();
        assert!(matches!(error, CudaError::NoSuchDevice { index: 3, count: 3 }), "{error}");
        for (rank, expected) in [("2", 2), ("3", 0), ("x", 0)] {
            // SAFETY: no other thread of this process uses the environment.
            unsafe { std::env::set_var("LOCAL_RANK", rank) };
            assert_eq!(index("cuda").unwrap(), expected, "rank {rank}");
        }
        assert_clean(driver);
    });
}

#[test]
fn opening_says_what_stands_in_its_way() {
    on_stand_in("gpu::opening::opening_says_what_stands_in_its_way", &[], |driver| {
        for (fails, says) in [
            ("cuDevicePrimaryCtxRetain:1:46", "cuda:0 (Stand-in) is busy or in exclusive compute mode"),
            ("cuDevicePrimaryCtxRetain:1:2", "cuda:0 (Stand-in) cannot be opened, since memory is exhausted"),
            ("cuModuleLoadData:1:2", "end other programs that use the device (`nvidia-smi` shows them)"),
            ("cuModuleLoadData:1:209", "cuda:0 (Stand-in) is too old: its compute capability is 7.5"),
        ] {
            driver.set("call", fails);
            let error = Device::open(DeviceName::number(0)).unwrap_err();
            assert!(error.to_string().contains(says) && !error.is_loss(), "{error}");
        }
        driver.set("call", "");
        driver.set("compute", 70);
        let error = Device::open(DeviceName::number(0)).unwrap_err();
        assert!(error.to_string().contains("capability is 7.0, and 7.5 or higher is supported"), "{error}");
        driver.set("compute", 75);
        let device = device();
        // A buffer cannot be registered, whatever the device promised.
        driver.set("call", "cuMemHostRegister_v2:1:801");
        let photos = Photos::new(SAMPLES);
        let error =
            failure(loader(&photos.pack()).with(|o| (o.pipeline, o.strategy) = (small(), Strategy::Cpu)), &device);
        assert!(matches!(cause(&error), CudaError::NoRegistration { .. }), "{}", chain(&error));
        drop(device);
        assert_clean(driver);
    });
}
