//! Options in messages of the library, as the command line spells them.

use crate::run::flag_name;
use ddlp_host::{LoaderOptions, LocalDrive};

/// Options of packing, each with its flag.
const PACK_FLAGS: &[(&str, &str)] = &[("format", "--format"), ("jpeg", "--jpeg"), ("max_side", "--max-side")];

/// Spells the options of a message as flags: `` `buffers` `` as `--buffers`, and `` `policy="skip"` `` as
/// `--policy skip`. The library writes them as its options and Python do.
pub fn flags(message: &str) -> String {
    let mut parts = message.split('`');
    let mut spelled = parts.next().unwrap_or_default().to_string();
    let mut rest = parts.peekable();
    while let Some(part) = rest.next() {
        match flag(part).filter(|_| rest.peek().is_some()) {
            Some(flag) => {
                spelled.push_str(&flag);
                spelled.push_str(rest.next().unwrap_or_default());
            }
            None => {
                spelled.push('`');
                spelled.push_str(part);
            }
        }
    }
    spelled
}

/// Returns an option as a flag, with its value if it has one.
fn flag(option: &str) -> Option<String> {
    let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
    let flag = match PACK_FLAGS.iter().find(|(option, _)| *option == name) {
        Some((_, flag)) => flag.to_string(),
        None => flag_of_run(name)?,
    };
    Some(value.map_or(flag.clone(), |value| format!("{flag} {}", value.trim_matches('"'))))
}

/// Returns the flag of `ddlp run` for an option of the loader or of its local drive. A flag that turns a switch off
/// says the opposite of the option.
fn flag_of_run(option: &str) -> Option<String> {
    let definitions = LoaderOptions::DEFINITIONS.iter().chain(LocalDrive::DEFINITIONS);
    let mut flags = definitions.filter_map(|definition| Some((definition, flag_name(definition, &definition.flag?))));
    let (_, flag) = flags.find(|(definition, flag)| definition.name == option || *flag == option)?;
    (!flag.starts_with("no-")).then(|| format!("--{flag}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::PackArgs;
    use clap::{Args, Command};

    #[test]
    fn options_become_flags_and_nothing_else_changes() {
        for (message, spelled) in [
            ("use more `buffers`", "use more --buffers"),
            ("`fields` names a file", "--fields names a file"),
            ("`buffers` or `slots`", "--buffers or --slots"),
            ("`drive_timeout_s` and `classes`", "--drive-timeout and --classes"),
            ("`shuffle` stays", "`shuffle` stays"),
            (r#"try `policy="skip"`, and `ddlp verify`"#, "try --policy skip, and `ddlp verify`"),
            (r#"`max_side` needs `format="raw"`"#, "--max-side needs --format raw"),
            ("buffers are full", "buffers are full"),
            ("a file named a`buffers", "a file named a`buffers"),
            ("", ""),
        ] {
            assert_eq!(flags(message), spelled);
        }
    }

    #[test]
    fn every_flag_of_packing_exists() {
        let command = PackArgs::augment_args(Command::new("pack"));
        for (_, flag) in PACK_FLAGS {
            assert!(command.get_arguments().any(|arg| arg.get_long() == Some(&flag[2..])), "{flag}");
        }
    }
}
