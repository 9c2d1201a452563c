//! What needs a kernel or an ARM machine: the same pixels and verdicts on both architectures, stock tools under two kernels,
//! epochs from both ends that survive a drive without power and a cut network, the Debian package on a system with systemd.
//!
//! They run when `DDLP_QEMU=1` asks for them: each boots guests under QEMU. All together take 20 minutes; `brief` has the most of it in
//! three boots.

mod brief;
mod epochs;
mod package;
mod pixels;
mod runner;
mod stock_tools;
mod support;
mod verdicts;
