//! The definition of an option: everything that Rust, the command and Python say about it. From a table of options, the
//! macro `options!` makes the struct, its defaults, and the definitions.

use crate::error::LoaderError;
use std::fmt;
use std::time::Duration;

/// An option of the loader, or of a drive that the loader starts.
#[derive(Clone, Copy, Debug)]
pub struct OptionDef {
    /// Name in Python, in JSON and TOML, and in messages: there between backticks.
    pub name: &'static str,
    /// The options among which this one is listed.
    pub group: Group,
    /// What the option is about. Names of other options stand between backticks.
    pub doc: &'static str,
    /// The default in words, where its value says too little.
    pub default: Option<&'static str>,
    /// The values that the option may have.
    pub values: Values,
    /// The flag of `ddlp run`, if there is one.
    pub flag: Option<Flag>,
    /// The argument of Python's `ddlp.Loader`, if there is one.
    pub python: Option<Python>,
    /// The files of an earlier run that record the option.
    pub recorded: Recorded,
}

/// Groups of options, in the order in which they are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// What is done.
    Job,
    /// What the consumer gets.
    Batches,
    /// The drives.
    Drives,
    /// Threads and memory of this machine.
    Host,
    /// Processes that train together, and earlier runs.
    Ranks,
    /// What is said about the run.
    Output,
}

impl Group {
    /// Returns the group's title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Job => "Job",
            Self::Batches => "Batches",
            Self::Drives => "Drives",
            Self::Host => "Host",
            Self::Ranks => "Ranks and resuming",
            Self::Output => "Output",
        }
    }
}

