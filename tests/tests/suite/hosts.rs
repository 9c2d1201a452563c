//! Agents with a list of allowed hosts know a machine by one NQN, whatever program runs there.

use ddlp_host::{DriveSpec, Host, LoaderBuilder, Strategy};
use ddlp_tests::agent::{Agent, program};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, chain, loader};
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const SAMPLES: u32 = 160;

/// A machine that an agent serves, and that has no identity in the kernel's files.
struct Scene {
    photos: Photos,
    _machine: TempDir,
    host: Host,
    nqn: String,
    agent: Agent,
}

impl Scene {
    fn new(extra: &[&str]) -> Self {
        let (photos, machine) = (Photos::new(SAMPLES), tempfile::tempdir().expect("a folder"));
        let host = Host::at(machine.path(), None);
        let nqn = host.identity().expect("it can be kept").nqn;
        let agent = serve(&photos, &nqn, extra);
        Self { photos, _machine: machine, host, nqn, agent }
    }

    fn run(&self, host: &Host) -> LoaderBuilder {
        let drive = DriveSpec::Remote(self.agent.url());
        loader(&self.photos.pack()).with(|o| o.strategy = Strategy::Csd).host(host.clone()).drive(drive)
    }
}

/// Starts an agent that serves only a host with this NQN.
fn serve(photos: &Photos, nqn: &str, extra: &[&str]) -> Agent {
    let config = photos.scratch().join("drive.toml");
    std::fs::write(&config, format!("allowed-hosts = [\"{nqn}\"]")).expect("a file");
    let config = ["--config", config.to_str().expect("text")];
    Agent::start(&photos.pack(), &photos.scratch().join("state"), &[&config[..], extra].concat())
}

fn ddlp(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(program("ddlp"));
    command.current_dir(folder).args(words).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn a_machine_that_is_allowed_is_served_and_another_is_told_what_to_allow() {
    let scene = Scene::new(&[]);
    let run = Run::of(scene.run(&scene.host));
    run.assert_exactly_once(1, SAMPLES.into());
    assert_eq!(run.drive_batches(), run.order.len());

    let elsewhere = tempfile::tempdir().expect("a folder");
    let stranger = Host::at(elsewhere.path(), None);
    let error = chain(&scene.run(&stranger).build().expect_err("refused"));
    let nqn = stranger.known().expect("kept for the next time");
    assert!(error.contains("allowed-hosts") && error.ends_with(&nqn), "{error}");
    assert_ne!(nqn, scene.nqn);
}

#[test]
fn two_runs_of_one_machine_share_an_agent_and_stay_apart() {
    // Both runs take the lowest slots first; if they were one host, each would write into the other's slots.
    let scene = &Scene::new(&[]);
    let reference = Run::of(loader(&scene.photos.pack()).with(|o| o.epochs = 2));
    let runs = std::thread::scope(|scope| {
        let start = |strategy| {
            let builder = scene.run(&scene.host).with(|o| (o.epochs, o.threads, o.strategy) = (2, Some(1), strategy));
            scope.spawn(|| Run::of(builder))
        };
        [start(Strategy::Mte), start(Strategy::Wrr)].map(|run| run.join().expect("it ends well"))
    });
    for run in &runs {
        run.assert_exactly_once(2, SAMPLES.into());
        assert_eq!(run.digest, reference.digest);
        assert!(run.troubles().is_empty(), "slots of one run are not given to another: {:?}", run.report.faults);
    }
}

#[test]
fn the_command_line_may_name_the_host() {
    let scene = Scene::new(&["--discovery", "0"]);
    let (pack, url) = (scene.photos.pack(), scene.agent.url());
    let run = |nqn: &str| {
        let job = ["run", pack.to_str().expect("text"), "--batch", "8", "--strategy", "csd", "--quiet"];
        ddlp(scene.photos.scratch(), &[&job[..], &["--drive", &url, "--host-nqn", nqn]].concat())
    };
    let served = run(&scene.nqn);
    assert!(served.status.success(), "{}", text(&served.stderr));
    let refused = run("nqn.2024-01.org.example:stranger");
    assert!(!refused.status.success());
    let said = text(&refused.stderr);
    assert!(said.contains("must name this host, nqn.2024-01.org.example:stranger"), "{said}");
}
