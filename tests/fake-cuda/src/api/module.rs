//! Modules, kernels and their launch.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::{driver_functions, peek, put, put_text, text};
use crate::code::{Code, Failure};
use crate::module::{Function, Module, compile, kernel_of};
use crate::session::Session;
use crate::stream::Work;

/// Options of cuModuleLoadDataEx.
const ERROR_LOG_BUFFER: c_int = 5;
const ERROR_LOG_BUFFER_SIZE_BYTES: c_int = 6;

/// Words in the array `extra` of cuLaunchKernel.
const LAUNCH_PARAM_END: u64 = 0;
const LAUNCH_PARAM_BUFFER_POINTER: u64 = 1;
const LAUNCH_PARAM_BUFFER_SIZE: u64 = 2;

/// Limits of a grid.
const GRID_MAX: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
const BLOCK_MAX: [u32; 3] = [1024, 1024, 64];

fn defect(code: Code, sentence: impl Into<String>) -> Failure {
    Failure::defect(code, sentence)
}

fn load(call: &mut Session, module: *mut u64, image: *const c_char, log: Option<(u64, usize)>) -> Result<(), Failure> {
    let context = call.context()?;
    call.check_capture()?;
    let image = text(image)?;
    let entries = match compile(image, call.settings.driver, call.settings.compute) {
        Ok(entries) => entries,
        Err((code, sentence)) => {
            if let Some((buffer, room)) = log {
                put_text(buffer as *mut u8, room, &sentence)?;
            }
            return Err(code.into());
        }
    };
    let handle = call.new_handle();
    put(module, handle)?;
    call.modules.insert(handle, Module { context, entries });
    Ok(())
}

/// Reads a launch's arguments, each into a word of its own.
fn arguments(sizes: &[usize], pointers: u64, extra: u64) -> Result<Vec<u64>, Failure> {
    let invalid = |sentence: String| defect(Code::INVALID_VALUE, sentence);
    let word = |at: u64| peek(at).map(u64::from_ne_bytes).ok_or_else(|| invalid(format!("{at:#x} cannot be read")));
    let value = |at: u64, size: usize| match size {
        8 => peek::<8>(at).map(u64::from_ne_bytes),
        4 => peek::<4>(at).map(|bytes| u32::from_ne_bytes(bytes).into()),
        2 => peek::<2>(at).map(|bytes| u16::from_ne_bytes(bytes).into()),
        _ => peek::<1>(at).map(|[byte]| byte.into()),
    };
    if pointers != 0 && extra != 0 {
        return Err(invalid("arguments come twice: kernelParams and extra".into()));
    }
    if pointers != 0 {
        let argument = |(at, &size): (usize, &usize)| {
            let pointer = word(pointers + 8 * at as u64)?;
            value(pointer, size)
                .ok_or_else(|| invalid(format!("argument {at} of {} cannot be read at {pointer:#x}", sizes.len())))
        };
        return sizes.iter().enumerate().map(argument).collect();
    }
    if extra == 0 {
        return if sizes.is_empty() { Ok(Vec::new()) } else { Err(invalid("there are no arguments".into())) };
    }
    let (mut buffer, mut size, mut at) = (None, None, extra);
    loop {
        match word(at)? {
            LAUNCH_PARAM_END => break,
            LAUNCH_PARAM_BUFFER_POINTER => buffer = Some(word(at + 8)?),
            LAUNCH_PARAM_BUFFER_SIZE => size = Some(word(word(at + 8)?)?),
            other => return Err(invalid(format!("extra has the unknown word {other}"))),
        }
        at += 16;
    }
    let (Some(buffer), Some(size)) = (buffer, size) else { return Err(invalid("extra lacks buffer or size".into())) };
    let mut end = 0;
    let places = sizes.iter().map(|&size| {
        let start = usize::next_multiple_of(end, size);
        end = start + size;
        (start, size)
    });
    let places: Vec<_> = places.collect();
    if size != end as u64 {
        return Err(invalid(format!("the arguments have {size} bytes, the kernel's parameters {end}")));
    }
    let argument = |(at, size): (usize, usize)| {
        value(buffer + at as u64, size).ok_or_else(|| invalid(format!("arguments cannot be read at {buffer:#x}")))
    };
    places.into_iter().map(argument).collect()
}

