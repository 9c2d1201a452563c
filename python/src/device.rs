//! GPUs: a device to which a run delivers, and batches that lie there.

#![allow(unsafe_code)]

use crate::errors;
use crate::opening;
use ddlp_cuda::{Consumer, CudaError, DeviceName, FinishedBatch, LEGACY_STREAM, finish};
use ddlp_host::{Batch, FieldView};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyAny;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Handle of each thread's own default stream.
const PER_THREAD_STREAM: u64 = 2;

/// A GPU that was opened.
#[pyclass(frozen, module = "ddlp._ddlp")]
pub struct Device(pub(crate) ddlp_cuda::Device);

#[pymethods]
impl Device {
    /// Opens a device by its name: cuda:N, or cuda for the one whose number is in LOCAL_RANK, else the first.
    #[new]
    fn new(py: Python<'_>, name: &str) -> PyResult<Self> {
        let name: DeviceName = name.parse().map_err(|error| errors::of_device(&error))?;
        let opened = opening::elsewhere(py, move || ddlp_cuda::Device::open(name))?;
        opened.map(Self).map_err(|error| errors::of_device(&error))
    }

    /// Number of the device.
    #[getter]
    fn index(&self) -> u32 {
        self.0.index()
    }

    /// Number of devices that this process sees.
    #[getter]
    fn count(&self) -> u32 {
        self.0.count()
    }

    /// Number and model.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }
}

/// A batch whose fields lie on a device, or will.
pub struct DeviceBatch {
    batch: Arc<Batch>,
    device: u32,
    /// Memory and stream that the consumer named.
    destination: Mutex<Option<Destination>>,
    /// The batch in memory of the loader's own, once an array was exported.
    finished: Mutex<Option<Arc<FinishedBatch>>>,
}

/// Where the consumer wants a batch.
struct Destination {
    stream: u64,
    /// Address for each field.
    addresses: Vec<u64>,
    /// Fields that have their place.
    placed: usize,
}

// SAFETY: `Batch.deliver_to`, which the package's Python code calls, gets a stream and addresses of PyTorch, which are
// as this trait demands. The consumer has the tensors at these addresses only after `finish`.
unsafe impl Consumer for Destination {
    fn stream(&self) -> u64 {
        self.stream
    }

    fn place(&mut self, _field: FieldView<'_>) -> Result<u64, Box<dyn Error + Send + Sync>> {
        let address = self.addresses.get(self.placed).copied().ok_or("there are fewer addresses than fields")?;
        self.placed += 1;
        Ok(address)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DeviceBatch {
    pub fn new(batch: Arc<Batch>, device: u32) -> Self {
        Self { batch, device, destination: Mutex::default(), finished: Mutex::default() }
    }

    /// Returns the device as DLPack numbers it.
    pub fn device(&self) -> (i32, i32) {
        (2, self.device.cast_signed())
    }

    /// Notes where the consumer wants the batch.
    pub fn deliver_to(&self, stream: u64, addresses: Vec<u64>) {
        *locked(&self.destination) = Some(Destination { stream, addresses, placed: 0 });
    }

    /// Finishes the batch where the consumer wants it, if it named a place.
    pub fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let Some(mut destination) = locked(&self.destination).take() else { return Ok(()) };
        py.detach(|| finish(&self.batch, &mut destination)).map_err(|error| errors::of_device(&error))
    }

    /// Returns the finished batch, ready for the stream of a consumer of DLPack. Finishes it on that stream if no array
    /// of it was exported before.
    pub fn exported(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Arc<FinishedBatch>> {
        let stream = Stream::of(stream)?;
        let exported = py.detach(|| {
            let mut finished = locked(&self.finished);
            let is_new = finished.is_none();
            if is_new {
                // SAFETY: the consumer names one of its streams on this device, by the protocol.
                *finished = Some(Arc::new(unsafe { FinishedBatch::new(&self.batch, stream.handle())? }));
            }
            let finished = finished.as_ref().expect("finished above");
            match stream {
                // SAFETY: as above.
                Stream::Handle(handle) if !is_new => unsafe { finished.make_wait(handle)? },
                Stream::Handle(_) => {}
                Stream::Unsynchronised => finished.use_elsewhere(),
            }
            Ok(finished.clone())
        });
        exported.map_err(|error: CudaError| match errors::of_device(&error) {
            refused if matches!(error, CudaError::Capturing | CudaError::Finished) => {
                PyBufferError::new_err(refused.value(py).to_string())
            }
            failed => failed,
        })
    }
}

/// The stream of a consumer of DLPack.
#[derive(Clone, Copy)]
enum Stream {
    Handle(u64),
    /// The consumer synchronises with the legacy default stream itself.
    Unsynchronised,
}

impl Stream {
    /// Reads the argument `stream` of `__dlpack__`.
    fn of(stream: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(stream) = stream else { return Ok(Self::Handle(LEGACY_STREAM)) };
        if let Ok(-1) = stream.extract::<i64>() {
            return Ok(Self::Unsynchronised);
        }
        match stream.extract::<u64>() {
            Ok(handle) if handle > 0 => Ok(Self::Handle(handle)),
            _ => Err(PyBufferError::new_err(format!(
                "stream is {}, but must be a whole number: -1, {LEGACY_STREAM} (the legacy default stream), \
                 {PER_THREAD_STREAM} (the thread's default stream), or the handle of a stream",
                stream.repr()?
            ))),
        }
    }

    fn handle(self) -> u64 {
        match self {
            Self::Handle(handle) => handle,
            Self::Unsynchronised => LEGACY_STREAM,
        }
    }
}
