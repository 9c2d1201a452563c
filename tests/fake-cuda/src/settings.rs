//! Settings and faults, from the environment or from a test.

use crate::code::Code;

/// What the stand-in is, and when it fails. Each setting has a key, which [`Settings::set`] takes; the environment
/// variable `FAKE_CUDA_<KEY>` sets it when the library is loaded.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// `seed`: decides all orders, and how eagerly queued work runs.
    pub seed: u64,
    /// `devices`: number of devices.
    pub devices: i32,
    /// `memory`: bytes of each device.
    pub memory: u64,
    /// `driver`: version of CUDA, such as 12000.
    pub driver: i32,
    /// `compute`: compute capability of the devices, such as 75.
    pub compute: u32,
    /// `init`: what cuInit answers, such as 34 for a stub library.
    pub init: i32,
    /// `registration`: whether host memory can be registered.
    pub registration: bool,
    /// `lost`, as `N:CODE`: the Nth operation from now on that runs on a stream fails, and its context with it.
    pub lost: Option<Countdown>,
    /// `call`, as `NAME:N:CODE`: the Nth call of this function from now on fails.
    pub call: Option<(String, Countdown)>,
    /// `verbose`: mistakes in the use of the driver are also printed on stderr.
    pub verbose: bool,
    /// `report`: path of a file that the process writes when it exits: the statistics and all mistakes.
    pub report: Option<String>,
}

/// A result that comes after some more events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Countdown {
    left: u64,
    code: Code,
}

const KEYS: [&str; 11] =
    ["seed", "devices", "memory", "driver", "compute", "init", "registration", "lost", "call", "verbose", "report"];

impl Settings {
    /// Returns the defaults with the environment's changes.
    pub fn from_environment() -> Self {
        let mut settings = Self {
            seed: 0,
            devices: 1,
            memory: 8 << 30,
            driver: 12_000,
            compute: 75,
            init: 0,
            registration: true,
            lost: None,
            call: None,
            verbose: false,
            report: None,
        };
        for key in KEYS {
            let name = format!("FAKE_CUDA_{}", key.to_uppercase());
            if let Ok(value) = std::env::var(&name) {
                assert!(settings.set(key, &value), "{name}={value} is not understood");
            }
        }
        settings
    }

    /// Changes a setting. Returns false if the key is unknown or the value is not understood.
    #[must_use]
    pub fn set(&mut self, key: &str, value: &str) -> bool {
        fn put<T: std::str::FromStr>(setting: &mut T, value: &str) -> bool {
            value.parse().map(|value| *setting = value).is_ok()
        }
        match key {
            "seed" => put(&mut self.seed, value),
            "devices" => put(&mut self.devices, value),
            "memory" => put(&mut self.memory, value),
            "driver" => put(&mut self.driver, value),
            "compute" => put(&mut self.compute, value),
            "init" => put(&mut self.init, value),
            "registration" => put(&mut self.registration, value),
            "verbose" => put(&mut self.verbose, value),
            "lost" => {
                self.lost = Countdown::parse(value);
                self.lost.is_some() || value.is_empty()
            }
            "call" => {
                self.call = value
                    .split_once(':')
                    .and_then(|(name, countdown)| Some((name.to_string(), Countdown::parse(countdown)?)));
                self.call.is_some() || value.is_empty()
            }
            "report" => {
                self.report = Some(value.to_string());
                true
            }
            _ => false,
        }
    }

    /// Counts an operation that is about to run. Fails if it is the one that fails.
    pub fn count_operation(&mut self) -> Result<(), Code> {
        Countdown::count(&mut self.lost)
    }

    /// Counts a call. Fails if it is the one that fails.
    pub fn count_call(&mut self, name: &str) -> Result<(), Code> {
        let Some((of, countdown)) = self.call.take() else { return Ok(()) };
        let mut countdown = Some(countdown);
        let result = if of == name { Countdown::count(&mut countdown) } else { Ok(()) };
        self.call = countdown.map(|countdown| (of, countdown));
        result
    }
}

impl Countdown {
    fn parse(text: &str) -> Option<Self> {
        let (left, code) = text.split_once(':')?;
        let left = left.parse().ok().filter(|&left| left > 0)?;
        Some(Self { left, code: Code(code.parse().ok()?) })
    }

    fn count(countdown: &mut Option<Self>) -> Result<(), Code> {
        let Some(Self { left, code }) = countdown else { return Ok(()) };
        *left -= 1;
        if *left > 0 {
            return Ok(());
        }
        let code = *code;
        *countdown = None;
        Err(code)
    }
}
