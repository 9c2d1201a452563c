//! A field of a batch as an array that other libraries view without a copy.

#![allow(unsafe_code)]

use crate::device::DeviceBatch;
use crate::dlpack::{self, Owner};
use ddlp_host::{DType, FieldView, SharedField};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyCapsule, PyDict, PyTuple};
use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::Arc;

/// One field of a batch: an array in the loader's own memory.
///
/// Supports the buffer protocol (`numpy.asarray`, `memoryview`) and DLPack (`torch.from_dlpack`, `numpy.from_dlpack`,
/// `jax.dlpack.from_dlpack`). No view copies. The batch's buffer returns to the loader when the array and its views are
/// gone.
///
/// An array on a GPU supports DLPack alone. The first export of an array of a batch makes the elements of the whole
/// batch, on the stream that the consumer names and in memory that belongs to the batch.
#[pyclass(frozen, module = "ddlp")]
pub struct Array {
    memory: Memory,
    pub(crate) dtype: DType,
    /// Elements along each dimension.
    pub(crate) shape: Box<[isize]>,
    /// Bytes from one element to the next along each dimension.
    strides: Box<[isize]>,
}

/// Where the elements of an array lie.
enum Memory {
    Host(SharedField),
    /// On a device: the batch, and the field's place among the batch's fields.
    Device(Arc<DeviceBatch>, usize),
}

impl Array {
    /// Makes an array of a field in this process's memory.
    pub fn new(field: FieldView<'_>) -> Self {
        Self::of(&field, Memory::Host(field.share()))
    }

    /// Makes an array of a field on a device. `at` is the field's place among the batch's fields.
    pub fn on_device(field: FieldView<'_>, batch: Arc<DeviceBatch>, at: usize) -> Self {
        Self::of(&field, Memory::Device(batch, at))
    }

    fn of(view: &FieldView<'_>, memory: Memory) -> Self {
        let dtype = view.dtype();
        let shape = view.shape().into_iter().map(usize::cast_signed).collect();
        let strides = view.strides().into_iter().map(|stride| (stride * dtype.bytes()).cast_signed()).collect();
        Self { memory, dtype, shape, strides }
    }

    /// Returns type and number of the device.
    pub(crate) fn device(&self) -> (i32, i32) {
        match &self.memory {
            Memory::Host(_) => dlpack::CPU,
            Memory::Device(batch, _) => batch.device(),
        }
    }

    /// Returns whether views may be written to.
    pub(crate) fn is_writable(&self) -> bool {
        match &self.memory {
            Memory::Host(field) => field.writable().is_some(),
            Memory::Device(..) => true,
        }
    }

    /// Returns the field, if this process can read it.
    fn on_host(&self) -> PyResult<&SharedField> {
        match &self.memory {
            Memory::Host(field) => Ok(field),
            Memory::Device(batch, _) => Err(PyBufferError::new_err(format!(
                "the array lies on the GPU cuda:{}, where neither Python's buffers nor NumPy reach: use DLPack \
                 (torch.from_dlpack, jax.dlpack.from_dlpack)",
                batch.device().1
            ))),
        }
    }

    /// Returns the strides in elements.
    pub(crate) fn element_strides(&self) -> impl Iterator<Item = isize> {
        let size = self.dtype.bytes().cast_signed();
        self.strides.iter().map(move |stride| stride / size)
    }

    fn elements(&self) -> isize {
        self.shape.iter().product()
    }

    /// Returns whether the elements lie in the order of their indices, the last one changing fastest.
    fn is_contiguous(&self) -> bool {
        let mut expected = self.dtype.bytes().cast_signed();
        self.elements() == 0
            || self.shape.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
                let fits = size <= 1 || stride == expected;
                expected *= size;
                fits
            })
    }

    /// Returns the format of an element as Python's module `struct` writes it.
    fn format(&self) -> PyResult<&'static CStr> {
        match self.dtype {
            DType::U8 => Ok(c"B"),
            DType::F16 => Ok(c"e"),
            DType::F32 => Ok(c"f"),
            DType::I64 => Ok(c"q"),
            other => Err(PyBufferError::new_err(format!(
                "Python's buffers and NumPy have no {other}: use DLPack (output=\"torch\" or \"dlpack\"), or another \
                 dtype"
            ))),
        }
    }
}

