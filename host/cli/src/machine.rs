//! Description of the machine on which a measurement was made.

use std::fs;

/// Returns the processor's name and the number of cores that this process may use.
pub fn describe() -> String {
    let model = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| model_name(&text));
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{}, {} usable, {} {}",
        model.unwrap_or_else(|| std::env::consts::ARCH.to_string()),
        crate::text::plural(cores as u64, "core"),
        std::env::consts::OS,
        kernel.trim()
    )
}

fn model_name(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    let (_, name) = line.split_once(':')?;
    Some(name.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Returns version and revision of the source from which this program was built: `0.1.0 (1a2b3c4)`.
pub fn revision() -> String {
    match option_env!("DDLP_REVISION") {
        Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named() {
        assert_eq!(model_name("processor\t: 0\nmodel name\t: Some  CPU 9 \n").as_deref(), Some("Some CPU 9"));
        assert_eq!(model_name("processor\t: 0\n"), None);
        assert!(describe().contains("usable"));
    }

    #[test]
    fn the_version_is_part_of_the_revision() {
        assert!(revision().starts_with(env!("CARGO_PKG_VERSION")));
    }
}
