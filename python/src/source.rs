//! Samples of a Python object: a sequence of pairs of an image and a label. An image is the bytes of its file, or its
//! pixels: an image of Pillow or an array.

use crate::errors;
use crate::labels::{self, UNKNOWN};
use ddlp_cause::with_causes;
use ddlp_host::dataset::{Dataset, Header, Identity, Location, ReadError, Unavailable};
use pyo3::exceptions::{PyBaseException, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PyString, PyTuple};
use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Most items of an object. Each takes four bytes of memory.
const ITEMS_MAX: usize = 1 << 30;

thread_local! {
    /// The item that this thread asked for last: the address of its dataset's labels, its index, and its image. The
    /// header of a sample and the read after it then share one call of `__getitem__`.
    static LAST: RefCell<Option<(usize, u64, Item)>> = const { RefCell::new(None) };
}

/// The image of an item.
enum Item {
    /// The bytes of an image file.
    File(PyBackedBytes),
    /// Three planes of this width and height.
    Pixels((u32, u32), Vec<u8>),
}

impl Item {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::File(bytes) => bytes,
            Self::Pixels(_, planes) => planes,
        }
    }

    fn header(&self) -> Header {
        let bytes = 0..self.bytes().len() as u64;
        match self {
            Self::File(_) => Header::file(bytes),
            Self::Pixels(size, _) => Header::planar(*size, bytes),
        }
    }

    /// Returns the image of an item; `None` if the object is no image.
    fn of(image: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let py = image.py();
        if let Ok(bytes) = image.extract::<PyBackedBytes>() {
            return Ok(Some(Self::File(bytes)));
        }
        let of_bytes = PyMemoryView::from(image).ok().filter(|view| is_of_bytes(view).unwrap_or(false));
        if let Some(view) = of_bytes {
            return Ok(Some(Self::File(py.get_type::<PyBytes>().call1((view,))?.extract()?)));
        }
        let pixels = py.import("ddlp._objects")?.call_method1("pixels_of", (image,))?;
        let Some((width, height, rows)) = pixels.extract::<Option<(u32, u32, PyBackedBytes)>>()? else {
            return Ok(None);
        };
        let mut planes = Vec::with_capacity(rows.len());
        (0..3).for_each(|channel| planes.extend(rows.iter().skip(channel).step_by(3)));
        Ok(Some(Self::Pixels((width, height), planes)))
    }
}

/// A lock of Python while this thread holds it.
struct Held<'py>(Bound<'py, PyAny>);

impl<'py> Held<'py> {
    fn of(lock: Bound<'py, PyAny>) -> PyResult<Self> {
        lock.call_method0("acquire")?;
        Ok(Self(lock))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Only a lock that nobody holds refuses.
        let _ = self.0.call_method0("release");
    }
}

/// Returns whether an object's items come from a class of torchvision that only reads files or arrays, so that several
/// threads may ask for items at a time. FakeData draws its items by the generator that all threads share.
fn only_reads(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let get = object.get_type().getattr("__getitem__")?;
    let module = get.getattr("__module__").ok().and_then(|module| module.extract::<String>().ok()).unwrap_or_default();
    Ok(module.starts_with("torchvision.datasets.") && module != "torchvision.datasets.fakedata")
}

/// A Python object with `__len__` and `__getitem__`, whose items are pairs of bytes and a label.
pub struct Sequence {
    object: Py<PyAny>,
    /// The object's type, for messages.
    name: String,
    classes: Vec<String>,
    /// The label of each item that was read.
    labels: Box<[AtomicU32]>,
    identity: Identity,
    /// A lock of Python that a thread holds while it asks for an item; `None` if the object allows several at a time.
    turn: Option<Py<PyAny>>,
    /// What the object has raised last.
    raised: Mutex<Option<Py<PyBaseException>>>,
}