#[pymethods]
impl Array {
    /// Number of elements along each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Bytes from one element to the next along each dimension.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.strides)
    }

    /// Name of the elements' type, as NumPy and PyTorch call it.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// Whether views may be written to.
    #[getter]
    fn writable(&self) -> bool {
        self.is_writable()
    }

    fn __repr__(&self) -> String {
        format!("ddlp.Array(shape={:?}, dtype={})", self.shape, self.dtype)
    }

    fn __len__(&self) -> usize {
        self.shape[0].unsigned_abs()
    }

    /// Refuses what no buffer of Python can hold: NumPy asks for this if an array has no buffer.
    #[pyo3(signature = (*_arguments, **_options))]
    fn __array__(&self, _arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> PyResult<Py<PyAny>> {
        let refused = self.on_host().err().or_else(|| self.format().err());
        Err(refused.unwrap_or_else(|| PyBufferError::new_err("NumPy gets an array by its buffer: numpy.asarray")))
    }

    /// Returns the device as DLPack numbers it: (1, 0) is the CPU, (2, N) the GPU cuda:N.
    fn __dlpack_device__(&self) -> (i32, i32) {
        self.device()
    }

    /// Exports the array as a DLPack capsule. Of an array on a GPU, `stream` is the consumer's stream: None or 1 is the
    /// legacy default stream, 2 the thread's default stream, a larger number the handle of a stream. With -1, the
    /// consumer synchronises with the legacy default stream itself.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let refused = |why: &str| Err(PyBufferError::new_err(why.to_string()));
        if dl_device.is_some_and(|device| device != self.device()) {
            return refused(&format!("the array lies on {}", dlpack::name(self.device())));
        }
        if copy == Some(true) {
            return refused("the array makes no copies: copy the view");
        }
        let owner = match &self.memory {
            Memory::Host(_) if stream.is_some() => {
                return refused("the array lies in the CPU's memory, which has no streams");
            }
            Memory::Host(field) => Owner::Host(field.clone()),
            Memory::Device(batch, at) => Owner::Device(batch.exported(py, stream.as_ref())?, *at),
        };
        match max_version {
            Some((major, _)) if major >= 1 => dlpack::versioned(py, self, owner),
            _ if self.is_writable() => dlpack::unversioned(py, self, owner),
            _ => refused("the array is read-only, which DLPack before 1.0 cannot express: copy it (numpy.array)"),
        }
    }

    /// Fills a view for the buffer protocol.
    ///
    /// # Safety
    ///
    /// Python calls this with a valid `view`.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: `view` is valid. A view that is refused has no owner.
        unsafe { (*view).obj = ptr::null_mut() };
        let array = slf.get();
        let asks = |what: c_int| flags & what == what;
        let (field, format) = (array.on_host()?, array.format()?);
        if asks(ffi::PyBUF_WRITABLE) && !array.is_writable() {
            return Err(PyBufferError::new_err("the array is read-only"));
        }
        let needs_order = !asks(ffi::PyBUF_STRIDES) || asks(ffi::PyBUF_C_CONTIGUOUS) || asks(ffi::PyBUF_ANY_CONTIGUOUS);
        if (needs_order || asks(ffi::PyBUF_F_CONTIGUOUS)) && !array.is_contiguous()
            || asks(ffi::PyBUF_F_CONTIGUOUS) && array.shape.len() > 1
        {
            return Err(PyBufferError::new_err(
                "the elements of the array do not lie in the order that the view needs",
            ));
        }
        let or_null = |wanted: bool, pointer: *mut isize| if wanted { pointer } else { ptr::null_mut() };
        let size = array.dtype.bytes().cast_signed();
        // SAFETY: `view` is valid. The pointers lead into the array, which the view's reference to it keeps alive and
        // which never changes, and to a constant; Python only reads through them.
        unsafe {
            *view = ffi::Py_buffer {
                buf: field.as_ptr().cast_mut().cast(),
                len: array.elements() * size,
                itemsize: size,
                readonly: c_int::from(!array.is_writable()),
                ndim: array.shape.len() as c_int,
                format: if asks(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { ptr::null_mut() },
                shape: or_null(asks(ffi::PyBUF_ND), array.shape.as_ptr().cast_mut()),
                strides: or_null(asks(ffi::PyBUF_STRIDES), array.strides.as_ptr().cast_mut()),
                suboffsets: ptr::null_mut(),
                internal: ptr::null_mut(),
                obj: slf.clone().into_any().into_ptr(),
            };
        }
        Ok(())
    }
}
