//! Runs with a cache that are killed while they write it, or whose disk is full: every byte that is read is right, the
//! cache takes no more room than it may, and what was left is cleaned up.

use crate::ranges::over;
use ddlp_dataset::pack::{PackFormat, StoredForm};
use ddlp_host::LoaderBuilder;
use ddlp_tests::agent::program;
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::Run;
use ddlp_tests::web::{Answer, WebServer};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The least limit of a cache: its segments have 256 KiB.
const LIMIT: u64 = 16 << 20;

/// A dataset of raw images of 27 KB at a server.
struct Stored {
    _photos: Photos,
    pack: PathBuf,
    server: WebServer,
}

impl Stored {
    fn new(samples: u32, width: u32, plan: impl FnMut() + Send + 'static) -> Self {
        let photos = Photos::with_sizes(samples, |index| (width + index % 5, 90 + index % 7));
        let pack = photos.pack_as("raw.ddlp", PackFormat::of(StoredForm::Raw));
        let mut plan = plan;
        let server = WebServer::start(fs::read(&pack).unwrap(), move |_| {
            plan();
            Answer::Range
        });
        Self { _photos: photos, pack, server }
    }

    fn cached(&self, folder: &Path, limit: u64) -> LoaderBuilder {
        over(&self.server.url()).with(|o| (o.cache, o.cache_limit, o.epochs) = (Some(folder.into()), Some(limit), 1))
    }

    /// Runs without a cache.
    fn digest_of_file(&self) -> String {
        Run::of(over(self.pack.to_str().unwrap()).with(|o| o.epochs = 1)).ordered_digest
    }
}

/// Returns the files of all datasets in a cache's folder.
fn files(folder: &Path) -> Vec<(PathBuf, Metadata)> {
    let within = |folder: &Path| fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let datasets = within(folder).filter(|path| path.is_dir());
    // A process may remove a file meanwhile.
    let files = datasets.flat_map(|dataset| within(&dataset).collect::<Vec<_>>());
    files.filter_map(|path| fs::metadata(&path).ok().map(|file| (path, file))).collect()
}

