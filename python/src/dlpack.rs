//! DLPack: the array as a capsule that other libraries take over without a copy.
//!
//! The structures are those of DLPack's specification, versions 0.8 (unversioned) and 1.0 (versioned).

#![allow(unsafe_code)]

use crate::array::Array;
use ddlp_cuda::FinishedBatch;
use ddlp_host::{DType, SharedField};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Number of the device type for the CPU's memory, and the device.
pub const CPU: (i32, i32) = (1, 0);

/// Returns the name of a device, from its type and number.
pub fn name(device: (i32, i32)) -> String {
    if device == CPU { "the CPU".into() } else { format!("the GPU cuda:{}", device.1) }
}

/// Owner of the memory of an exported array. The consumer drops it on any thread, without the interpreter's lock.
pub enum Owner {
    Host(SharedField),
    /// A batch on a device, and the field's place in it.
    Device(Arc<FinishedBatch>, usize),
}

impl Owner {
    /// Returns the address of the first element, which stays valid while the value exists.
    fn data(&self) -> *mut c_void {
        match self {
            Self::Host(field) => field.as_ptr().cast_mut().cast(),
            Self::Device(batch, field) => ptr::without_provenance_mut(batch.address(*field) as usize),
        }
    }
}

const FLAG_READ_ONLY: u64 = 1;

#[repr(C)]
struct Device {
    kind: i32,
    number: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    dtype: DataType,
    shape: *mut i64,
    /// In elements.
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Unversioned {
    tensor: Tensor,
    context: *mut c_void,
    delete: unsafe extern "C" fn(*mut Self),
}

#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    delete: unsafe extern "C" fn(*mut Self),
    flags: u64,
    tensor: Tensor,
}

/// Owner of the memory, shape and strides of an exported tensor.
struct Context {
    _owner: Owner,
    shape: Box<[i64]>,
    strides: Box<[i64]>,
}

/// The two kinds of managed tensors.
trait Managed: Sized {
    /// Name of a capsule that nobody has taken over.
    const NAME: &'static CStr;

    fn context(&self) -> *mut c_void;
}

impl Managed for Unversioned {
    const NAME: &'static CStr = c"dltensor";

    fn context(&self) -> *mut c_void {
        self.context
    }
}

impl Managed for Versioned {
    const NAME: &'static CStr = c"dltensor_versioned";

    fn context(&self) -> *mut c_void {
        self.context
    }
}

/// Exports an array for consumers of DLPack before 1.0, which cannot know that an array is read-only.
pub fn unversioned<'py>(py: Python<'py>, array: &Array, owner: Owner) -> PyResult<Bound<'py, PyCapsule>> {
    let (tensor, context) = export(array, owner);
    capsule(py, Unversioned { tensor, context, delete: delete::<Unversioned> })
}

/// Exports an array for consumers of DLPack 1.0 and later.
pub fn versioned<'py>(py: Python<'py>, array: &Array, owner: Owner) -> PyResult<Bound<'py, PyCapsule>> {
    let (tensor, context) = export(array, owner);
    let flags = if array.is_writable() { 0 } else { FLAG_READ_ONLY };
    capsule(py, Versioned { major: 1, minor: 0, context, delete: delete::<Versioned>, flags, tensor })
}

/// Describes an array. The context owns what the tensor points to.
fn export(array: &Array, owner: Owner) -> (Tensor, *mut c_void) {
    let (data, (kind, number)) = (owner.data(), array.device());
    let mut context = Box::new(Context {
        _owner: owner,
        shape: array.shape.iter().map(|&size| size as i64).collect(),
        strides: array.element_strides().map(|stride| stride as i64).collect(),
    });
    let (code, bits) = match array.dtype {
        DType::I64 => (0, 64),
        DType::U8 => (1, 8),
        DType::Bf16 => (4, 16),
        float => (2, 8 * float.bytes() as u8),
    };
    let tensor = Tensor {
        data,
        device: Device { kind, number },
        dimensions: context.shape.len() as i32,
        dtype: DataType { code, bits, lanes: 1 },
        shape: context.shape.as_mut_ptr(),
        strides: context.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    (tensor, Box::into_raw(context).cast())
}

fn capsule<M: Managed>(py: Python<'_>, managed: M) -> PyResult<Bound<'_, PyCapsule>> {
    let pointer = NonNull::from(Box::leak(Box::new(managed)));
    // SAFETY: the pointer stays valid until the capsule's destructor or, if a consumer took the tensor over, the
    // consumer deletes it. Both may happen on any thread: the owner is Send.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer.cast(), M::NAME, Some(destroy::<M>)) }
}

/// Deletes the tensor of a capsule that nobody took over.
unsafe extern "C" fn destroy<M: Managed>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with a capsule that `capsule` made. A consumer that takes the tensor over renames the
    // capsule, and then deletes the tensor itself.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr()).cast::<M>());
        }
    }
}

/// Frees a tensor and gives up its share of the memory.
unsafe extern "C" fn delete<M: Managed>(managed: *mut M) {
    // SAFETY: `capsule` and `export` made both boxes, and the specification allows one call.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context().cast::<Context>()));
    }
}
