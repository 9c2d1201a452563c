//! The survey as text for people.

use super::advice::{self, Advice};
use super::facts::{Device, KernelPart, Namespace};
use super::survey::{DeviceSurvey, SurveyedDrive};
use crate::kernel::Module;
use crate::text;
use std::fmt::Write;

/// Longest value in a line.
const VALUE_CHARS_MAX: usize = 100;

impl DeviceSurvey {
    /// Describes all drives; then each other controller in one line, or, with `all`, in full.
    pub fn to_text(&self, all: bool) -> String {
        let mut out = String::new();
        for drive in &self.drives {
            drive.to_text(&mut out);
            out.push('\n');
        }
        if self.drives.is_empty() {
            nothing(&mut out, &self.kernel);
        } else if let Some(nqn) = &self.kernel.host_nqn {
            let _ = writeln!(out, "this host's NQN, by which drives on a network know it: {}\n", text::printable(nqn));
        }
        self.others_to_text(&mut out, all);
        while out.ends_with("\n\n") {
            out.pop();
        }
        out
    }

    fn others_to_text(&self, out: &mut String, all: bool) {
        if self.others.is_empty() {
            return;
        }
        out.push_str("not DDLP drives:\n");
        for device in &self.others {
            if all {
                device.title(out);
                device.rows(out);
                out.push('\n');
            } else {
                let _ = writeln!(out, "  {}", device.line());
            }
        }
    }
}

/// Says what to do on a machine without a drive.
fn nothing(out: &mut String, kernel: &KernelPart) {
    let _ = writeln!(out, "no DDLP drive is known to this machine's kernel ({})", text::printable(&kernel.release));
    let module = match kernel.nvme_tcp {
        Module::Loaded => "loaded",
        Module::Available => "not loaded",
        Module::Missing => "not installed",
    };
    row(out, "nvme-tcp", module);
    if let Some(remedy) = advice::module_remedy(kernel.nvme_tcp, &kernel.release) {
        row(out, "to do", &remedy);
    }
    if let Some(nqn) = &kernel.host_nqn {
        row(out, "this host", &text::printable(nqn));
    }
    out.push_str("\nto get one:\n");
    if kernel.nvme_tcp != Module::Missing {
        way_to(
            out,
            "a drive on the network, as a device of this kernel; its agent prints its NQN (leave out \
             --fast_io_fail_tmo if nvme-cli does not know it)",
            &kernel.connect,
        );
    }
    way_to(out, "a drive on the network, without kernel and root", "ddlp run DATASET --drive tcp://HOST:PORT/NQN");
    way_to(out, "a drive on this machine, started for the run: nothing to set up", "ddlp run DATASET");
    out.push('\n');
}

/// Writes one way to get a drive, with its command.
fn way_to(out: &mut String, what: &str, command: &str) {
    let _ = writeln!(out, "  {what}\n    {command}");
}

impl SurveyedDrive {
    fn to_text(&self, out: &mut String) {
        self.device.title(out);
        let usable = if self.usable {
            format!("yes: ddlp run DATASET --drive {}", self.device.node.path.display())
        } else {
            "no".to_string()
        };
        row(out, "usable", &usable);
        for problem in &self.problems {
            finding(out, "problem", problem);
        }
        for warning in &self.warnings {
            finding(out, "warning", warning);
        }
        self.device.rows(out);
        if !self.other_paths.is_empty() {
            row(out, "also through", &self.other_paths.join(", "));
        }
        for (at, way) in self.ways.iter().enumerate() {
            let name = if at == 0 { "this user can" } else { "" };
            let answer = match &way.missing {
                None => "yes".to_string(),
                Some(missing) => format!("no: {missing}"),
            };
            row(out, name, &format!("{:<23}{answer}", way.way));
        }
    }
}

impl Device {
    fn title(&self, out: &mut String) {
        let firmware = text::printable(&self.firmware);
        let (model, serial) = (text::printable(&self.model), text::printable(&self.serial));
        let _ = writeln!(out, "{}  {model}, firmware {firmware}, serial number {serial}", self.node.path.display());
    }

    fn line(&self) -> String {
        let model = text::printable(&self.model);
        format!("{}  {model}, {}, {}", self.node.path.display(), self.place(), text::printable(&self.state))
    }

    fn rows(&self, out: &mut String) {
        row(out, "nqn", &text::printable(&self.nqn));
        row(out, "reached by", &self.place());
        row(out, "state", &self.state_text());
        for (at, namespace) in self.namespaces.iter().enumerate() {
            row(out, if at == 0 { "namespaces" } else { "" }, &namespace.to_text());
        }
    }

    /// Returns transport and address.
    fn place(&self) -> String {
        match (&self.traddr, &self.trsvcid) {
            (Some(address), Some(port)) => text::printable(&format!("{} at {address}, port {port}", self.transport)),
            _ => text::printable(&format!("{} at {}", self.transport, self.address)),
        }
    }

    /// Returns the state, and what the kernel does when the drive is lost.
    fn state_text(&self) -> String {
        let mut parts = vec![text::printable(&self.state)];
        if let Some(seconds) = self.keep_alive_s {
            parts.push(format!("keep alive {seconds} s"));
        }
        if let (Some(delay), true) = (self.reconnect_delay_s, self.is_fabric()) {
            let end = self.ctrl_loss_s.map_or("for ever".to_string(), |seconds| format!("for {seconds} s"));
            parts.push(format!("reconnects every {delay} s {end}"));
        }
        if let Some(seconds) = self.fast_io_fail_s {
            parts.push(format!("commands fail {seconds} s after a loss"));
        }
        parts.join(", ")
    }
}

impl Namespace {
    fn to_text(&self) -> String {
        let size = if self.bytes > 0 { text::bytes(self.bytes) } else { "–".to_string() };
        let nodes = [&self.block, &self.generic].into_iter().flatten();
        let nodes: Vec<String> = nodes.map(|node| node.path.display().to_string()).collect();
        let nodes = if nodes.is_empty() { "no nodes".to_string() } else { nodes.join("  ") };
        format!("{:<3}{:<9}{size:>9}   {nodes}", self.nsid, self.role.unwrap_or_default())
    }
}

fn finding(out: &mut String, name: &str, finding: &Advice) {
    row(out, name, &text::printable(&finding.what));
    for (at, remedy) in finding.remedies.iter().enumerate() {
        for (line, text) in remedy.lines().enumerate() {
            let name = match (at, line) {
                (0, 0) => "  to do",
                (_, 0) => "  or",
                _ => "",
            };
            row(out, name, &text::printable(text));
        }
    }
}

/// Writes a value beside its name; a long value continues on the next line.
fn row(out: &mut String, name: &str, value: &str) {
    let mut name = name;
    let mut rest = value;
    loop {
        let (line, after) = split(rest);
        let _ = writeln!(out, "  {name:<15}{line}");
        if after.is_empty() {
            return;
        }
        (name, rest) = ("", after);
    }
}

/// Splits off the words that fit into a line. A word that does not fit has a line of its own.
fn split(text: &str) -> (&str, &str) {
    let mut end = None;
    for (chars, (at, c)) in text.char_indices().enumerate() {
        if chars > VALUE_CHARS_MAX && end.is_some() {
            break;
        }
        if c == ' ' {
            end = Some(at);
        }
    }
    match end {
        Some(end) if text.chars().count() > VALUE_CHARS_MAX => (&text[..end], &text[end + 1..]),
        _ => (text, ""),
    }
}
