//! The pixel path: vector instructions, and the fingerprint that a host compares.

use super::finding::Finding;
use super::system::System;
use serde::Serialize;
use std::collections::BTreeSet;

const SUBJECT: &str = "pixels";

/// An instruction set extension that speeds the pixel path up: what `/proc/cpuinfo` calls it, and what for.
const WANTED: [(&str, &str); 2] = if cfg!(target_arch = "aarch64") {
    [("asimd", "NEON, for decoding and resizing"), ("crc32", "CRC32C, for checksums")]
} else {
    [("avx2", "AVX2, for decoding and resizing"), ("sse4_2", "CRC32C, for checksums")]
};

/// The pixel path.
#[derive(Clone, Debug, Serialize)]
pub struct Pixels {
    /// Wanted extensions that the processor has.
    pub has: Vec<&'static str>,
    /// Wanted extensions that it lacks.
    pub lacks: Vec<&'static str>,
    /// Whether JPEGs are decoded by vector instructions.
    pub jpeg_uses_simd: bool,
    /// Version of libjpeg-turbo.
    pub libjpeg_turbo: String,
    /// Digest of the pixel path.
    pub fingerprint: String,
}

impl Pixels {
    /// Looks at the processor's extensions and runs built-in images through every stage.
    pub fn read(system: &System) -> Self {
        let features = features(&system.text("proc/cpuinfo").unwrap_or_default());
        let (has, lacks) = WANTED.map(|(name, _)| name).into_iter().partition(|name| features.contains(*name));
        let version = ddlp_pixels::libjpeg_turbo_version();
        Self {
            has,
            lacks,
            jpeg_uses_simd: ddlp_pixels::jpeg_uses_simd(),
            libjpeg_turbo: format!("{}.{}.{}", version / 1_000_000, version / 1000 % 1000, version % 1000),
            fingerprint: ddlp_pixels::fingerprint().to_string(),
        }
    }

    /// What there is to say.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![if self.jpeg_uses_simd {
            let text = format!("libjpeg-turbo {} decodes by vector instructions", self.libjpeg_turbo);
            Finding::fine(SUBJECT, format!("{text}; the processor has {}", self.has.join(" and ")))
        } else {
            let text = format!("libjpeg-turbo {} decodes without vector instructions", self.libjpeg_turbo);
            let advice = "unset JSIMD_FORCENONE; a processor without them prepares a fraction of the images";
            Finding::warning(SUBJECT, text, advice)
        }];
        for (name, purpose) in WANTED.iter().filter(|(name, _)| self.lacks.contains(name)) {
            let text = format!("the processor does not name `{name}` ({purpose})");
            let advice = "expect less from it; in a virtual machine, choose a newer processor model";
            findings.push(Finding::warning(SUBJECT, text, advice));
        }
        let text = format!("fingerprint {}: a host with another one refuses this drive", self.fingerprint);
        findings.push(Finding::fine(SUBJECT, text));
        findings
    }
}

/// Extensions that every core has: `Features` on ARM, `flags` on x86.
fn features(cpuinfo: &str) -> BTreeSet<String> {
    let is_list = |line: &&str| line.starts_with("Features") || line.starts_with("flags");
    let lists = cpuinfo.lines().filter(is_list).filter_map(|line| line.split_once(':'));
    let sets = lists.map(|(_, list)| list.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>());
    sets.reduce(|all, core| &all & &core).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::system::recorded;
    use super::*;

    #[test]
    fn features_are_those_of_all_cores() {
        let arm = features(include_str!("recorded/cpuinfo-rk3588.txt"));
        assert!(arm.contains("asimd") && arm.contains("crc32"));
        let x86 = features(include_str!("recorded/cpuinfo-x86.txt"));
        assert!(x86.contains("avx2") && !x86.contains("sve"));
        assert_eq!(features("Features : a b\nFeatures : b c\n"), BTreeSet::from(["b".to_owned()]));
    }

    #[test]
    fn missing_instructions_are_warned_of() {
        let (_root, system) = recorded(&[("proc/cpuinfo", "flags\t: sse2\nFeatures : sse2\n")]);
        let mut pixels = Pixels::read(&system);
        assert_eq!(pixels.lacks.len(), 2);
        assert_eq!(pixels.fingerprint.len(), 64);
        pixels.jpeg_uses_simd = false;
        let warnings = pixels.findings().iter().filter(|finding| finding.level == Level::Warning).count();
        assert_eq!(warnings, 3);
    }
}
