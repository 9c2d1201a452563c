use super::*;

#[test]
fn a_drive_is_named_by_its_address() {
    assert_eq!(prong_name("tcp://127.0.0.1:44231/nqn.2014-08.org.nvmexpress:uuid:x"), "127.0.0.1:44231");
    assert_eq!(prong_name("tcp://[::1]:4420/nqn.x"), "[::1]:4420");
    assert_eq!(prong_name("cs\u{1b}d 2"), "cs\u{fffd}d 2");
    assert_eq!(ending("127.0.0.1:44231", 15), "127.0.0.1:44231");
    assert_eq!(ending("127.0.0.1:44231", 8), "…1:44231");
}

#[test]
fn addresses_in_messages_are_short_and_keep_what_follows_them() {
    let at = "tcp://127.0.0.1:4420/nqn.2014-08.x:uuid:1";
    let said = short_addresses(&format!("no connection to {at}: reset"));
    assert_eq!(said, "no connection to 127.0.0.1:4420: reset");
    let said = short_addresses(&format!("no answer from {at} to Execute within 30s"));
    assert_eq!(said, "no answer from 127.0.0.1:4420 to Execute within 30s");
    assert_eq!(short_addresses(&format!("{at}, {at}; x\u{7}")), "127.0.0.1:4420, 127.0.0.1:4420; x\u{fffd}");
    assert_eq!(short_addresses("its agent: cannot be started again;"), "its agent: cannot be started again;");
}

#[test]
fn counts_are_grouped() {
    assert_eq!(count(0), "0");
    assert_eq!(count(999), "999");
    assert_eq!(count(1_000), "1,000");
    assert_eq!(count(12_345_678), "12,345,678");
}

#[test]
fn nouns_follow_their_number() {
    assert_eq!(plural(1, "batch"), "1 batch");
    assert_eq!(plural(2, "batch"), "2 batches");
    assert_eq!(plural(2, "epoch"), "2 epochs");
    assert_eq!(plural(1200, "image"), "1,200 images");
    assert_eq!(plural(0, "class"), "0 classes");
}

#[test]
fn figures_keep_three_digits() {
    assert_eq!(figure(0.1234), "0.12");
    assert_eq!(figure(12.34), "12.3");
    assert_eq!(figure(1234.6), "1,235");
    assert_eq!(figure(-1234.6), "-1,235");
    assert_eq!(figure(f64::NAN), "–");
}

#[test]
fn times_choose_their_unit() {
    assert_eq!(seconds(0.0), "0 ms");
    assert_eq!(seconds(0.0042), "4.2 ms");
    assert_eq!(seconds(0.34), "340 ms");
    assert_eq!(seconds(0.9999), "1.00 s");
    assert_eq!(seconds(2.049), "2.05 s");
    assert_eq!(seconds(59.96), "60.0 s");
    assert_eq!(seconds(187.0), "3 min 07 s");
    assert_eq!(seconds(7500.0), "2 h 05 min");
    assert_eq!(seconds(f64::INFINITY), "–");
}

#[test]
fn sizes_choose_their_unit() {
    assert_eq!(bytes(999), "999 B");
    assert_eq!(bytes(1_500), "1.50 kB");
    assert_eq!(bytes(999_999), "1.00 MB");
    assert_eq!(bytes(150_000_000_000), "150 GB");
    assert!(bytes(u64::MAX).ends_with("PB"));
}

#[test]
fn shares_are_per_cent() {
    assert_eq!(percent(0.0), "0 %");
    assert_eq!(percent(0.056), "5.6 %");
    assert_eq!(percent(0.5), "50 %");
    assert_eq!(percent(1.0), "100 %");
    assert_eq!(percent(f64::NAN), "–");
}

#[test]
fn control_characters_do_not_reach_a_terminal() {
    assert_eq!(printable("a\x1b[2Jb\nc"), "a\u{fffd}[2Jb\u{fffd}c");
}
