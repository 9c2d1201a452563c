//! The page is well-formed for runs of every size, and no text in it is taken for markup.

use super::*;
use ddlp_host::report::{CorruptReport, Delivery, EpochReport, FaultKind, FaultReport, ProngReport, Span, Timeline};

/// Returns a run of `batches` per epoch, of which the CPU prepares six in ten.
fn run(epochs: u32, batches: u32) -> Report {
    let mut report = Report {
        strategy: "mte".into(),
        dataset: "photos.ddlp".into(),
        epoch_samples: u64::from(batches) * 64,
        batch_size: 64,
        seed: 7,
        threads: 1,
        seconds: f64::from(epochs),
        images: u64::from(epochs * batches) * 64,
        batches: u64::from(epochs * batches),
        images_per_s: f64::from(batches) * 64.0,
        first_batch_s: 0.06,
        host_cpu_s: 0.9,
        peak_memory_mb: 140.0,
        meeting_point: Some(batches * 6 / 10),
        prongs: vec![prong("cpu"), prong("local drive")],
        ..Report::default()
    };
    for epoch in 0..epochs {
        add_epoch(&mut report, epoch, batches);
    }
    report
}

fn prong(name: &str) -> ProngReport {
    ProngReport { name: name.into(), batches: 1, images: 64, busy_s: 1.0, images_per_s: 64.0, ..ProngReport::default() }
}

fn add_epoch(report: &mut Report, epoch: u32, batches: u32) {
    let meeting = (batches * 6 / 10).max(1);
    let start = f64::from(epoch);
    report.timeline.kept_every = 1;
    for batch in 0..batches {
        let (prong, place, count) =
            if batch < meeting { (0, batch, meeting) } else { (1, batches - 1 - batch, batches - meeting) };
        let width = 1.0 / f64::from(count.max(1));
        let start_s = start + f64::from(place) * width;
        report.timeline.spans.push(Span { prong, epoch, batch, start_s, end_s: start_s + width, used: true });
        let at_s = start + f64::from(batch + 1) / f64::from(batches);
        let asked_s = at_s - 0.5 / f64::from(batches);
        report.timeline.deliveries.push(Delivery { prong, epoch, batch, images: 64, asked_s, at_s });
    }
    report.epochs.push(EpochReport {
        epoch,
        batches: u64::from(batches),
        images: u64::from(batches) * 64,
        start_s: start,
        end_s: start + 1.0,
        first_batch_s: 0.06,
        meeting_point: Some(meeting),
        batches_by_prong: vec![u64::from(meeting), u64::from(batches - meeting)],
    });
}

/// Returns a page without the contents of its two scripts.
fn without_scripts(page: &str) -> String {
    let parts: Vec<&str> = page.split("<script").collect();
    assert_eq!(parts.len(), 3, "the data of the drawings, and the script that draws them");
    let script = |part: &str| part.split_once("</script>").expect("a script ends").1.to_string();
    format!("{}{}{}", parts[0], script(parts[1]), script(parts[2]))
}

/// Returns the data of the drawings.
fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"run\">").expect("the data");
    serde_json::from_str(rest.split_once("</script>").expect("a script ends").0).expect("JSON")
}

/// Checks that every element is closed in the order of opening.
fn assert_well_formed(page: &str) {
    let page = without_scripts(page);
    let body = &page[page.find("<body>").expect("a body")..];
    let mut open: Vec<&str> = vec!["html"];
    for tag in body.split('<').skip(1) {
        let (inside, _) = tag.split_once('>').expect("every tag ends");
        let name = inside.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if inside.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "in {inside}");
        } else if !inside.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn runs_of_every_size_give_a_small_well_formed_page() {
    for (epochs, batches) in [(1, 1), (1, 3), (2, 157), (1, 20_000), (50, 400)] {
        let page = render(&run(epochs, batches), &Context::default());
        assert_well_formed(&page);
        assert!(page.len() < 1_500_000, "{epochs} × {batches}: {} bytes", page.len());
        let text = without_scripts(&page);
        assert!(!text.contains("NaN") && !text.contains("inf\""), "{epochs} × {batches}");
        let spans = data(&page)["spans"]["batch"].as_array().map(Vec::len);
        assert_eq!(spans, Some((epochs * batches) as usize));
    }
}

#[test]
fn an_empty_run_and_invalid_figures_give_a_page() {
    assert_well_formed(&render(&Report::default(), &Context::default()));
    let mut report = run(1, 3);
    report.seconds = f64::NAN;
    report.images_per_s = f64::INFINITY;
    report.timeline.spans[0].end_s = f64::NAN;
    report.timeline.deliveries[1].at_s = f64::NEG_INFINITY;
    report.timeline.spans[1].prong = 99;
    let page = render(&report, &Context::default());
    assert_well_formed(&page);
    assert!(!without_scripts(&page).contains("NaN"));
    let drawn = data(&page);
    let lists = |list: &str| drawn[list]["prong"].as_array().map(Vec::len);
    assert_eq!((lists("spans"), lists("deliveries")), (Some(2), Some(2)), "what has no time is not drawn");
}

