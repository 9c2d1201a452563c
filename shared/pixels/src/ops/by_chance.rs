//! Defines operations that apply one fixed effect with a probability.

/// Makes the type of an operation whose only parameter is the probability of its effect. `p` has a default.
macro_rules! by_chance {
    (
        $(#[$documentation:meta])*
        $name:ident {
            $(#[$of_p:meta])*
            p = $default:literal
        }
        adds $effect:expr
    ) => {
        $(#[$documentation])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $(#[$of_p])*
            #[serde(default = "default_probability")]
            pub p: f64,
        }

        fn default_probability() -> f64 {
            $default
        }

        impl $crate::ops::Operate for $name {
            const EXAMPLES: &'static [Self] = &[Self { p: 0.5 }, Self { p: 1.0 }];

            fn check(&self) -> Result<(), String> {
                $crate::ops::check_probability(self.p)
            }

            fn size_after(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
                Ok(before)
            }

            #[inline]
            fn draw(
                &self,
                _size: (u32, u32),
                words: &mut impl $crate::draw::Words,
                effects: &mut impl $crate::ops::Effects,
            ) -> Result<(), $crate::error::PixelError> {
                if words.uniform() < self.p {
                    effects.add($effect);
                }
                Ok(())
            }
        }
    };
}

pub(super) use by_chance;