impl Sequence {
    /// Checks the object, and reads its first item; of a list or tuple, all items.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let name = object.get_type().fully_qualified_name()?.to_string();
        let neither = || {
            let why = "a dataset is a path, or an object with __len__ and __getitem__";
            PyTypeError::new_err(format!("{why}, and {name} is neither"))
        };
        let items = object.len().map_err(|error| errors::caused_by(neither(), Some(error)))?;
        if !object.hasattr("__getitem__")? {
            return Err(neither());
        }
        if items == 0 {
            return Err(errors::configuration(format!("the dataset, a {name}, is empty")));
        }
        if items > ITEMS_MAX {
            return Err(errors::configuration(format!(
                "the dataset, a {name}, has {items} items, and at most {ITEMS_MAX} are possible: let __len__ return \
                 how many there are, and set the length of an epoch by `epoch_samples`"
            )));
        }
        let mut sequence = Self {
            object: object.clone().unbind(),
            classes: classes_of(object)?,
            labels: (0..items).map(|_| AtomicU32::new(UNKNOWN)).collect(),
            identity: Identity::from_bytes([0; 32]),
            turn: if only_reads(object)? {
                None
            } else {
                // A lock of Rust would wait without letting go of the interpreter's.
                Some(object.py().import("threading")?.call_method0("Lock")?.unbind())
            },
            raised: Mutex::default(),
            name,
        };
        let item = |index| sequence.item(object.py(), index).map_err(|error| sequence.refused_at_once(index, error));
        let mut hasher = blake3::Hasher::new();
        let mut add = |part: &[u8]| {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        };
        let first = item(0)?;
        for part in [b"ddlp python 1", sequence.name.as_bytes(), first.bytes(), &items.to_le_bytes()] {
            add(part);
        }
        // The items of any other object may have to be read or made.
        if object.is_exact_instance_of::<PyList>() || object.is_exact_instance_of::<PyTuple>() {
            for index in 1..items as u64 {
                add(item(index)?.bytes());
            }
            sequence.labels.iter().for_each(|label| add(&label.load(Ordering::Relaxed).to_le_bytes()));
        }
        // A part of a dataset, as PyTorch's Subset.
        let indices = object.getattr("dataset").and_then(|_| object.getattr("indices")?.extract::<Vec<u64>>());
        for index in indices.into_iter().flatten() {
            hasher.update(&index.to_le_bytes());
        }
        sequence.identity = Identity::from_bytes(*hasher.finalize().as_bytes());
        Ok(sequence)
    }

    /// Asks the object for an item, when it is this thread's turn, and notes its label.
    fn item(&self, py: Python<'_>, index: u64) -> PyResult<Item> {
        let _turn = self.turn.as_ref().map(|turn| Held::of(turn.bind(py).clone())).transpose()?;
        let item = self.object.bind(py).get_item(index)?;
        let wrong = |what: String, hint: &str| {
            let name = &self.name;
            PyTypeError::new_err(format!(
                "item {index} of {name} is {what}, but must be (bytes of an image file or its pixels, label){hint}"
            ))
        };
        let Ok((image, label)) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
            return Err(wrong(described(&item), ""));
        };
        let item = Item::of(&image)?.ok_or_else(|| {
            let hint = ": return the bytes of the file, such as path.read_bytes(), or the image before its transform, \
                        as Pillow or an array of uint8 (height x width x 3) has it";
            wrong(format!("({}, …)", described(&image)), hint)
        })?;
        let label = label.extract::<i64>().map_err(|_| wrong(format!("(bytes, {})", described(&label)), ""))?;
        let label = labels::checked(label, self.classes.len())
            .map_err(|wrong| PyValueError::new_err(format!("the label of item {index} of {} is {wrong}", self.name)))?;
        let noted = self.labels[index as usize].compare_exchange(UNKNOWN, label, Ordering::Relaxed, Ordering::Relaxed);
        if let Some(before) = noted.err().filter(|&before| before != label) {
            return Err(PyValueError::new_err(format!(
                "the label of item {index} of {} is {label}, but was {before} before: an item must always be the same \
                 pair",
                self.name
            )));
        }
        Ok(item)
    }

    /// Passes an item to `read`. Uses the item of the thread's last call again, if the index is the same.
    fn with_item<T>(&self, index: u64, read: impl FnOnce(&Item) -> T) -> Result<T, ReadError> {
        let place = self.labels.as_ptr().addr();
        LAST.with_borrow_mut(|last| {
            if last.as_ref().is_none_or(|(of, item, _)| (*of, *item) != (place, index)) {
                let asked = Python::try_attach(|py| self.item(py, index));
                let asked = asked.unwrap_or_else(|| Err(PyRuntimeError::new_err("the interpreter is ending")));
                let item = asked.map_err(|error| self.refused(index, error))?;
                *last = Some((place, index, item));
            }
            Ok(read(&last.as_ref().expect("set above").2))
        })
    }

    /// Returns the name of the object's type.
    pub fn type_name(&self) -> &str {
        &self.name
    }

    /// Returns whether every label is known without reading an item.
    pub fn knows_labels(&self) -> bool {
        self.labels.iter().all(|label| label.load(Ordering::Relaxed) != UNKNOWN)
    }

    /// Takes what the object has raised last.
    pub fn take_raised(&self) -> Option<PyErr> {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(Python::attach(|py| PyErr::from_value(raised.into_bound(py).into_any())))
    }

    /// Shows the garbage collector what this value holds. A run alone holds the value.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.object)?;
        // If another thread holds the lock, the collector sees the exception only at its next collection.
        self.raised.try_lock().map_or(Ok(()), |raised| visit.call(&*raised))
    }

    /// Returns the exception for an item that the object refuses when it is opened: `UnavailableError`, as during a
    /// run.
    fn refused_at_once(&self, index: u64, error: PyErr) -> PyErr {
        let refused = self.unavailable(index, Python::attach(|py| error.clone_ref(py)));
        errors::unavailable(with_causes(&refused), Some(error))
    }

    fn refused(&self, index: u64, error: PyErr) -> ReadError {
        if let Some(raised) = Python::try_attach(|py| error.clone_ref(py).into_value(py)) {
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(raised);
        }
        self.unavailable(index, error).into()
    }

    fn unavailable(&self, index: u64, error: PyErr) -> Unavailable {
        let what = format!("item {index} of the dataset, a {},", self.name);
        Unavailable::Io { what, path: self.name.clone().into(), source: io::Error::other(error) }
    }
}

