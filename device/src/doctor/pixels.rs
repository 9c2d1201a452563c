//! The pixel path: vector instructions, and the fingerprint that a host compares.

use super::finding::Finding;
use serde::Serialize;

const SUBJECT: &str = "pixels";

/// Extensions that speed the pixel path up: their names, what they are for, and whether this processor has them.
fn extensions() -> Vec<(&'static str, &'static str, bool)> {
    #[cfg(target_arch = "aarch64")]
    {
        use std::arch::is_aarch64_feature_detected as has;
        vec![("NEON", "decoding and resizing", has!("neon")), ("CRC32", "checksums", has!("crc"))]
    }
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        let has_level = has!("avx2") && has!("bmi1") && has!("bmi2");
        vec![("AVX2 and BMI2", "decoding and resizing", has_level), ("SSE4.2", "checksums", has!("sse4.2"))]
    }
    #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
    Vec::new()
}

/// The pixel path.
#[derive(Clone, Debug, Serialize)]
pub struct Pixels {
    /// Extensions that the processor has.
    pub has: Vec<&'static str>,
    /// Extensions that it lacks, and what they would be for.
    pub lacks: Vec<(&'static str, &'static str)>,
    /// Vector instructions that pixels are made by.
    pub vector_instructions: &'static str,
    /// Version of libjpeg-turbo, which decodes the less usual JPEGs.
    pub libjpeg_turbo: String,
    /// Whether it uses vector instructions.
    pub libjpeg_turbo_uses_simd: bool,
    /// Digest of the pixel path.
    pub fingerprint: String,
}

impl Pixels {
    /// Looks at the processor's extensions and runs built-in images through every stage.
    pub fn read() -> Self {
        let (has, lacks): (Vec<_>, Vec<_>) = extensions().into_iter().partition(|(_, _, is_there)| *is_there);
        let version = ddlp_pixels::libjpeg_turbo_version();
        Self {
            has: has.into_iter().map(|(name, _, _)| name).collect(),
            lacks: lacks.into_iter().map(|(name, purpose, _)| (name, purpose)).collect(),
            vector_instructions: ddlp_pixels::vector_instructions(),
            libjpeg_turbo: format!("{}.{}.{}", version / 1_000_000, version / 1000 % 1000, version % 1000),
            libjpeg_turbo_uses_simd: ddlp_pixels::libjpeg_turbo_uses_simd(),
            fingerprint: ddlp_pixels::fingerprint().to_string(),
        }
    }

    /// What there is to say.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![Finding::fine(SUBJECT, format!("images are prepared by {}", self.vector_instructions))];
        let rest = format!("libjpeg-turbo {}, for progressive and other less usual JPEGs,", self.libjpeg_turbo);
        findings.push(if self.libjpeg_turbo_uses_simd {
            Finding::fine(SUBJECT, format!("{rest} uses vector instructions"))
        } else {
            let advice = "unset JSIMD_FORCENONE; without them such images take several times as long";
            Finding::warning(SUBJECT, format!("{rest} uses no vector instructions"), advice)
        });
        if !self.has.is_empty() {
            findings.push(Finding::fine(SUBJECT, format!("the processor has {}", self.has.join(" and "))));
        }
        for (name, purpose) in &self.lacks {
            let text = format!("the processor lacks {name} (for {purpose})");
            let advice = "expect less from it; in a virtual machine, choose a newer processor model";
            findings.push(Finding::warning(SUBJECT, text, advice));
        }
        let text = format!("fingerprint {}: a host with another one refuses this drive", self.fingerprint);
        findings.push(Finding::fine(SUBJECT, text));
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn what_is_missing_is_warned_of() {
        let mut pixels = Pixels::read();
        assert_eq!((pixels.fingerprint.len(), pixels.libjpeg_turbo.starts_with("3.")), (64, true));
        pixels.libjpeg_turbo_uses_simd = false;
        (pixels.has, pixels.lacks) = (Vec::new(), vec![("NEON", "decoding and resizing")]);
        let levels: Vec<Level> = pixels.findings().iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Fine, Level::Warning, Level::Warning, Level::Fine]);
    }
}
