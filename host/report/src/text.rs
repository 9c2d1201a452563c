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

/// Shortens each word `tcp://HOST:PORT/NQN` to HOST:PORT, and keeps a comma, colon or semicolon at its end. Replaces
/// control characters, as [`printable`] does.
pub fn short_addresses(text: &str) -> String {
    let short = |word: &str| {
        if !word.starts_with("tcp://") {
            return word.to_owned();
        }
        let address = word.trim_end_matches([',', ':', ';']);
        prong_name(address) + &word[address.len()..]
    };
    let words: Vec<String> = text.split(' ').map(short).collect();
    printable(&words.join(" "))
}

#[cfg(test)]
mod tests;
