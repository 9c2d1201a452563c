//! The only module that calls C: a safe interface to the shim in `shim/`.
//!
//! An [`Object`] owns a libjpeg object. It borrows the file from [`open`](Object::open) until [`Opened`], whose
//! lifetime enforces that, is dropped. libjpeg's errors arrive as [`PixelError`], never as a jump.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use turbojpeg_sys as _;

use crate::error::{CorruptReason, PixelError};
use crate::limits::Limits;

/// Length of libjpeg's messages (`JMSG_LENGTH_MAX`).
const MESSAGE_LENGTH: usize = 200;

/// The values of libjpeg's `J_COLOR_SPACE` that are used here.
pub mod color_space {
    pub const GRAYSCALE: u32 = 1;
    pub const RGB: u32 = 2;
    pub const YCBCR: u32 = 3;
    pub const CMYK: u32 = 4;
    pub const YCCK: u32 = 5;
}

/// `struct ddlp_header`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct LibjpegHeader {
    pub width: u32,
    pub height: u32,
    pub components: u32,
    pub color_space: u32,
    pub precision: u32,
    pub progressive: u32,
    pub arithmetic: u32,
    pub multiple_scans: u32,
    pub restart_interval: u32,
    pub mcu_width: u32,
    pub mcu_height: u32,
    pub h_samp: [u32; 4],
    pub v_samp: [u32; 4],
    pub blocks_wide: [u32; 4],
    pub blocks_high: [u32; 4],
    pub coefficient_bytes: u64,
}

/// Makes blocks of a megabyte or more go back to the system when they are freed, from now on.
pub fn map_large_blocks() {
    // SAFETY: the function takes nothing, and any thread may call it at any time.
    unsafe { ddlp_map_large_blocks() }
}

impl LibjpegHeader {
    /// Returns the bytes that decoding to pixels needs for the whole image at once: 0, unless the image comes in
    /// several scans.
    pub fn whole_bytes(&self) -> u64 {
        if self.multiple_scans != 0 { self.coefficient_bytes } else { 0 }
    }
}

/// `struct ddlp_encode_params`.
#[repr(C)]
pub struct EncodeParams {
    pub width: u32,
    pub height: u32,
    pub components: u32,
    pub color_space: u32,
    pub h_samp: u32,
    pub v_samp: u32,
    pub quality: u32,
    pub progressive: u32,
    pub optimize: u32,
    pub restart_rows: u32,
    pub restart_mcus: u32,
    pub arithmetic: u32,
    app1: *const u8,
    app1_len: u32,
}

#[repr(C)]
struct Raw {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn ddlp_map_large_blocks();
    fn ddlp_new() -> *mut Raw;
    fn ddlp_free(jpeg: *mut Raw);
    fn ddlp_close(jpeg: *mut Raw);
    fn ddlp_message(jpeg: *const Raw) -> *const c_char;
    fn ddlp_warnings(jpeg: *const Raw) -> u32;
    fn ddlp_open(
        jpeg: *mut Raw,
        data: *const u8,
        len: usize,
        scans_max: u32,
        memory_max: u64,
        keep_markers: c_int,
        header: *mut LibjpegHeader,
    ) -> c_int;
    fn ddlp_start(jpeg: *mut Raw, x: *mut u32, width: *mut u32, skip_rows: u32) -> c_int;
    fn ddlp_rows(jpeg: *mut Raw, out: *mut u8, stride: usize, rows: u32) -> c_int;
    fn ddlp_coefficients(jpeg: *mut Raw, first_scan_only: c_int) -> c_int;
    fn ddlp_block_row(jpeg: *mut Raw, part: u32, row: u32, blocks: *mut *mut i16, quant: *mut *const u16) -> c_int;
    fn ddlp_rewrite(jpeg: *mut Raw, script: c_int, out: *mut *mut u8, len: *mut usize) -> c_int;
    fn ddlp_encode(
        params: *const EncodeParams,
        pixels: *const u8,
        stride: usize,
        out: *mut *mut u8,
        len: *mut usize,
        message: *mut c_char,
    ) -> c_int;
    fn ddlp_release(buffer: *mut u8);
}

/// A reusable decoder without a file.
pub struct Object {
    raw: NonNull<Raw>,
}

// SAFETY: the C side has no thread-local and no shared mutable state; an object is used through `&mut` only.
unsafe impl Send for Object {}

impl Object {
    pub fn new() -> Self {
        // SAFETY: allocates; a null pointer is handled.
        let raw = NonNull::new(unsafe { ddlp_new() });
        Self { raw: raw.unwrap_or_else(|| std::alloc::handle_alloc_error(std::alloc::Layout::new::<[usize; 128]>())) }
    }

