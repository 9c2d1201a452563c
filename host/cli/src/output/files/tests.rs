use super::*;
use clap::{Arg, Args, Command};
use std::any::TypeId;
use std::os::unix::fs::symlink;

/// Fails if an option of a command may name a file that `files` does not have, so that no command forgets a new option.
/// An option may name a file if its value is a path, is called FILE in the help, or is a text of any kind that is not
/// called COLUMN or TABLE. `others` are further options whose text is no file's name; the dataset is checked on its
/// own.
pub fn assert_complete<A: Args>(files: impl Fn(&A) -> Files<'_>, others: &[&str]) {
    const GIVEN: &str = "./given.file";
    let command = A::augment_args(Command::new("command").no_binary_name(true));
    let mut found = Vec::new();
    for arg in command.get_arguments().filter(|arg| may_name_a_file(arg) && !others.contains(&arg.get_id().as_str())) {
        let positionals = command.get_positionals().filter(|other| !other.is_last_set());
        let mut words: Vec<String> = positionals.map(|other| if other == arg { GIVEN } else { "x" }.into()).collect();
        let is_part = arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == "FILE:PART"));
        let part = if is_part { ":part" } else { "" };
        words.extend(arg.get_long().map(|long| format!("--{long}={GIVEN}{part}")));
        let args = A::from_arg_matches(&command.clone().try_get_matches_from(&words).unwrap()).unwrap();
        let files = files(&args);
        let mut named = files.outputs.iter().map(|(_, path)| *path).chain(files.inputs.iter().map(|(_, path)| &**path));
        assert!(named.any(|path| path == Path::new(GIVEN)), "{} is neither an input nor an output", arg.get_id());
        found.push(arg.get_id().to_string());
    }
    assert!(!found.is_empty());
}

fn may_name_a_file(arg: &Arg) -> bool {
    let kind = arg.get_value_parser().type_id();
    let is_path = [TypeId::of::<PathBuf>(), TypeId::of::<std::ffi::OsString>()].iter().any(|path| kind == *path);
    let is_text = kind == TypeId::of::<String>() && arg.get_possible_values().is_empty();
    let names = arg.get_value_names().unwrap_or_default();
    let is_text = is_text && !names.iter().any(|name| ["COLUMN", "TABLE"].contains(&name.as_str()));
    let is_called_file = names.iter().any(|name| name.contains("FILE"));
    let is_dataset = arg.is_positional() && ["dataset", "source"].contains(&arg.get_id().as_str());
    arg.get_action().takes_values() && (is_path || is_text || is_called_file) && !is_dataset
}

/// Makes an image folder `photos`, files `at.json` and `p.toml`, and links to files of both kinds.
fn home() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let here = home.path().to_owned();
    fs::create_dir_all(here.join("photos/a")).unwrap();
    for file in ["photos/a/1.jpg", "at.json", "p.toml"] {
        fs::write(here.join(file), file).unwrap();
    }
    symlink("photos/a/1.jpg", here.join("to-image")).unwrap();
    symlink("nothing-yet", here.join("dangling")).unwrap();
    symlink("at.json", here.join("to-at")).unwrap();
    fs::hard_link(here.join("p.toml"), here.join("p2.toml")).unwrap();
    fs::hard_link(here.join("photos/a/1.jpg"), here.join("image2")).unwrap();
    symlink(here.join("photos"), here.join("album")).unwrap();
    (home, here)
}

fn check(here: &Path, outputs: &[(&'static str, &str)]) -> Result<(), String> {
    let dataset = ddlp_dataset::open(&here.join("photos")).unwrap();
    let paths: Vec<PathBuf> = outputs.iter().map(|(_, path)| here.join(path)).collect();
    let mut files = Files::default()
        .reads("--resume", Some(here.join("at.json")))
        .reads("--pipeline", Some(here.join("p.toml")))
        .reads("--plan-in", Some(here.join("missing")));
    for ((option, name), path) in outputs.iter().zip(&paths) {
        files = files.writes(option, Some(if *name == "-" { Path::new("-") } else { path }));
    }
    files.check(&*dataset, &here.join("photos")).map_err(|error| error.to_string())
}

#[test]
fn no_input_is_overwritten_by_any_of_its_names() {
    let (_home, here) = home();
    for (output, named) in [
        ("at.json", "--resume"),
        ("to-at", "--resume"),
        ("p.toml", "--pipeline"),
        ("p2.toml", "--pipeline"),
        ("photos/../at.json", "--resume"),
        ("photos/a/1.jpg", "dataset"),
        ("to-image", "dataset"),
        ("image2", "dataset"),
        ("album/a/1.jpg", "dataset"),
        ("album/a/new.jpg", "dataset"),
    ] {
        let error = check(&here, &[("--json", output)]).unwrap_err();
        assert!(error.contains("--json") && error.contains(output) && error.contains(named), "{output}: {error}");
    }
}

#[test]
fn outputs_are_told_apart() {
    let (_home, here) = home();
    for (one, other) in [("o", "o"), ("dangling", "nothing-yet"), ("photos/o", "album/o"), ("new", "./new")] {
        let error = check(&here, &[("--json", one), ("--report", other)]).unwrap_err();
        assert!(error.contains("--report and --json are the same file"), "{one} {other}: {error}");
    }
}

#[test]
fn one_output_at_most_goes_to_standard_output() {
    let (_home, here) = home();
    let error = check(&here, &[("--json", "-"), ("--report", "o"), ("--state-out", "-")]).unwrap_err();
    assert!(error.contains("--state-out and --json both go to standard output"), "{error}");
}

#[test]
fn the_folder_of_an_output_is_missing() {
    let (_home, here) = home();
    let error = check(&here, &[("--results", "no/dir/f")]).unwrap_err();
    assert!(error.contains("--results cannot go to") && error.contains("folder is missing"), "{error}");
}

#[test]
fn harmless_outputs_pass() {
    let (_home, here) = home();
    check(&here, &[("--state-out", "at.json"), ("--json", "o.json"), ("--report", "photos/o.html")]).unwrap();
    check(&here, &[("--state-out", "to-at"), ("--json", "-")]).unwrap();
    check(&here, &[("--json", "/dev/null"), ("--report", "/dev/null"), ("--plan-out", "dangling")]).unwrap();
}
