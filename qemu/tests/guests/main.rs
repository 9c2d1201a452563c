//! Tests that need a kernel or an ARM machine: the same pixels and verdicts on both architectures, stock tools under
//! two kernels, epochs from both ends that survive a power cut and a cut network, a dataset that the drive alone holds,
//! the Debian package on a system with systemd.
//!
//! They run only with `DDLP_QEMU=1`, since each boots guests under QEMU. All together take 20 minutes; `brief` tests
//! most of it in two boots.

mod alone;
mod brief;
mod epochs;
mod package;
mod pixels;
mod runner;
mod stock_tools;
mod support;
mod verdicts;
