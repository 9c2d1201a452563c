//! What `ddlp top` shows to people.

use super::now::{AgentNow, LoaderNow, Programs, StoreNow, Whose};
use crate::{output, text};
use console::Term;
use std::fmt::Write;
use std::io::IsTerminal;

/// Escape sequences: to the upper left corner; clear the rest of the line; clear the rest of the screen; clear all.
const HOME: &str = "\u{1b}[H";
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";
const CLEAR: &str = "\u{1b}[2J";
/// Columns of a prong's name.
const NAME_CHARS: usize = 24;

/// A terminal that is drawn anew, or any other output, to which each picture is added.
pub struct Screen {
    terminal: Option<Term>,
    is_drawn: bool,
}

impl Screen {
    /// `once` says whether there will be a single picture.
    pub fn new(once: bool) -> Self {
        let is_drawn_anew = !once && std::io::stdout().is_terminal();
        Self { terminal: is_drawn_anew.then(Term::stdout), is_drawn: false }
    }

    /// Shows the programs in place of those that it has shown last.
    pub fn show(&mut self, programs: &Programs) -> anyhow::Result<()> {
        let picture = picture(programs);
        let Some(terminal) = &self.terminal else { return output::print(&picture) };
        let (rows, columns) = terminal.size();
        let mut drawn = if self.is_drawn { HOME.to_owned() } else { format!("{CLEAR}{HOME}") };
        for line in picture.lines().take(usize::from(rows).saturating_sub(1)) {
            let line = console::truncate_str(line, columns.into(), "…");
            let _ = write!(drawn, "{line}{CLEAR_LINE}\r\n");
        }
        self.is_drawn = true;
        output::print(&(drawn + CLEAR_BELOW))
    }
}

fn picture(programs: &Programs) -> String {
    let Programs { loaders, agents, silent } = programs;
    if loaders.is_empty() && agents.is_empty() && silent.is_empty() {
        return "no loader or agent of this user runs on this machine; --metrics ADDR shows others\n".to_owned();
    }
    let mut lines = Vec::new();
    loaders.iter().for_each(|loader| show_loader(&mut lines, loader));
    agents.iter().for_each(|agent| show_agent(&mut lines, agent));
    for program in silent {
        lines.push(format!("{}: {}", name("no answer from", &program.whose), program.why));
    }
    lines.join("\n") + "\n"
}

fn show_loader(lines: &mut Vec<String>, loader: &LoaderNow) {
    lines.push(name("loader", &loader.whose));
    let [delivered, batches] = [loader.epoch_delivered, loader.epoch_batches].map(text::count);
    let waits = match loader.waits {
        _ if loader.is_stalled => "STALLED: waits 100 %".to_owned(),
        Some(share) => format!("waits {}", text::percent(share)),
        None => "waits –".to_owned(),
    };
    let mut parts = vec![
        format!("epoch {}: {delivered} of {batches} batches", loader.epoch),
        format!("{} images/s", shown(loader.images_per_s)),
        waits,
        format!("{} ready", text::plural(loader.ready_batches, "batch")),
        format!("{} free", text::plural(loader.free_buffers, "buffer")),
    ];
    parts.extend(troubles(loader.faults, "fault", loader.corrupt_samples));
    lines.push(format!("  {}", parts.join(", ")));
    lines.extend(loader.store.as_ref().map(store_line));
    lines.push(format!("  {:NAME_CHARS$} {:>12} {:>12} {:>8}", "prong", "delivered/s", "prepared/s", "in work"));
    for prong in &loader.prongs {
        let name = text::ending(&text::prong_name(&prong.name), NAME_CHARS);
        let [delivered, prepared] = [prong.images_per_s, prong.prepared_per_s].map(shown);
        let away = if prong.is_up { "" } else { "  away" };
        let in_work = prong.in_work;
        lines.push(format!("  {name:NAME_CHARS$} {delivered:>12} {prepared:>12} {in_work:>8}{away}"));
    }
}