fn check_dimensions(grid: [u32; 3], block: [u32; 3], threads_max: u32) -> Result<(), Failure> {
    let is_in =
        |sizes: [u32; 3], limits: [u32; 3]| sizes.iter().zip(limits).all(|(&size, limit)| 0 < size && size <= limit);
    let threads: u64 = block.iter().map(|&size| u64::from(size)).product();
    if !is_in(grid, GRID_MAX) || !is_in(block, BLOCK_MAX) || threads > threads_max.into() {
        let sentence = format!("a grid of {grid:?} blocks of {block:?} threads; a block has at most {threads_max}");
        return Err(defect(Code::INVALID_VALUE, sentence));
    }
    Ok(())
}

driver_functions! {
    fn cuModuleLoadData(module: *mut u64, image: *const c_char) Init |call| {
        load(call, module, image, None)?;
    }

    fn cuModuleLoadDataEx(
        module: *mut u64,
        image: *const c_char,
        count: c_uint,
        options: *const c_int,
        values: *const *mut c_void,
    ) Init |call| {
        let (mut buffer, mut room) = (0, 0);
        for at in 0..u64::from(count) {
            let option = peek(options as u64 + 4 * at).map(c_int::from_ne_bytes);
            let value = peek(values as u64 + 8 * at).map(u64::from_ne_bytes);
            let (Some(option), Some(value)) = (option, value) else {
                return Err(defect(Code::INVALID_VALUE, "options cannot be read"));
            };
            match option {
                ERROR_LOG_BUFFER => buffer = value,
                ERROR_LOG_BUFFER_SIZE_BYTES => room = value as usize,
                _ => {}
            }
        }
        load(call, module, image, (buffer != 0 && room > 0).then_some((buffer, room)))?;
    }

    fn cuModuleUnload(module: u64) Init |call| {
        call.context()?;
        if call.modules.remove(&module).is_none() {
            return Err(defect(Code::INVALID_HANDLE, format!("{module:#x} is no module")));
        }
        call.functions.retain(|_, function| function.module != module);
    }

    fn cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char) Init |call| {
        let context = call.context()?;
        let name = text(name)?;
        let found = call.modules.get(&module).filter(|module| module.context == context);
        let missing = || defect(Code::INVALID_HANDLE, format!("{module:#x} is no module of the context"));
        let found = found.ok_or_else(missing)?;
        let entry = found.entries.iter().find(|entry| entry.name == name).ok_or(Code::NOT_FOUND)?.clone();
        let kernel = kernel_of(&entry).map_err(|sentence| defect(Code::NOT_FOUND, sentence))?;
        let handle = call.new_handle();
        put(function, handle)?;
        call.functions.insert(handle, Function { context, module, entry, kernel });
    }

    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: u64) Init |call| {
        call.context()?;
        let found = call.functions.get(&function);
        let found = found.ok_or_else(|| defect(Code::INVALID_HANDLE, format!("{function:#x} is no function")))?;
        match attribute {
            0 => put(value, found.entry.threads_max as c_int)?,
            // The stand-in does not know the sizes of shared and local memory, or the number of registers.
            1..=4 => put(value, 0)?,
            _ => return Err(Code::INVALID_VALUE.into()),
        }
    }

    fn cuLaunchKernel(
        function: u64,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: u64,
        pointers: u64,
        extra: u64,
    ) Init |call| {
        let context = call.context()?;
        let stream = call.stream(stream)?;
        let found = call.functions.get(&function).filter(|function| function.context == context);
        let missing = || defect(Code::INVALID_HANDLE, format!("{function:#x} is no function of the context"));
        let found = found.ok_or_else(missing)?;
        let (kernel, sizes, threads_max) = (found.kernel, found.entry.parameters.clone(), found.entry.threads_max);
        let dimensions = [[grid_x, grid_y, grid_z], [block_x, block_y, block_z]];
        check_dimensions(dimensions[0], dimensions[1], threads_max)?;
        if shared_bytes != 0 {
            return Err(defect(Code::INVALID_VALUE, "the stand-in has no dynamic shared memory"));
        }
        let arguments = arguments(&sizes, pointers, extra)?;
        call.statistics.launches += 1;
        call.queue(stream, Work::Launch { kernel, dimensions, arguments });
    }
}
