//! Modules and the kernels in them.

use crate::code::Code;
use crate::ptx::{Entry, Ptx};
use crate::twin::Kernel;

/// A loaded module.
pub(crate) struct Module {
    pub context: u64,
    pub entries: Vec<Entry>,
}

/// A kernel of a loaded module.
pub(crate) struct Function {
    pub context: u64,
    pub module: u64,
    pub entry: Entry,
    pub kernel: &'static Kernel,
}

/// The newest PTX that drivers of each version of CUDA compile.
const PTX_VERSIONS: [(i32, (u32, u32)); 14] = [
    (11_000, (7, 0)),
    (11_080, (7, 8)),
    (12_000, (8, 0)),
    (12_010, (8, 1)),
    (12_020, (8, 2)),
    (12_030, (8, 3)),
    (12_040, (8, 4)),
    (12_050, (8, 5)),
    (12_070, (8, 6)),
    (12_080, (8, 7)),
    (12_090, (8, 8)),
    (13_000, (9, 0)),
    (13_010, (9, 1)),
    (i32::MAX, (99, 0)),
];

/// Compiles a module for a device. Fails with what the driver answers, and a sentence.
pub(crate) fn compile(text: &str, driver: i32, compute: u32) -> Result<Vec<Entry>, (Code, String)> {
    let Ptx { version, target, entries } = Ptx::parse(text)?;
    let newest = PTX_VERSIONS.iter().rev().find(|(from, _)| *from <= driver).map_or((6, 0), |(_, newest)| *newest);
    if version > newest {
        let (major, minor) = version;
        let sentence = format!("PTX {major}.{minor} needs a newer driver than that of CUDA {driver}");
        return Err((Code::UNSUPPORTED_PTX_VERSION, sentence));
    }
    if target > compute {
        return Err((Code::NO_BINARY_FOR_GPU, format!("the PTX is for sm_{target}, the device is sm_{compute}")));
    }
    Ok(entries)
}

/// Returns the CPU's version of a kernel. Returns a message if no such version exists or its parameters differ.
pub(crate) fn kernel_of(entry: &Entry) -> Result<&'static Kernel, String> {
    let name = &entry.name;
    let kernel = Kernel::named(name).ok_or_else(|| format!("the stand-in has no source of the kernel {name}"))?;
    let (source, ptx) = (kernel.parameters(), &entry.parameters);
    if source != *ptx {
        return Err(format!("{name} has parameters of {ptx:?} bytes in the PTX, and of {source:?} in its source"));
    }
    Ok(kernel)
}