fn store_line(store: &StoreNow) -> String {
    let mb_per_s = store.bytes_per_s.map(|bytes| bytes / 1e6);
    let depth = store.depth.map(|depth| format!(" of at most {} samples", text::count(depth)));
    let mut parts = vec![
        format!("{} requests/s", shown(store.requests_per_s)),
        format!("{} MB/s", shown(mb_per_s)),
        format!("{} in flight{}", text::count(store.in_flight), depth.unwrap_or_default()),
    ];
    if let (Some(half), Some(most)) = (store.half_within_ms, store.most_within_ms) {
        parts.push(format!("half within {half:.0} ms, 99 % within {most:.0} ms"));
    }
    parts.extend((store.retries > 0).then(|| format!("{} made again", text::count(store.retries))));
    parts.extend((store.pushed_back > 0).then(|| format!("{} as the store was busy", text::count(store.pushed_back))));
    format!("  store: {}", parts.join(", "))
}

fn show_agent(lines: &mut Vec<String>, agent: &AgentNow) {
    lines.push(name("agent", &agent.whose));
    let mut parts = vec![
        format!("{} samples/s", shown(agent.samples_per_s)),
        format!("{} cores", shown(agent.cores)),
        format!("{} in work", text::plural(agent.in_work, "batch")),
        text::plural(agent.connections, "connection"),
    ];
    parts.extend(troubles(agent.errors, "error", agent.corrupt_samples));
    lines.push(format!("  {}", parts.join(", ")));
}

fn troubles(count: u64, noun: &str, corrupt: u64) -> impl Iterator<Item = String> {
    let faults = (count > 0).then(|| text::plural(count, noun));
    let corrupt = (corrupt > 0).then(|| format!("{} corrupt", text::count(corrupt)));
    faults.into_iter().chain(corrupt)
}

fn shown(rate: Option<f64>) -> String {
    rate.map_or_else(|| "–".to_owned(), text::figure)
}

fn name(kind: &str, whose: &Whose) -> String {
    let process = whose.process.map(|process| process.to_string());
    [Some(kind.to_owned()), process, whose.command.clone(), whose.address.clone()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::now::{ProngNow, Silent};
    use super::*;

    #[test]
    fn a_picture_names_programs_rates_queues_and_stalls() {
        let prong = |name: &str, rate, is_up| ProngNow {
            name: name.to_owned(),
            images_per_s: rate,
            prepared_per_s: rate,
            in_work: 3,
            is_up,
        };
        let loader = LoaderNow {
            whose: Whose { process: Some(12), command: Some("python train.py".into()), address: None },
            epoch_delivered: 1200,
            epoch_batches: 5000,
            images_per_s: Some(0.0),
            is_stalled: true,
            ready_batches: 1,
            faults: 2,
            store: Some(StoreNow {
                requests_per_s: Some(810.0),
                bytes_per_s: Some(89.1e6),
                in_flight: 60,
                depth: Some(128),
                half_within_ms: Some(128.0),
                most_within_ms: Some(256.0),
                retries: 3,
                pushed_back: 1,
            }),
            prongs: vec![prong("cpu", Some(1234.5), true), prong("tcp://10.0.0.2:4420/nqn.x:y", None, false)],
            ..LoaderNow::default()
        };
        let agent = AgentNow {
            whose: Whose { address: Some("10.0.0.2:9465".into()), ..Whose::default() },
            cores: Some(3.5),
            in_work: 2,
            connections: 1,
            ..AgentNow::default()
        };
        let silent = Silent { whose: Whose { process: Some(9), ..Whose::default() }, why: "timed out".into() };
        let expected = "\
loader 12 python train.py
  epoch 0: 1,200 of 5,000 batches, 0.00 images/s, STALLED: waits 100 %, 1 batch ready, 0 buffers free, 2 faults
  store: 810 requests/s, 89.1 MB/s, 60 in flight of at most 128 samples, half within 128 ms, 99 % within 256 ms, \
3 made again, 1 as the store was busy
  prong                     delivered/s   prepared/s  in work
  cpu                             1,235        1,235        3
  10.0.0.2:4420                       –            –        3  away
agent 10.0.0.2:9465
  – samples/s, 3.50 cores, 2 batches in work, 1 connection
no answer from 9: timed out
";
        assert_eq!(picture(&Programs { loaders: vec![loader], agents: vec![agent], silent: vec![silent] }), expected);
    }

    #[test]
    fn nothing_to_show_says_what_to_do() {
        assert!(picture(&Programs::default()).contains("--metrics ADDR"));
    }
}
