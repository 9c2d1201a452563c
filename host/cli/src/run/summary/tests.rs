use super::*;
use ddlp_host::report::{CorruptReport, EpochReport};

#[test]
fn the_summary_names_what_matters_and_no_more_than_a_few() {
    let corrupt = |id| CorruptReport {
        sample: format!("class/\u{7}{id}.jpg"),
        sample_id: id,
        epoch: 0,
        reason: "truncated".into(),
        action: "skipped".into(),
    };
    let report = Report {
        dataset: "x.ddlp".into(),
        strategy: "mte".into(),
        images: 2000,
        batches: 32,
        seconds: 2.0,
        images_per_s: 1000.0,
        host_cpu_s: 1.0,
        meeting_point: Some(16),
        prongs: vec![
            ProngReport { name: "cpu".into(), images: 1000, prepared: 1000, ..ProngReport::default() },
            ProngReport {
                name: "local".into(),
                images: 1000,
                prepared: 1000,
                wasted_batches: 1,
                ..ProngReport::default()
            },
        ],
        corrupt: (0..7).map(corrupt).collect(),
        ..Report::default()
    };
    let text = describe(&report, None);
    assert!(text.starts_with("x.ddlp: 2,000 images in 32 batches, 1,000 images/s in 2.00 s (mte)\n"), "{text}");
    assert!(text.contains("500 ms for 1,000 images") && text.contains("at batch 16"), "{text}");
    assert!(text.contains("1 batch not used") && text.contains("… and 2 more corrupt samples"), "{text}");
    assert!(!text.contains('\u{7}') && text.contains("  corrupt class/"), "{text}");
    let epochs = vec![EpochReport::default(), EpochReport::default()];
    let text = describe(&Report { epochs, ..report }, None);
    assert!(text.contains("  corrupt in epoch 0 class/"), "{text}");
}

#[test]
fn a_drive_elsewhere_is_named_by_its_address_in_its_own_column() {
    let prong = |name: &str| ProngReport { name: name.into(), images: 5, prepared: 5, ..ProngReport::default() };
    let far = "tcp://drive-17.cluster.example.org:44231/nqn.2014-08.org.nvmexpress:uuid:9e17b6d2";
    let report = Report { prongs: vec![prong("cpu"), prong(far)], ..Report::default() };
    let text = describe(&report, Some(Path::new("out.html")));
    let starts = |line: &str| text.lines().any(|there| there.starts_with(line));
    assert!(starts("  drive-17.cluster.example.org:44231  5 images (50 %)"), "{text}");
    assert!(starts("  cpu                                 5 images") && starts("  report          "), "{text}");
    assert!(!text.contains("nqn") && !describe(&report, None).contains("out.html"));
}

#[test]
fn what_was_read_is_compared_with_whole_samples_and_has_blocks_only_of_a_pack() {
    let files = Report { read_mb: 10.0, read_samples_mb: 10.0, ..Report::default() };
    let text = describe(&files, None);
    assert!(text.contains("10.0 of the samples' 10.0 MB (100.0 %)\n"), "{text}");
    let pack = Report { read_mb: 7.17, read_blocks_mb: Some(8.1), ..files };
    let text = describe(&pack, None);
    assert!(text.contains("7.17 of the samples' 10.0 MB (71.7 %); 8.10 MB in blocks of 4 KiB (81.0 %)\n"), "{text}");
}

#[test]
fn recoveries_do_not_count_as_faults_and_slots_are_listed_beside_the_memory() {
    let at = "tcp://127.0.0.1:4420/nqn.x";
    let fault = |kind, what: String| FaultReport { at_s: 1.0, prong: at.into(), batch: None, kind, what };
    let report = Report {
        images: 10,
        host_cpu_s: 1.0,
        peak_memory_mb: 0.68,
        slot_memory_mb: 617.0,
        faults: vec![
            fault(FaultKind::Lost, format!("no connection to {at}: reset")),
            fault(FaultKind::Rejoined, "the drive works again".into()),
        ],
        prongs: vec![ProngReport { images: 10, prepared: 500, ..ProngReport::default() }],
        ..Report::default()
    };
    assert_eq!(fault_count(&report), 1);
    let text = describe(&report, None);
    assert!(text.contains("fault after 1.00 s: 127.0.0.1:4420: no connection to 127.0.0.1:4420: reset\n"), "{text}");
    assert!(text.contains("recovery after 1.00 s: 127.0.0.1:4420: the drive works again\n"), "{text}");
    assert!(text.contains("0.68 MB allocated, and 617 MB of result slots"), "{text}");
    assert!(text.contains("2.00 s for 1,000 images") && text.contains("490 more not delivered"), "{text}");
}

#[test]
fn what_is_named_as_lost_is_also_named_as_back() {
    let fault = |prong: &str, kind, what: &str| FaultReport {
        at_s: 1.0,
        prong: prong.into(),
        batch: None,
        kind,
        what: what.into(),
    };
    let stall = || fault("cpu", FaultKind::Stall, "nothing arrived");
    let mut faults = vec![fault("cpu", FaultKind::Lost, "stopped answering"), fault("csd", FaultKind::Lost, "gone")];
    faults.extend((0..6).map(|_| stall()));
    faults.push(fault("cpu", FaultKind::Rejoined, "answered again"));
    faults.push(fault("csd", FaultKind::Restart, "started again"));
    faults.push(fault("csd", FaultKind::Rejoined, "works again"));
    // Neither this loss nor its end is among the first faults.
    faults.push(fault("csd", FaultKind::Timeout, "lost once more"));
    faults.push(fault("csd", FaultKind::Rejoined, "back once more"));
    let text = describe(&Report { faults, ..Report::default() }, None);
    for named in
        ["cpu: stopped answering", "csd: gone", "cpu: answered again", "csd: started again", "csd: works again"]
    {
        assert!(text.contains(named), "{named}: {text}");
    }
    assert_eq!(text.matches("nothing arrived").count(), NAMED_MAX - 2, "{text}");
    assert!(!text.contains("once more") && text.contains("… and 4 more faults"), "{text}");
}
