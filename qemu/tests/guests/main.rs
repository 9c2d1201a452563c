//! What needs a kernel or an ARM machine: the same pixels and verdicts on both architectures, stock tools under two kernels,
//! epochs from both ends that survive a drive without power and a cut network, the Debian package on a system with systemd.
//!
//! They run when `DDLP_QEMU=1` asks for them: each boots guests under QEMU, and all together take minutes.

mod epochs;
mod package;
mod pixels;
mod runner;
mod stock_tools;
mod support;
mod verdicts;