#[test]
fn names_are_never_taken_for_markup() {
    const HOSTILE: &str = "</title></svg><script>alert('x')</script>\"&\u{1b}";
    let mut report = run(1, 3);
    report.dataset = HOSTILE.into();
    report.strategy = HOSTILE.into();
    report.prongs[1].name = HOSTILE.into();
    report.notes.push(HOSTILE.into());
    report.digest = Some(HOSTILE.into());
    report.corrupt.push(CorruptReport {
        sample: HOSTILE.into(),
        sample_id: 1,
        epoch: 0,
        reason: HOSTILE.into(),
        action: HOSTILE.into(),
    });
    report.faults.push(FaultReport {
        at_s: 0.5,
        prong: HOSTILE.into(),
        batch: Some((0, 1)),
        kind: FaultKind::Lost,
        what: HOSTILE.into(),
    });
    let context = Context { command: HOSTILE.into(), ended_early: Some(HOSTILE.into()), ..Context::default() };
    let page = render(&report, &context);
    assert_well_formed(&page);
    assert!(!page.contains("<script>alert") && !page.contains('\u{1b}'));
    let drawn = data(&page);
    let name = text::ending(&text::printable(HOSTILE), NAME_CHARS);
    assert_eq!(drawn["prongs"][1], name, "the script writes it on a canvas, as text");
    assert!(drawn["faults"][0]["what"].as_str().is_some_and(|what| what.contains("<script>alert")));
}

#[test]
fn figures_that_were_not_measured_are_unknown() {
    let mut report = run(1, 3);
    let page = render(&report, &Context::default());
    let energy = "<b class=\"unknown\">unknown</b><span>energy of the host&#39;s processors: no counter";
    assert!(page.contains(energy) && page.contains("known only with --step-ms"));
    report.host_energy_j = Some(41.5);
    let page = render(&report, &Context::default());
    assert!(page.contains("<b>41.5 <small>J</small></b><span>energy of the host&#39;s processors</span>"));
}

#[test]
fn labels_and_rates_are_explained() {
    let of_one = render(&run(1, 3), &Context::default());
    assert!(of_one.contains("can be ready at once (0 ms)") && of_one.contains("A prong is whoever prepares batches"));
    assert!(!of_one.contains("stand left of its label"));
    assert!(render(&run(2, 3), &Context::default()).contains("stand left of its label"));
}

#[test]
fn faults_are_listed_and_drawn() {
    let mut report = run(1, 10);
    report.faults.push(FaultReport {
        at_s: 0.4,
        prong: "local drive".into(),
        batch: None,
        kind: FaultKind::Lost,
        what: "connection closed".into(),
    });
    let page = render(&report, &Context::default());
    assert!(page.contains("Faults survived") && data(&page)["faults"][0]["what"] == "connection closed");
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = render(&run(1, 3), &Context::default());
    assert!(
        !page.contains("http://") && !page.contains("https://") && !page.contains("@import") && !page.contains("src=")
    );
}

/// Returns the rules of a style sheet without nested ones, each as its selector and the names of its properties.
fn rules(sheet: &str) -> Vec<(&str, Vec<(&str, &str)>)> {
    let rules = sheet.split('}').filter_map(|rule| rule.split_once('{'));
    rules
        .map(|(selector, body)| {
            let selector = selector.rsplit("*/").next().unwrap_or(selector).trim();
            (
                selector,
                body.split(';').filter_map(|text| text.split_once(':')).map(|(n, v)| (n.trim(), v.trim())).collect(),
            )
        })
        .collect()
}

/// Returns whether a length is so short that it fits any page.
fn is_short(length: &str) -> bool {
    length.strip_suffix("px").and_then(|length| length.parse().ok()).is_some_and(|length: f64| length <= 40.0)
}

/// Paper does not scroll: whatever may be wider than the window on a screen has to shrink or break there.
#[test]
fn nothing_lies_beyond_the_right_edge_of_a_printed_page() {
    let (screen, print) = STYLE.split_once("@media print {").expect("there are rules for paper");
    let print = rules(print);
    let mut widening = 0;
    // The figure of a tile is short, and a share hides what it has no room for.
    let fits = |selector: &str| selector.starts_with(".tile") || selector.starts_with(".share");
    for (selector, properties) in rules(screen).into_iter().filter(|(selector, _)| !fits(selector)) {
        for (name, value) in properties {
            let undone = match (name, value) {
                ("white-space", "nowrap" | "pre") => ("white-space", "normal"),
                ("min-width", value) if value != "0" => ("min-width", "0"),
                ("width" | "flex-basis", value) if value != "100%" && !is_short(value) => (name, "auto"),
                ("overflow-x" | "overflow", "auto" | "scroll") => ("overflow", "visible"),
                _ => continue,
            };
            widening += 1;
            let is_undone = print.iter().any(|(other, there)| *other == selector && there.contains(&undone));
            assert!(is_undone, "on paper, {selector} keeps {name}: {value}");
        }
    }
    assert!(widening >= 3, "the rules are found");
    // Only a share has a style of its own.
    let page = render(&run(2, 10), &Context::default());
    let page = without_scripts(&page);
    let (_, html) = page.split_once("<body>").expect("a body");
    assert!(html.split(" style=\"").skip(1).all(|style| style.starts_with("flex:")), "{html}");
    assert!(!html.contains(" width=") && !html.contains("<pre") && !html.contains(" nowrap"), "{html}");
}

