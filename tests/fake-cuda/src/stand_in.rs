//! What tests do with the stand-in: install it, change its settings, and ask what a program did.

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};

use libloading::{Library, Symbol};
use tempfile::TempDir;

use crate::statistics::Statistics;

/// Names under which programs look for the driver.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// A stand-in in a folder of its own, under both names of the driver, and loaded by this process.
///
/// Each one has its own state, even in one process: its file is a copy. A program finds it in `LD_LIBRARY_PATH`, this
/// process by [`StandIn::path`].
pub struct StandIn {
    /// `None` if another process made it.
    folder: Option<TempDir>,
    library: &'static Library,
}

impl StandIn {
    /// Installs and loads it.
    ///
    /// # Panics
    ///
    /// If cargo has not built the library, or the folder cannot be made.
    pub fn new() -> Self {
        let folder = folder();
        // SAFETY: the library has no functions that run when it is loaded.
        let library = unsafe { Library::new(folder.path().join(NAMES[0])) }.expect("the stand-in can be loaded");
        // Its threads' memory refers to the library until the threads end.
        Self { folder: Some(folder), library: Box::leak(Box::new(library)) }
    }

    /// Returns the stand-in that this process finds as a program finds the driver: that in `LD_LIBRARY_PATH`.
    ///
    /// # Panics
    ///
    /// If it finds another driver, or none.
    pub fn in_use() -> Self {
        // SAFETY: as above.
        let library = unsafe { Library::new(NAMES[0]) }.expect("a driver in LD_LIBRARY_PATH");
        // SAFETY: only the name is of interest.
        let is_stand_in = unsafe { library.get::<unsafe extern "C" fn()>(b"fakeCudaShutDown") }.is_ok();
        assert!(is_stand_in, "the driver that this process finds is a stand-in");
        Self { folder: None, library: Box::leak(Box::new(library)) }
    }

    /// Returns the folder, for `LD_LIBRARY_PATH`.
    pub fn folder(&self) -> &Path {
        self.folder.as_ref().expect("made by this process").path()
    }

    /// Returns the path of the library. Who loads it gets the state that this value controls.
    pub fn path(&self) -> PathBuf {
        self.folder().join(NAMES[0])
    }

    /// Returns the library, for tests that call the driver themselves.
    pub fn library(&self) -> &'static Library {
        self.library
    }

    /// Changes a setting: `seed`, `devices`, `memory`, `driver`, `compute`, `init`, `registration`, `lost` (`N:CODE`),
    /// `call` (`NAME:N:CODE`) or `verbose`. A process that loads the library itself takes `FAKE_CUDA_SEED` and so on
    /// from the environment.
    ///
    /// # Panics
    ///
    /// If the setting is not understood.
    pub fn set(&self, key: &str, value: impl ToString) {
        let [key, value] = [key.to_string(), value.to_string()].map(|text| CString::new(text).expect("no zero"));
        // SAFETY: the function has this type, and gets texts that end with a zero.
        let result = unsafe {
            let set: Symbol<unsafe extern "C" fn(*const c_char, *const c_char) -> i32> =
                self.library.get(b"fakeCudaSet").expect("a function");
            set(key.as_ptr(), value.as_ptr())
        };
        assert_eq!(result, 0, "the setting {key:?} = {value:?} is not understood");
    }

    /// Returns what the program did.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = Statistics::default();
        // SAFETY: the function has this type, and the structure is the library's.
        unsafe {
            let fill: Symbol<unsafe extern "C" fn(*mut Statistics) -> i32> =
                self.library.get(b"fakeCudaStatistics").expect("a function");
            fill(&mut statistics);
        }
        statistics
    }

    /// Returns how often the program called a function of the driver.
    ///
    /// # Panics
    ///
    /// If the name contains a zero.
    pub fn calls(&self, name: &str) -> u64 {
        let name = CString::new(name).expect("no zero");
        // SAFETY: the function has this type, and gets a text that ends with a zero.
        unsafe {
            let calls: Symbol<unsafe extern "C" fn(*const c_char) -> u64> =
                self.library.get(b"fakeCudaCalls").expect("a function");
            calls(name.as_ptr())
        }
    }

    /// Returns a sentence about each mistake that the program made with the driver.
    pub fn defects(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        let mut text = vec![0u8; 1000];
        // SAFETY: the function has this type, and writes no more than the buffer holds.
        unsafe {
            let get: Symbol<unsafe extern "C" fn(usize, *mut u8, usize) -> i32> =
                self.library.get(b"fakeCudaDefect").expect("a function");
            while get(sentences.len(), text.as_mut_ptr(), text.len()) == 0 {
                let end = text.iter().position(|&byte| byte == 0).expect("a final zero");
                sentences.push(String::from_utf8_lossy(&text[..end]).into_owned());
            }
        }
        sentences
    }

    /// Does what the driver does when a process exits: every call fails from then on.
    pub fn shut_down(&self) {
        // SAFETY: the function has this type.
        unsafe {
            let shut_down: Symbol<unsafe extern "C" fn()> = self.library.get(b"fakeCudaShutDown").expect("a function");
            shut_down();
        }
    }

    /// Checks that the program made no mistake, copied nothing to the device from pageable memory, and left nothing.
    ///
    /// # Panics
    ///
    /// If it did.
    pub fn assert_clean(&self) {
        let statistics = self.statistics();
        assert_eq!(self.defects(), Vec::<String>::new());
        assert_eq!((statistics.pageable_to_device, statistics.calls_in_children), (0, 0), "{statistics:#?}");
        assert!(statistics.is_clean(), "{statistics:#?}");
    }
}

impl Default for StandIn {
    fn default() -> Self {
        Self::new()
    }
}

/// Makes a folder in which programs find the stand-in: for `LD_LIBRARY_PATH` of a program that a test starts.
///
/// # Panics
///
/// As [`StandIn::new`].
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::copy(library(), folder.path().join(NAMES[0])).expect("the stand-in can be copied");
    std::os::unix::fs::symlink(NAMES[0], folder.path().join(NAMES[1])).expect("a link");
    folder
}

/// Returns the library that cargo built beside this test.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("the test's path");
    let beside = program.ancestors().skip(1).take(2).flat_map(|folder| [folder.to_path_buf(), folder.join("deps")]);
    let mut places = beside.map(|folder| folder.join("libfake_cuda.so"));
    places.find(|path| path.exists()).expect("libfake_cuda.so lies beside the test: cargo builds it as a dependency")
}