    /// Reads a file's header. Set `keep_markers` if the file will be rewritten.
    pub fn open<'a>(
        &'a mut self,
        file: &'a [u8],
        limits: Limits,
        keep_markers: bool,
    ) -> Result<Opened<'a>, PixelError> {
        let mut header = LibjpegHeader::default();
        let raw = self.raw.as_ptr();
        // SAFETY: `raw` is live; `file` outlives `Opened`, which closes the object when it is dropped.
        let code = unsafe {
            let keep = c_int::from(keep_markers);
            ddlp_open(raw, file.as_ptr(), file.len(), limits.scans, limits.memory_bytes, keep, &mut header)
        };
        let opened = Opened { raw: self.raw, limits, header, columns: 0, rows_left: 0, _file: PhantomData };
        opened.check(code)?;
        Ok(opened)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: `raw` is live and not used again.
        unsafe { ddlp_free(self.raw.as_ptr()) }
    }
}

/// How much of a file is read for its coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The file up to its end marker.
    Whole,
    /// What decoding to pixels reads: of a file with one scan, the scan and nothing behind it; of any other file, all.
    FirstScan,
}

/// The scans of a file that is written from coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Script {
    /// One scan, or libjpeg's progressive scans if the source is progressive.
    AsSource = 0,
    /// One scan.
    Sequential = 1,
    /// libjpeg's progressive scans.
    Progressive = 2,
}

/// A decoder with a file.
pub struct Opened<'a> {
    raw: NonNull<Raw>,
    limits: Limits,
    pub header: LibjpegHeader,
    columns: u32,
    rows_left: u32,
    _file: PhantomData<(&'a mut Object, &'a [u8])>,
}

impl<'a> Opened<'a> {
    /// Starts decoding the columns `x..x + width` at row `y`, widened to what libjpeg can cut out. Returns the first
    /// column and the number of columns that [`rows`](Self::rows) will write.
    pub fn start(&mut self, x: u32, width: u32, y: u32) -> Result<(u32, u32), PixelError> {
        let (mut left, mut across) = (x, width);
        assert!(u64::from(x) + u64::from(width) <= u64::from(self.header.width) && width > 0 && y < self.header.height);
        // SAFETY: the object is open; libjpeg checks its own call order and reports a wrong one as an error.
        let code = unsafe { ddlp_start(self.raw.as_ptr(), &mut left, &mut across, y) };
        self.check(code)?;
        self.columns = across;
        self.rows_left = self.header.height - y;
        Ok((left, across))
    }

    /// Returns the bytes of a decoded pixel: 3 for RGB, 4 for inks.
    pub fn channels(&self) -> usize {
        if self.header.components == 4 { 4 } else { 3 }
    }

    /// Decodes the next rows, without gaps between them.
    pub fn rows(&mut self, out: &mut [u8], rows: u32) -> Result<(), PixelError> {
        let stride = self.columns as usize * self.channels();
        assert!(rows <= self.rows_left && out.len() >= stride * rows as usize);
        // SAFETY: `out` holds `rows` rows of the width that the started decoder writes.
        let code = unsafe { ddlp_rows(self.raw.as_ptr(), out.as_mut_ptr(), stride, rows) };
        self.rows_left -= rows;
        self.check(code)
    }

    /// Returns the number of warnings so far.
    pub fn warnings(&self) -> u32 {
        // SAFETY: `raw` is live.
        unsafe { ddlp_warnings(self.raw.as_ptr()) }
    }

    /// Decodes every scan into coefficients.
    pub fn into_coefficients(self, extent: Extent) -> Result<Coefficients<'a>, PixelError> {
        // SAFETY: the object is open.
        let code = unsafe { ddlp_coefficients(self.raw.as_ptr(), c_int::from(extent == Extent::FirstScan)) };
        self.check(code)?;
        Ok(Coefficients { opened: self })
    }

    fn check(&self, code: c_int) -> Result<(), PixelError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: `raw` is live; the text is terminated within the object.
        let message = unsafe { text(ddlp_message(self.raw.as_ptr())) };
        Err(error_of(code, message, self.limits))
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        // SAFETY: `raw` is live; closing twice does nothing.
        unsafe { ddlp_close(self.raw.as_ptr()) }
    }
}

/// Coefficients or quantisation steps of a block in natural order: vertical frequencies by row, horizontal ones by
/// column.
pub type Block<T> = [T; 64];

/// One row of blocks of a component.
pub struct BlockRow<'a> {
    pub blocks: &'a mut [Block<i16>],
    /// Quantisation steps; `None` for a component without a scan.
    pub quant: Option<&'a Block<u16>>,
}

/// The quantised coefficients of a whole file.
pub struct Coefficients<'a> {
    pub opened: Opened<'a>,
}