#[test]
fn the_rates_are_a_table_too() {
    let page = without_scripts(&render(&run(1, 10), &Context::default()));
    assert!(page.contains("<th class=\"n\">made by local drive</th><th class=\"n\">delivered</th>"), "{page}");
    assert!(page.contains("<noscript>"));
}

#[test]
fn messages_spell_options_as_the_reader_does() {
    let report = Report { notes: vec!["use more `buffers`".into()], ..run(1, 3) };
    assert!(render(&report, &Context::default()).contains("<li>use more `buffers`</li>"));
    let spelled = |text: &str| text.replace('`', "");
    assert!(render(&report, &Context { spelled, ..Context::default() }).contains("<li>use more buffers</li>"));
}

/// Runs the page's script where node is installed, with a canvas that counts, and plays a visit: pointing, dragging,
/// keys and buttons. Figures in the script have the formats of `text`.
#[test]
fn the_script_draws_and_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let values =
        [0.0, 0.00001, 0.0042, 0.00994, 0.00996, 0.34, 0.9994, 0.9996, 2.049, 9.994, 9.996, 12.34, 59.96, 99.94];
    let values = values.into_iter().chain([99.96, 123.4, 187.0, 1234.6, 3599.6, 7500.0, 1_234_567.8]);
    let formats: Vec<_> = values.map(|value| (value, text::figure(value), text::seconds(value))).collect();
    let formats = serde_json::to_string(&formats).expect("numbers and text");
    std::fs::write(folder.path().join("formats.json"), formats).expect("room");
    let node = |report: &Report| {
        let data = Drawing::of(report, &Context::default()).to_json();
        std::fs::write(folder.path().join("run.json"), data).expect("room");
        std::fs::write(folder.path().join("page.js"), SCRIPT).expect("room");
        let visit = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/visit.js");
        std::process::Command::new("node").arg(visit).current_dir(folder.path()).output()
    };
    let mut faulty = run(2, 10);
    faulty.faults.push(FaultReport {
        at_s: 0.5,
        prong: "cpu".into(),
        batch: None,
        kind: FaultKind::Lost,
        what: "connection closed".into(),
    });
    faulty.timeline.spans[3].used = false;
    for report in [Report::default(), run(1, 1), faulty, run(50, 400)] {
        let Ok(output) = node(&report) else { return eprintln!("SKIPPED: node is not installed") };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}

#[test]
fn a_thinned_time_line_says_so() {
    let mut report = run(1, 20);
    report.timeline = Timeline { kept_every: 4, ..report.timeline };
    assert!(render(&report, &Context::default()).contains("One batch in 4 is drawn."));
}

#[test]
fn the_drawing_is_explained_by_strategy() {
    let page = |strategy: &str| render(&Report { strategy: strategy.into(), ..run(2, 10) }, &Context::default());
    assert!(page("mte").contains("drives from the last batch downwards, until they meet"));
    assert!(page("ordered").contains("interleave") && !page("ordered").contains("downwards"));
    let mut unmet = run(2, 10);
    assert!(render(&unmet, &Context::default()).contains("prongs met at batch"));
    unmet.epochs.iter_mut().for_each(|epoch| epoch.meeting_point = None);
    assert!(!render(&unmet, &Context::default()).contains("prongs met at batch"));
}

#[test]
fn epochs_are_counted_from_0_and_drives_are_called_by_their_place() {
    let mut report = run(2, 10);
    report.prongs[1].name = "tcp://10.0.0.7:4420/nqn.2014-08.org.nvmexpress:uuid:9e17".into();
    report.slot_memory_mb = 617.0;
    let page = render(&report, &Context::default());
    let drawn = data(&page);
    assert_eq!((&drawn["epochs"][0]["epoch"], &drawn["epochs"][1]["epoch"]), (&0.into(), &1.into()));
    assert!(page.contains("<td class=\"s\">0</td>") && !page.contains("<td class=\"s\">2</td>"));
    assert!(page.contains("10.0.0.7:4420") && !page.contains("nqn."));
    assert!(page.contains("and 617 MB of result slots"));
}
