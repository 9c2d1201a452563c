//! The vector instructions of this machine, for all code that is built for several sets of them. A value that names a
//! set proves that the processor has it, so code for that set may be called without another check.

/// A set of vector instructions that pixel code is built for.
#[derive(Clone, Copy, Debug)]
pub enum Level {
    /// AVX2, BMI1, BMI2, FMA and F16C on x86-64.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// SSE4.1 on x86-64.
    #[cfg(target_arch = "x86_64")]
    Sse41(Sse41),
    /// The instructions that the compiler's target always has: NEON on aarch64, SSE2 on x86-64.
    Base,
}

/// Proof that this processor has AVX2, BMI1, BMI2, FMA and F16C, which AMD and Intel have shipped together since AVX2.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

/// Proof that this processor has SSE4.1.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub struct Sse41(());

impl Level {
    /// Returns the sets that this machine can run, the best first.
    pub fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let special = {
            let has_bmi = is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2");
            let has_floats = is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
            let has_avx2 = is_x86_feature_detected!("avx2") && has_bmi && has_floats;
            let avx2 = has_avx2.then_some(Self::Avx2(Avx2(())));
            let sse41 = is_x86_feature_detected!("sse4.1").then_some(Self::Sse41(Sse41(())));
            [avx2, sse41].into_iter().flatten()
        };
        #[cfg(not(target_arch = "x86_64"))]
        let special = std::iter::empty();
        special.chain([Self::Base])
    }

    /// Does the same for tests, and reports once which sets this machine leaves untested. It writes to standard error
    /// directly, because the harness hides the output of a test that passes.
    #[cfg(test)]
    pub fn tested() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        {
            use std::io::Write;
            static SAID: std::sync::Once = std::sync::Once::new();
            let has = |is_it: fn(Self) -> bool| Self::all().any(is_it);
            let levels = [
                ("AVX2, BMI2, FMA and F16C", has(|level| matches!(level, Self::Avx2(_)))),
                ("SSE4.1", has(|level| matches!(level, Self::Sse41(_)))),
            ];
            SAID.call_once(|| {
                for (name, _) in levels.into_iter().filter(|(_, has_it)| !has_it) {
                    let _ = writeln!(std::io::stderr(), "not tested: code for {name}, which this machine lacks");
                }
            });
        }
        Self::all()
    }

    /// Returns the best set that this machine can run.
    pub fn best() -> Self {
        Self::all().next().unwrap_or(Self::Base)
    }

    /// Returns the usual name of the set.
    #[cfg(test)]
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Self::Sse41(_) => "SSE4.1",
            Self::Base if cfg!(target_arch = "x86_64") => "SSE2",
            Self::Base if cfg!(target_arch = "aarch64") => "NEON",
            Self::Base => "those of the compiler's target",
        }
    }
}

/// Makes a function of code that is compiled for several sets of vector instructions. The module must allow unsafe
/// code, and import `Level`.
macro_rules! for_levels {
    ($(#[$documentation:meta])* $name:ident = $code:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?) => {
        $(#[$documentation])*
        pub fn $name(level: Level, $($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2($($argument: $type),*) $(-> $result)? {
                $code($($argument),*)
            }
            match level {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the level proves that the processor has AVX2.
                Level::Avx2(_) => unsafe { avx2($($argument),*) },
                _ => $code($($argument),*),
            }
        }
    };
}
pub(crate) use for_levels;
