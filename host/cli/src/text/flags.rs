//! Options in messages of the library, as the command line spells them.

/// Options that messages name, each with its flag.
const FLAGS: &[(&str, &str)] = &[
    ("agent", "--agent"),
    ("batch_size", "--batch-size"),
    ("buffers", "--buffers"),
    ("classes", "--classes"),
    ("drive_optional", "--drive-optional"),
    ("drive_timeout_s", "--drive-timeout"),
    ("drives", "--drive"),
    ("epoch_samples", "--epoch-samples"),
    ("fields", "--fields"),
    ("host_nqn", "--host-nqn"),
    ("kind", "--kind"),
    ("max_corrupt", "--max-corrupt"),
    ("metrics", "--metrics"),
    ("policy", "--policy"),
    ("rank", "--rank"),
    ("slots", "--slots"),
    ("strategy", "--strategy"),
    ("threads", "--threads"),
    ("throttle", "--throttle"),
    ("window", "--window"),
    ("world_size", "--world-size"),
];

/// Options of packing, likewise.
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
    let (_, flag) = FLAGS.iter().chain(PACK_FLAGS).find(|(option, _)| *option == name)?;
    Some(value.map_or(flag.to_string(), |value| format!("{flag} {}", value.trim_matches('"'))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::PackArgs;
    use crate::run::RunArgs;
    use clap::{Args, Command};

    #[test]
    fn options_become_flags_and_nothing_else_changes() {
        for (message, spelled) in [
            ("use more `buffers`", "use more --buffers"),
            ("`fields` names a file", "--fields names a file"),
            ("`buffers` or `slots`", "--buffers or --slots"),
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
    fn every_flag_exists_and_every_option_too() {
        let command = RunArgs::augment_args(Command::new("run"));
        let options = serde_json::to_value(ddlp_host::LoaderOptions::default()).unwrap();
        let of_drive = serde_json::to_value(ddlp_host::LocalDrive::default()).unwrap();
        for (option, flag) in FLAGS {
            let is_flag = |arg: &clap::Arg| arg.get_long() == Some(&flag[2..]);
            assert!(command.get_arguments().any(is_flag), "{flag}");
            assert!(options.get(option).is_some() || of_drive.get(option).is_some(), "{option}");
        }
        let command = PackArgs::augment_args(Command::new("pack"));
        for (_, flag) in PACK_FLAGS {
            assert!(command.get_arguments().any(|arg| arg.get_long() == Some(&flag[2..])), "{flag}");
        }
    }
}