/// Lets two processes at a time write the same cache, and kills each when a drawn number of bytes was written. Three
/// datasets take each other's room if they have many samples.
fn kill(kills: u32, samples: u32) {
    let (folder, mut rng) = (tempfile::tempdir().unwrap(), ChaCha8Rng::seed_from_u64(kills.into()));
    let stored = [98, 100, 103].map(|width| Stored::new(samples, width, || ()));
    let digests = stored.each_ref().map(Stored::digest_of_file);
    let start = |stored: &Stored| -> Child {
        let mut command = Command::new(program("ddlp"));
        command.args([
            "run",
            &stored.server.url(),
            "--strategy",
            "cpu",
            "--batch",
            "8",
            "--seed",
            "7",
            "--threads",
            "2",
        ]);
        command.args(["--quiet", "--digest", "--cache"]).arg(folder.path()).args(["--cache-limit", &LIMIT.to_string()]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (mut killed, mut round) = (0, 0);
    while killed < kills {
        round += 1;
        assert!(round <= 4 * kills, "{killed} kills in {round} rounds");
        // So that there is always something to write.
        let datasets = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let datasets: Vec<PathBuf> = datasets.filter(|path| path.is_dir()).collect();
        if let Some(removed) = datasets.get(rng.next_u32() as usize % 3) {
            fs::remove_dir_all(removed).unwrap();
        }
        let which = [0, 1].map(|_| rng.next_u32() as usize % stored.len());
        let most = u64::from(samples) * 20_000;
        let after = [0, 1].map(|_| rng.next_u64() % most);
        let before: HashSet<PathBuf> = files(folder.path()).into_iter().map(|(path, _)| path).collect();
        let mut children = which.map(|which| Some(start(&stored[which])));
        while children.iter().any(Option::is_some) {
            let new = |(path, file): (PathBuf, Metadata)| (!before.contains(&path)).then_some(file.blocks() * 512);
            let written: u64 = files(folder.path()).into_iter().filter_map(new).sum();
            for (number, place) in children.iter_mut().enumerate() {
                let Some(child) = place else { continue };
                let ended = child.try_wait().unwrap();
                if ended.is_none() && written > after[number] {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    killed += 1;
                } else if let Some(status) = ended {
                    let [mut said, mut wrong] = [String::new(), String::new()];
                    child.stdout.as_mut().unwrap().read_to_string(&mut said).unwrap();
                    child.stderr.as_mut().unwrap().read_to_string(&mut wrong).unwrap();
                    assert!(status.success() && said.contains(&digests[which[number]]), "{said}{wrong}");
                } else {
                    continue;
                }
                *place = None;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        let bytes: u64 = files(folder.path()).iter().map(|(_, file)| file.len()).sum();
        assert!(bytes <= LIMIT, "round {round}: {bytes} bytes");
        if round % 3 == 0 || killed >= kills {
            let of = rng.next_u32() as usize % stored.len();
            let run = Run::of(stored[of].cached(folder.path(), LIMIT));
            assert_eq!(run.ordered_digest, digests[of], "round {round}");
            let cache = run.report.cache.unwrap();
            assert_eq!(cache.off, None);
            assert!(cache.mb + cache.kept_mb > 0.0, "{cache:?}");
        }
    }
    for (stored, digest) in stored.iter().zip(&digests) {
        assert_eq!(Run::of(stored.cached(folder.path(), LIMIT)).ordered_digest, *digest);
    }
    // Everybody has ended, and each dataset was opened again.
    for (path, file) in files(folder.path()) {
        assert!(!path.to_str().unwrap().ends_with(".new"), "{path:?}");
        assert!(file.len() <= file.blocks() * 512 + 4096, "{path:?}: {} bytes of room that nobody needs", file.len());
    }
}

#[test]
fn runs_that_are_killed_leave_a_cache_without_a_wrong_byte() {
    kill(6, 40);
}

#[test]
#[ignore = "takes more than a minute: .ci/full runs it"]
fn two_hundred_runs_that_are_killed_leave_a_cache_without_a_wrong_byte() {
    kill(200, 240);
}

/// A disk of its own, in memory; unmounted when dropped.
struct Disk(tempfile::TempDir);

impl Disk {
    /// Mounts a disk; `None`, with a line that says why, if this user may not.
    fn mount(bytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mut command = Command::new("mount");
        let mount = command.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path()).stderr(Stdio::null());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Self(folder));
        }
        println!("SKIPPED: a disk that is full needs the right to mount one");
        None
    }

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
#[ignore = "takes half a minute: .ci/full runs it"]
fn a_disk_that_is_full_at_any_moment_costs_requests_alone() {
    const SAMPLES: u32 = 240;
    let Some(disk) = Disk::mount(12 << 20) else { return };
    // The disk is filled when this many requests are left.
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let stored = {
        let (left, filler) = (left.clone(), disk.filler());
        Stored::new(SAMPLES, 100, move || {
            if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                let mut file = File::create(&filler).unwrap();
                // Ends when the disk is full.
                while file.write_all(&[1; 4096]).is_ok() || file.write_all(&[1]).is_ok() {}
            }
        })
    };
    let (digest, folder) = (stored.digest_of_file(), disk.0.path().join("cache"));
    let mut rng = ChaCha8Rng::seed_from_u64(50);
    let mut off = 0;
    for round in 0..50 {
        if rng.next_u32() % 3 > 0 {
            let _ = fs::remove_dir_all(&folder);
        }
        left.store(1 + u64::from(rng.next_u32() % SAMPLES), Ordering::Relaxed);
        let run = |what: &str| {
            let run = Run::of(stored.cached(&folder, 64 << 20));
            assert_eq!(run.ordered_digest, digest, "round {round}, {what}");
            run.report.cache.unwrap().off
        };
        off += u32::from(run("the disk becomes full").is_some());
        run("the disk is full from the beginning");
        left.store(u64::MAX, Ordering::Relaxed);
        let _ = fs::remove_file(disk.filler());
        assert_eq!(run("the disk has room again"), None, "round {round}");
        assert!(files(&folder).iter().all(|(path, _)| !path.to_str().unwrap().ends_with(".new")));
    }
    assert!(off > 20, "the disk was full in {off} of 50 runs");
}
