//! Figures for people: grouped, rounded to a useful precision, with their unit.

/// Formats `1234567` as `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number with its noun: `1 image`, `2 images`.
pub fn plural(value: u64, noun: &str) -> String {
    let ending = if value == 1 {
        ""
    } else if noun.ends_with('s') || noun.ends_with("tch") {
        "es"
    } else {
        "s"
    };
    format!("{} {noun}{ending}", count(value))
}

/// Formats a figure with about three significant digits and no unit.
pub fn figure(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "–".to_string(),
        size if size >= 100.0 => {
            format!("{}{}", if value < 0.0 { "-" } else { "" }, count(size.round() as u64))
        }
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats images per second.
pub fn rate(value: f64) -> String {
    format!("{} images/s", figure(value))
}

/// Formats a share of 1 as a percentage.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        value if !value.is_finite() => "–".to_string(),
        value if value == 0.0 || value.abs() >= 9.95 => format!("{value:.0} %"),
        value => format!("{value:.1} %"),
    }
}

/// Formats a span of time: `340 ms`, `2.05 s`, `3 min 07 s`, `2 h 05 min`.
pub fn seconds(value: f64) -> String {
    if !value.is_finite() || value < 0.0 {
        return "–".to_string();
    }
    if value < 0.9995 {
        let ms = value * 1000.0;
        return if ms >= 9.95 || ms == 0.0 { format!("{ms:.0} ms") } else { format!("{ms:.1} ms") };
    }
    if value < 99.95 {
        return if value < 9.995 { format!("{value:.2} s") } else { format!("{value:.1} s") };
    }
    let whole = value.round() as u64;
    if whole < 3600 {
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else {
        format!("{} h {:02} min", whole / 3600, whole % 3600 / 60)
    }
}

/// Formats bytes in decimal units.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if value < 1000 {
        return format!("{value} B");
    }
    let mut scaled = value as f64 / 1e3;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1e3;
        unit += 1;
    }
    format!("{} {}", figure(scaled), UNITS[unit])
}

/// Removes control characters from foreign text (file names, drive names), so that it cannot steer a terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Returns a prong's name for display; of a drive elsewhere, `tcp://HOST:PORT/NQN`, only HOST:PORT.
pub fn prong_name(name: &str) -> String {
    let place = name.strip_prefix("tcp://").map_or(name, |place| place.split('/').next().unwrap_or(place));
    printable(place)
}

/// Returns the end of `text` in at most `chars` characters, with a mark in place of what is left out.
pub fn ending(text: &str, chars: usize) -> String {
    let count = text.chars().count();
    if count <= chars {
        return text.to_string();
    }
    let end: String = text.chars().skip(count + 1 - chars.max(1)).collect();
    format!("…{end}")
}

/// Describes a fault without the drive's address, since the drive is named beside it.
pub fn fault(what: &str) -> String {
    let mut words = Vec::<String>::new();
    for word in what.split(' ') {
        if !word.starts_with("tcp://") {
            words.push(word.to_owned());
            continue;
        }
        words.pop_if(|word| ["to", "from", "of", "at"].contains(&&**word));
        if let Some(last) = words.last_mut().filter(|_| word.ends_with(':')) {
            last.push(':');
        }
    }
    printable(&words.join(" "))
}

/// Breaks lines between words so that none is wider than `columns`, as far as words allow. Continuation lines are
/// indented.
pub fn wrapped(text: &str, columns: usize) -> String {
    const INDENT: &str = "      ";
    let mut out = String::new();
    for line in text.lines() {
        let mut width = 0;
        for word in line.split_inclusive(' ') {
            let word_width = console::measure_text_width(word.trim_end());
            if width + word_width > columns && width > INDENT.len() {
                out.truncate(out.trim_end().len());
                out.push('\n');
                out.push_str(INDENT);
                width = INDENT.len();
            }
            out.push_str(word);
            width += console::measure_text_width(word);
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
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
    fn a_fault_leaves_the_address_to_the_name_beside_it() {
        let at = "tcp://127.0.0.1:4420/nqn.2014-08.x:uuid:1";
        assert_eq!(fault(&format!("no connection to {at}: reset")), "no connection: reset");
        assert_eq!(fault(&format!("no answer from {at} to Execute within 30s")), "no answer to Execute within 30s");
        assert_eq!(fault(&format!("{at} broke the protocol: x")), "broke the protocol: x");
        assert_eq!(fault("its agent cannot be started again"), "its agent cannot be started again");
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
    fn lines_break_between_words_by_the_width_that_a_terminal_shows() {
        let text = "写真 100 images\n  note: the tail is limited by slots\n";
        assert_eq!(wrapped(text, 80), text);
        assert_eq!(wrapped(text, 15), "写真 100 images\n  note: the\n      tail is\n      limited\n      by slots\n");
        assert_eq!(wrapped("写真写真 x\n", 9), "写真写真\n      x\n");
        assert_eq!(wrapped("aaaaaaaaaaaaaaaaaaaa bb\n", 9), "aaaaaaaaaaaaaaaaaaaa\n      bb\n");
    }

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(printable("a\x1b[2Jb\nc"), "a\u{fffd}[2Jb\u{fffd}c");
    }
}