impl Coefficients<'_> {
    /// Returns one row of blocks of a component, writable.
    pub fn block_row(&mut self, component: usize, row: u32) -> Result<BlockRow<'_>, PixelError> {
        let header = &self.opened.header;
        assert!(component < header.components.min(4) as usize && row < header.blocks_high[component]);
        let (mut blocks, mut quant) = (ptr::null_mut(), ptr::null());
        // SAFETY: the object holds coefficients; component and row exist.
        let code = unsafe { ddlp_block_row(self.opened.raw.as_ptr(), component as u32, row, &mut blocks, &mut quant) };
        self.opened.check(code)?;
        // SAFETY: libjpeg hands out `blocks_wide` blocks of 64 that stay in place until the next call, which needs the
        // same exclusive borrow; the quantisation table lives as long as the open object.
        unsafe {
            let wide = header.blocks_wide[component] as usize;
            let blocks = std::slice::from_raw_parts_mut(blocks.cast(), wide);
            Ok(BlockRow { blocks, quant: quant.cast::<Block<u16>>().as_ref() })
        }
    }

    /// Writes a file with the same coefficients and the source's other markers, Huffman-coded with tables of its own.
    /// Whatever the script, components that do not fit into one scan get a sequential scan each.
    pub fn rewrite(&mut self, script: Script) -> Result<Vec<u8>, PixelError> {
        let (mut out, mut len) = (ptr::null_mut(), 0);
        // SAFETY: the object holds coefficients.
        let code = unsafe { ddlp_rewrite(self.opened.raw.as_ptr(), script as c_int, &mut out, &mut len) };
        self.opened.check(code)?;
        // SAFETY: on success `out` is a buffer of `len` bytes that is ours.
        Ok(unsafe { take(out, len) })
    }
}

/// Input of [`encode`].
pub struct EncodeInput<'a> {
    /// Rows without gaps, of 1, 3 or 4 bytes a pixel.
    pub pixels: &'a [u8],
    /// Payload of an APP1 marker; empty for no marker.
    pub app1: &'a [u8],
}

impl EncodeParams {
    /// Returns parameters whose pointers are null until [`encode`] sets them.
    pub fn new(width: u32, height: u32, components: u32, color_space: u32) -> Self {
        Self {
            width,
            height,
            components,
            color_space,
            h_samp: 1,
            v_samp: 1,
            quality: 90,
            progressive: 0,
            optimize: 0,
            restart_rows: 0,
            restart_mcus: 0,
            arithmetic: 0,
            app1: ptr::null(),
            app1_len: 0,
        }
    }
}

/// Encodes pixels.
pub fn encode(mut params: EncodeParams, input: EncodeInput<'_>) -> Result<Vec<u8>, PixelError> {
    let stride = params.width as usize * params.components as usize;
    assert!(matches!(params.components, 1 | 3 | 4) && input.pixels.len() == stride * params.height as usize);
    assert!(input.app1.len() <= usize::from(u16::MAX) - 2);
    (params.app1, params.app1_len) = (input.app1.as_ptr(), input.app1.len() as u32);
    let (mut out, mut len) = (ptr::null_mut(), 0);
    let mut message: [c_char; MESSAGE_LENGTH] = [0; MESSAGE_LENGTH];
    // SAFETY: pixels and APP1 have the lengths that the parameters say; `message` has libjpeg's length.
    let code = unsafe { ddlp_encode(&params, input.pixels.as_ptr(), stride, &mut out, &mut len, message.as_mut_ptr()) };
    if code != 0 {
        // SAFETY: libjpeg terminates the message within its length.
        let message = unsafe { text(message.as_ptr()) };
        return Err(error_of(code, message, Limits::default()));
    }
    // SAFETY: on success `out` is a buffer of `len` bytes that is ours.
    Ok(unsafe { take(out, len) })
}

/// Copies a buffer of the C side and frees it.
///
/// # Safety
/// `buffer` holds `len` bytes and came from the shim.
unsafe fn take(buffer: *mut u8, len: usize) -> Vec<u8> {
    // SAFETY: as the caller promises.
    unsafe {
        let bytes = std::slice::from_raw_parts(buffer, len).to_vec();
        ddlp_release(buffer);
        bytes
    }
}

/// # Safety
/// `message` is terminated.
unsafe fn text(message: *const c_char) -> String {
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}

/// The shim's code for refused memory.
const NO_MEMORY: c_int = 100;

fn error_of(code: c_int, message: String, limits: Limits) -> PixelError {
    if code == NO_MEMORY {
        return PixelError::NoMemory { message };
    }
    match u8::try_from(code).ok().and_then(CorruptReason::from_code) {
        Some(CorruptReason::Truncated) => PixelError::Truncated { source: message.into() },
        Some(CorruptReason::TooManyScans) => PixelError::TooManyScans { limit: limits.scans },
        Some(CorruptReason::TooMuchMemory) => PixelError::TooMuchMemory { limit: limits.memory_bytes },
        Some(CorruptReason::Unsupported) => PixelError::Unsupported { message },
        _ => PixelError::Malformed { source: message.into() },
    }
}
