//! `ddlp sample-data`: makes an image folder of photographs for trials, without a download.

mod partial;
mod photos;
mod recipe;

use crate::interrupt::Interrupt;
use crate::progress::SampleProgress;
use crate::wrong::wrong;
use crate::{Ending, output, text};
use anyhow::{Context, bail};
use clap::Args;
use ddlp_csd::memory::thread_refused;
use partial::Partial;
use recipe::Recipe;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

/// Make an image folder of photographs for trials.
///
/// The images are random windows of a few photographs that are part of this program, encoded in the mix of sizes,
/// qualities and layouts that photographic training sets have. The same options give the same files on every machine.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ddlp sample-data photos                           600 images in 10 classes
  ddlp sample-data photos --images 5000 --bad 20    the last 20 are damaged")]
pub struct SampleDataArgs {
    /// The folder to create; it must not exist, or be empty
    out: PathBuf,
    /// Number of images
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    images: u64,
    /// Number of classes, at most the number of images
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    classes: u64,
    /// Seed for all random choices
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Number of damaged images (cut short, empty, or text instead of an image), the last ones
    #[arg(long, value_name = "N", default_value_t = 0)]
    bad: u64,
    /// Print no progress and no summary, only errors
    #[arg(long, short)]
    quiet: bool,
}

/// Runs the command.
pub fn sample_data(args: &SampleDataArgs, interrupt: &Interrupt) -> anyhow::Result<Ending> {
    let out = args.out.as_path();
    if fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) || (out.exists() && !out.is_dir()) {
        bail!("{} exists and is not empty: name another folder, or remove it first", out.display());
    }
    if args.bad > args.images {
        wrong!("--bad {} is more than the {} that --images asks for", args.bad, text::plural(args.images, "image"));
    }
    let handling = interrupt.handle(|| {});
    let made = make_folder(args, out, interrupt);
    drop(handling);
    let Some((bytes, seconds)) = made? else {
        eprintln!("stopped: {} was not made, nothing is left behind", out.display());
        return Ok(Ending::Interrupted);
    };
    if !args.quiet {
        output::print(&format!(
            "{}: {} in {}, {} on average, in {}\n",
            out.display(),
            text::plural(args.images, "image"),
            text::plural(args.classes.min(args.images), "class"),
            text::bytes(bytes / args.images),
            text::seconds(seconds)
        ))?;
        if args.classes > args.images {
            output::print(&format!(
                "note: --classes {} is more than there are images: each class has one\n",
                args.classes
            ))?;
        }
    }
    Ok(Ending::Done)
}

/// Makes the folder beside its place and moves it there when it is complete. Returns bytes and seconds, or `None` after
/// Ctrl-C.
fn make_folder(args: &SampleDataArgs, out: &Path, interrupt: &Interrupt) -> anyhow::Result<Option<(u64, f64)>> {
    let folder = Partial::create(out)?;
    let mut progress = SampleProgress::new("encoding", args.quiet);
    let bytes = make_images(args, &folder, interrupt, &mut progress)?;
    let seconds = progress.elapsed().as_secs_f64();
    let Some(bytes) = bytes else { return Ok(None) };
    folder.commit()?;
    Ok(Some((bytes, seconds)))
}

/// Makes all images on all cores. Returns their bytes, or `None` after Ctrl-C.
fn make_images(
    args: &SampleDataArgs,
    folder: &Partial,
    interrupt: &Interrupt,
    progress: &mut SampleProgress,
) -> anyhow::Result<Option<u64>> {
    for class in 0..args.classes.min(args.images) {
        let path = class_folder(folder.path(), class);
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get());
    let next = AtomicU64::new(0);
    let (sender, made) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next) = (sender.clone(), &next);
            let work = move || {
                let mut recipe = Recipe::new(args.seed);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let over = number >= args.images || interrupt.requested();
                    if over || sender.send(make_image(args, folder.path(), &mut recipe, number)).is_err() {
                        return;
                    }
                }
            };
            thread::Builder::new().spawn_scoped(scope, work).map_err(thread_refused)?;
        }
        drop(sender);
        let (mut images, mut bytes) = (0, 0);
        for size in made {
            bytes += size?;
            images += 1;
            progress.update(images, args.images, bytes, "");
        }
        Ok((images == args.images).then_some(bytes))
    })
}

fn class_folder(folder: &Path, class: u64) -> PathBuf {
    folder.join(format!("class_{class:03}"))
}

fn make_image(args: &SampleDataArgs, folder: &Path, recipe: &mut Recipe, number: u64) -> anyhow::Result<u64> {
    let bad = number >= args.images - args.bad;
    let made = if bad { recipe.bad(number) } else { recipe.image(number) };
    let bytes = made.with_context(|| format!("image {number} cannot be made"))?;
    let path = class_folder(folder, number % args.classes).join(format!("{number:06}.jpg"));
    fs::write(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(bytes.len() as u64)
}