/// Returns whether a buffer is a row of bytes, like a file. A decoded image has more dimensions.
fn is_of_bytes(view: &Bound<'_, PyMemoryView>) -> PyResult<bool> {
    Ok(view.getattr("ndim")?.extract::<usize>()? == 1 && view.getattr("itemsize")?.extract::<usize>()? == 1)
}

/// Names the type of a value, and the shape of an array.
fn described(value: &Bound<'_, PyAny>) -> String {
    let Ok(name) = value.get_type().fully_qualified_name() else { return "something else".into() };
    match value.getattr_opt("shape") {
        Ok(Some(shape)) => format!("a {name} of shape {shape}"),
        _ => format!("a {name}"),
    }
}

/// Returns the names of the classes: the attribute `classes`, if the object has one.
fn classes_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let Some(classes) = object.getattr_opt("classes")?.filter(|classes| !classes.is_none()) else {
        return Ok(Vec::new());
    };
    classes.try_iter()?.map(|name| class_of(&name?.str()?)).collect()
}

/// Returns the name of a class. Python keeps a folder's name that is not UTF-8 as text that is not Unicode.
fn class_of(name: &Bound<'_, PyString>) -> PyResult<String> {
    let unusable = |_| match name.repr() {
        Ok(name) => errors::configuration(format!(
            "the dataset's class {name} is not Unicode text, as the name of a folder that is not UTF-8: rename it"
        )),
        Err(error) => error,
    };
    name.to_str().map(str::to_owned).map_err(unusable)
}

impl Dataset for Sequence {
    fn len(&self) -> u64 {
        self.labels.len() as u64
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: u64) -> u32 {
        match self.labels[index as usize].load(Ordering::Relaxed) {
            UNKNOWN => {
                // Nobody has read this sample yet: a read brings its label, too.
                let _ = self.with_item(index, |_| ());
                match self.labels[index as usize].load(Ordering::Relaxed) {
                    // The item cannot be read, so no batch will have this label.
                    UNKNOWN => 0,
                    label => label,
                }
            }
            label => label,
        }
    }

    fn name(&self, index: u64) -> String {
        format!("item {index}")
    }

    /// The length is unknown before an item is read.
    fn location(&self, _: u64) -> Location {
        Location { file: self.name.clone().into(), offset: 0, length: 0 }
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        self.with_item(index, Item::header)
    }

    fn read(&self, index: u64, _: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        let copied = self.with_item(index, |item| {
            let start = usize::try_from(offset).ok()?;
            out.copy_from_slice(item.bytes().get(start..start.checked_add(out.len())?)?);
            Some(())
        })?;
        copied.ok_or_else(|| {
            self.refused(index, PyValueError::new_err("it has fewer bytes than when it was asked for before"))
        })
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    /// Keeping samples in memory is the object's business: asking for items to find out takes time.
    fn is_resident(&self) -> bool {
        true
    }

    fn kind(&self) -> &'static str {
        "python"
    }
}
