use super::*;
use ddlp_host::ProngProgress;

#[test]
fn the_bar_always_has_its_width_and_fills_from_both_ends() {
    for width in [1, 10, 33] {
        for batches in [1, 3, 157, 20_000] {
            for head in 0..=batches.min(200) {
                for tail in [0, 1, (batches - head) / 2, batches - head] {
                    let (left, open, right) = cells(head, tail, batches, width);
                    assert_eq!(left + open + right, width, "{head} {tail} {batches}");
                    if width > 2 {
                        assert_eq!(left > 0, head > 0, "{head} {tail} {batches} {width}");
                        assert!(open > 0 || head + tail >= batches, "{head} {tail} {batches} {width}");
                    }
                }
            }
        }
    }
    assert_eq!(cells(157, 0, 157, 20), (20, 0, 0));
    assert_eq!(cells(0, 157, 157, 20), (0, 0, 20));
}

fn progress() -> Progress {
    let prong = |name: &str, images_per_s, is_up| ProngProgress {
        name: name.into(),
        images: 640,
        prepared: 700,
        images_per_s,
        outstanding: 2,
        is_up,
    };
    Progress {
        epoch: 1,
        epochs: 2,
        batches: 100,
        delivered: 30,
        head: 60,
        tail: 40,
        images: 8320,
        elapsed_s: 8.0,
        prongs: vec![prong("cpu", 612.0, true), prong("lo\u{1b}cal", 575.0, false)],
        faults: 1,
        corrupt: 4,
        ..Progress::default()
    }
}

fn course(now: Progress) -> Course {
    Course { now, before: 0 }
}

#[test]
fn a_silent_drive_is_named_and_does_not_change_the_time_left() {
    let silence =
        "the drive tcp://10.0.0.7:4420/nqn.x has not answered for 12 s; the run ends in 48 s unless the drive answers";
    let now = Progress { elapsed_s: 20.0, silent_s: 12.0, silence: Some(silence.into()), ..progress() };
    let said = "the CPU waits: the drive 10.0.0.7:4420 has not answered for 12 s; the run ends in 48 s unless the \
                drive answers";
    let silent = course(now.clone());
    assert!(line(&silent).ends_with(said), "{}", line(&silent));
    let after = course(Progress { silence: None, ..now });
    assert_eq!((after.left_s(), silent.left_s()), (course(progress()).left_s(), course(progress()).left_s()));
    assert!(line(&after).ends_with("5 s left"), "{}", line(&after));
}

#[test]
fn the_line_says_everything() {
    let expected = "epoch 1 (0 to 1): 30 of 100 batches delivered, cpu 612 images/s, lo\u{fffd}cal 575 images/s \
                    (away), 1 fault, 4 corrupt, 5 s left";
    assert_eq!(line(&course(progress())), expected);
    let only = course(Progress { epoch: 0, epochs: 1, ..progress() });
    assert!(line(&only).starts_with("30 of 100 batches delivered, cpu"), "a single epoch has no number");
    assert!(!bar_line(&only, 80).contains("epoch"));
}

#[test]
fn share_and_time_left_follow_what_was_delivered_of_all_epochs() {
    // All of the second epoch has been prepared already.
    let course = course(progress());
    assert_eq!(course.share(), 0.65);
    assert_eq!(course.left_s(), Some(70.0 * 8.0 / 130.0));
    let bar = bar_line(&course, 80);
    assert!(bar.contains("65 % delivered, 1,040 images/s, 5 s left") && !bar.contains('·'), "{bar}");
    let begun = Progress { elapsed_s: 0.0, ..progress() };
    assert_eq!(Course { now: begun, before: 0 }.left_s(), None);
}

#[test]
fn an_earlier_runs_deliveries_do_not_count_as_speed() {
    let mut course = Course::new(Progress { delivered: 20, elapsed_s: 0.0, ..progress() });
    course.follow(progress());
    assert_eq!((course.share(), course.left_s()), (0.65, Some(70.0 * 8.0 / 10.0)));
}

#[test]
fn a_run_whose_last_batch_was_delivered_is_complete() {
    let mut course = course(progress());
    course.follow(Progress { epoch: 0, delivered: 0, head: 0, tail: 0, ..progress() });
    assert_eq!((course.share(), course.left_s().unwrap()), (1.0, 0.0));
    assert!(line(&course).starts_with("epoch 1 (0 to 1): 100 of 100 batches delivered"));
}

#[test]
fn the_time_left_is_shown_in_whole_seconds() {
    let left = |elapsed_s| left_text(&course(Progress { delivered: 100, epochs: 3, elapsed_s, ..progress() }));
    assert_eq!(left(8.0), ", 4 s left");
    assert_eq!(left(300.0), ", 2 min 30 s left");
    assert_eq!(left(36_000.0), ", 5 h 00 min left");
}

/// Returns the progress of a run with drives elsewhere, all of which are away.
fn far(drives: usize) -> Progress {
    let mut now = progress();
    now.prongs.truncate(1);
    for drive in 0..drives {
        now.prongs.push(ProngProgress {
            name: format!("tcp://192.168.100.1{drive}:44231/nqn.2014-08.org.nvmexpress:uuid:9e17b6d2-0000-0000"),
            prepared: 64,
            images_per_s: 1575.0,
            is_up: false,
            ..ProngProgress::default()
        });
    }
    now
}

#[test]
fn both_lines_fit_a_narrow_terminal_and_lose_only_names() {
    for columns in [76, 96] {
        for drives in [1, 2, 3, 12] {
            let now = far(drives);
            let shown = prong_line(&now, columns);
            assert!(console::measure_text_width(&shown) <= columns, "{columns}: {shown}");
            for part in ["cpu 612", "away)", "1 fault, 4 corrupt", "/s"] {
                assert!(shown.contains(part), "{columns}, {drives}: {shown}");
            }
            assert!(!shown.contains("nqn") && !shown.contains("tcp://"), "{shown}");
            let bar = bar_line(&course(now), columns);
            assert!(console::measure_text_width(&bar) <= columns, "{bar}");
        }
    }
    assert!(prong_line(&far(1), 96).contains("192.168.100.10:44231 1,575 images/s (away)"));
    assert!(prong_line(&far(12), 76).contains("12 drives 18,900/s (12 away)"));
}

#[test]
fn a_prong_without_a_batch_has_no_rate() {
    let mut now = progress();
    now.prongs[1].prepared = 0;
    assert!(line(&course(now)).contains("cal – images/s (away)"));
}