/// The values that an option may have.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// Whole numbers between two bounds, both included.
    Whole(u64, u64),
    /// Numbers that fit, in words.
    Number(&'static str, fn(f64) -> bool),
    /// Words, each with what it stands for, which may be empty.
    Names(&'static [(&'static str, &'static str)]),
    /// `true` or `false`.
    Switch,
    /// A list of cores.
    Cores,
    /// A path, in words.
    Path(&'static str),
    /// A text that fits, in words. The error says what is wrong.
    Text(&'static str, fn(&str) -> Result<(), String>),
    /// Something else, in words.
    Other(&'static str),
    /// Something that has parts, whose errors say more than words about the whole.
    Structure,
}

/// A flag of `ddlp run`.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Name without the dashes, if it is another one than that of the option. A flag of a switch turns it to what is
    /// not its default.
    pub name: Option<&'static str>,
    /// What stands for the value in the help.
    pub value: &'static str,
    /// Another name.
    pub alias: Option<&'static str>,
    /// What the help says in place of [`OptionDef::doc`].
    pub doc: Option<&'static str>,
    /// What the help says of the default in place of [`OptionDef::default`].
    pub default: Option<&'static str>,
    /// Whether the flag may be repeated.
    pub repeats: bool,
}

/// An argument of Python's `ddlp.Loader`.
#[derive(Clone, Copy, Debug)]
pub struct Python {
    /// Annotation, if it does not follow from the values and the default. Names of the package's modules are written
    /// with the module: `_drives.Drive`.
    pub annotation: Option<&'static str>,
    /// Default as Python writes it, if it is another one than Rust's.
    pub value: Option<&'static str>,
    /// What the documentation says in place of [`OptionDef::doc`].
    pub doc: Option<&'static str>,
    /// What the documentation says of the default in place of [`OptionDef::default`].
    pub default: Option<&'static str>,
    /// What becomes of the argument.
    pub taken: Taken,
}

/// What becomes of an argument in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is the option's value.
    AsGiven,
    /// A function of the package makes the option's value of it: `_drives.cores_of`.
    By(&'static str),
    /// `ddlp.Loader` itself handles it.
    ByLoader,
}

/// The files of an earlier run that record an option. A run that goes on from such a file has the recorded value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Recorded {
    /// [`LoaderState`](crate::LoaderState), by its `options`.
    pub state: bool,
    /// [`Plan`](crate::Plan), by its `options`.
    pub plan: bool,
}

const FLAG: Flag = Flag { name: None, value: "", alias: None, doc: None, default: None, repeats: false };
const PYTHON: Python = Python { annotation: None, value: None, doc: None, default: None, taken: Taken::AsGiven };

/// Returns the definition of an option with these values. Python has every option, unless the definition says no.
pub(crate) const fn values(values: Values) -> OptionDef {
    OptionDef {
        name: "",
        group: Group::Job,
        doc: "",
        default: None,
        values,
        flag: None,
        python: Some(PYTHON),
        recorded: Recorded { state: false, plan: false },
    }
}

/// Returns the definition of an option that is a whole number from `least` to `most`.
pub(crate) const fn whole(least: u64, most: u64) -> OptionDef {
    values(Values::Whole(least, most))
}

/// Returns the definition of an option that is one of these words.
pub(crate) const fn names(names: &'static [(&'static str, &'static str)]) -> OptionDef {
    values(Values::Names(names))
}

/// Sets a part of a definition's flag or of its argument in Python.
macro_rules! part {
    ($(#[doc = $doc:literal])* $method:ident($($argument:ident: $type:ty),*) $of:ident.$part:ident = $value:expr) => {
        $(#[doc = $doc])*
        pub(crate) const fn $method(mut self $(, $argument: $type)*) -> Self {
            let mut of = self.$of.expect("a definition with this part");
            of.$part = $value;
            self.$of = Some(of);
            self
        }
    };
}

impl OptionDef {
    /// Fills in what the table says beside the definition.
    pub(crate) const fn of(
        mut self,
        name: &'static str,
        group: Group,
        doc: &'static str,
        default: Option<&'static str>,
    ) -> Self {
        if self.name.is_empty() {
            self.name = name;
        }
        (self.group, self.doc, self.default) = (group, doc, default);
        self
    }

    /// Gives the option another name than its field.
    pub(crate) const fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Records the option in states and plans.
    pub(crate) const fn recorded(mut self) -> Self {
        self.recorded = Recorded { state: true, plan: true };
        self
    }

    /// Records the option in states alone.
    pub(crate) const fn in_states(mut self) -> Self {
        self.recorded = Recorded { state: true, plan: false };
        self
    }

    /// Records the option in plans alone.
    pub(crate) const fn in_plans(mut self) -> Self {
        self.recorded = Recorded { state: false, plan: true };
        self
    }

    /// Leaves the option out of Python.
    pub(crate) const fn not_in_python(mut self) -> Self {
        self.python = None;
        self
    }

    /// Adds a flag. `value` stands for its value in the help.
    pub(crate) const fn flag(mut self, value: &'static str) -> Self {
        self.flag = Some(Flag { value, ..FLAG });
        self
    }

    part! { /// Gives the flag another name than the option's.
    flag_name(name: &'static str) flag.name = Some(name) }
    part! { /// Gives the flag a second name.
    flag_alias(alias: &'static str) flag.alias = Some(alias) }
    part! { /// Lets the flag be repeated.
    repeats() flag.repeats = true }
    part! { /// Gives the help a text of its own.
    flag_doc(doc: &'static str) flag.doc = Some(doc) }
    part! { /// Gives the help words of its own for the default.
    flag_default(words: &'static str) flag.default = Some(words) }
    part! { /// Gives the argument in Python an annotation.
    python(annotation: &'static str) python.annotation = Some(annotation) }
    part! { /// Gives the argument in Python another default.
    python_value(value: &'static str) python.value = Some(value) }
    part! { /// Gives the argument in Python a text of its own.
    python_doc(doc: &'static str) python.doc = Some(doc) }
    part! { /// Gives the argument in Python words of its own for the default.
    python_default(words: &'static str) python.default = Some(words) }
    part! { /// Says what becomes of the argument in Python.
    taken(taken: Taken) python.taken = taken }

    /// Returns the values that the option may have, in words, unless it has parts.
    pub fn allowed(&self) -> Option<String> {
        Some(match self.values {
            Values::Whole(least, u64::MAX) => format!("a whole number from {least} on"),
            Values::Whole(least, most) => format!("a whole number from {least} to {most}"),
            Values::Names(names) => {
                let quoted: Vec<String> = names.iter().map(|(name, _)| format!("\"{name}\"")).collect();
                let (last, others) = quoted.split_last()?;
                format!("{} or {last}", others.join(", "))
            }
            Values::Switch => "True or False".into(),
            Values::Cores => "numbers of cores".into(),
            Values::Number(words, _) | Values::Path(words) | Values::Text(words, _) | Values::Other(words) => {
                words.into()
            }
            Values::Structure => return None,
        })
    }

    /// Returns the error for a value that the option cannot have.
    pub(crate) fn refused(&self, value: &dyn fmt::Display) -> LoaderError {
        let must = self.allowed().map(|words| format!(", but must be {words}")).unwrap_or_default();
        LoaderError::Options(format!("`{}` is {value}{must}", self.name))
    }

    /// Checks a value that is a number.
    pub(crate) fn check(&self, value: Option<Figure>) -> Result<(), LoaderError> {
        match (self.values, value) {
            (Values::Whole(least, most), Some(Figure::Whole(value))) if !(least..=most).contains(&value) => {
                Err(self.refused(&value))
            }
            (Values::Number(_, fits), Some(Figure::Number(value))) if !fits(value) => Err(self.refused(&value)),
            _ => Ok(()),
        }
    }
}

/// The value of an option that is a number.
pub(crate) enum Figure {
    Whole(u64),
    Number(f64),
}

/// Types of options that are numbers.
pub(crate) trait AsFigure {
    /// Returns the number; `None` if there is none, or the option is something else.
    fn figure(&self) -> Option<Figure> {
        None
    }
}

impl<T: AsFigure> AsFigure for Option<T> {
    fn figure(&self) -> Option<Figure> {
        self.as_ref().and_then(T::figure)
    }
}

impl<T> AsFigure for Vec<T> {}

impl AsFigure for f64 {
    fn figure(&self) -> Option<Figure> {
        Some(Figure::Number(*self))
    }
}

impl AsFigure for Duration {
    fn figure(&self) -> Option<Figure> {
        Some(Figure::Number(self.as_secs_f64()))
    }
}

/// Implements [`AsFigure`] for types of whole numbers, and for types that are no numbers.
macro_rules! figures {
    (whole: $($whole:ty),*; other: $($other:ty),* $(,)?) => {
        $(impl $crate::options::definition::AsFigure for $whole {
            fn figure(&self) -> Option<Figure> {
                Some(Figure::Whole(*self as u64))
            }
        })*
        $(impl AsFigure for $other {})*
    };
}

figures! {
    whole: u32, u64, usize;
    other:
        bool, String, std::path::PathBuf, std::net::SocketAddr, ddlp_csd::program::CorruptPolicy, ddlp_dataset::Kind,
        ddlp_pixels::DType, ddlp_pixels::ImageLayout, ddlp_pixels::Limits, ddlp_pixels::Normalize,
        ddlp_pixels::Pipeline, crate::drive::LocalResults, crate::fidelity::Fidelities,
        crate::max_corrupt::MaxCorrupt, crate::fetch::FetchOrder, crate::order::LastBatch,
        crate::plan::Plan, crate::schedule::Strategy, crate::state::LoaderState,
}

/// Makes a struct of options, its defaults and their definitions from a table. A row is an option: its documentation,
/// its field with the default, maybe words for the default, and its definition.
macro_rules! options {
    (
        $(#[$about:meta])*
        pub struct $options:ident
        $($group:ident {
            $(
                $(#[doc = $doc:literal])*
                $(#[serde($($serde:tt)*)])?
                $name:ident: $type:ty = $default:expr $(, $words:literal)? => $definition:expr;
            )*
        })*
    ) => {
        $(#[$about])*
        pub struct $options {
            $($(
                $(#[doc = $doc])*
                #[doc = ""]
                #[doc = $crate::options::definition::default_doc!($default $(, $words)?)]
                $(#[serde($($serde)*)])?
                pub $name: $type,
            )*)*
        }

        impl Default for $options {
            fn default() -> Self {
                Self { $($($name: $default,)*)* }
            }
        }

        impl $options {
            /// The definitions of the options, in the order of the fields.
            pub const DEFINITIONS: &[$crate::options::definition::OptionDef] = &[$($({
                #[allow(unused_imports, reason = "no definition needs all of them")]
                use $crate::options::definition::{Group, Taken::*, Values::*, names, values, whole};
                let words: &[&str] = &[$($words)?];
                $definition.of(stringify!($name), Group::$group, concat!($($doc),*), words.first().copied())
            },)*)*];

            /// Checks the options that are numbers.
            pub(crate) fn check_figures(&self) -> Result<(), $crate::error::LoaderError> {
                use $crate::options::definition::AsFigure;
                let figures = [$($(self.$name.figure(),)*)*];
                Self::DEFINITIONS.iter().zip(figures).try_for_each(|(definition, figure)| definition.check(figure))
            }
        }
    };
}
pub(crate) use options;

/// Says an option's default in Rust's documentation.
macro_rules! default_doc {
    ($default:expr) => {
        concat!("Default: `", stringify!($default), "`.")
    };
    ($default:expr, $words:literal) => {
        concat!("Default: ", $words, ".")
    };
}
pub(crate) use default_doc;
