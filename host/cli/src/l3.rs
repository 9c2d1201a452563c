//! `ddlp l3`: converts images to L3 and back, and describes images in L3.

use crate::wrong::wrong;
use crate::{Ending, output, text};
use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use ddlp_l3::{Image, OpenImage, Options, PatchSize, Region};
use image::codecs::pnm::{PnmEncoder, PnmSubtype, SampleEncoding};
use image::{ColorType, DynamicImage, ExtendedColorType, ImageEncoder, ImageError, ImageFormat, ImageReader};
use std::fs;
use std::io::Cursor;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The command `ddlp l3`.
#[derive(Subcommand)]
pub enum L3Command {
    Encode(EncodeArgs),
    Decode(DecodeArgs),
    /// Check every byte of an image in L3, and print its size.
    Info {
        /// The image in L3
        file: PathBuf,
    },
}

/// Convert an image to L3, without loss.
///
/// Reads PNG, BMP, PPM, PGM and WebP, gray or RGB with 8 bits per channel.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ddlp l3 encode street.png street.l3
  ddlp l3 encode street.png street.l3 --patch 32    # crops read fewer bytes")]
pub struct EncodeArgs {
    /// The image
    image: PathBuf,
    /// The image in L3 to write, or - for standard output
    out: PathBuf,
    /// Side of a patch in pixels [default: 64, or 32 for an image that has at most 32 columns and rows]
    #[arg(long, value_enum)]
    patch: Option<Patch>,
    #[command(flatten)]
    threads: Threads,
}

/// Convert an image in L3 to another format, or a part of it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ddlp l3 decode street.l3 street.png
  ddlp l3 decode street.l3 corner.png --region 0,0,640,480    # only the patches there are decoded")]
pub struct DecodeArgs {
    /// The image in L3
    image: PathBuf,
    /// The image to write; its ending says the format: png, bmp, ppm or pgm
    out: PathBuf,
    /// Only this part: its first column and row, and its width and height in pixels [default: the whole image]
    #[arg(long, value_name = "X,Y,WIDTH,HEIGHT", value_parser = region)]
    region: Option<Region>,
    #[command(flatten)]
    threads: Threads,
}

#[derive(Clone, Copy, ValueEnum)]
enum Patch {
    #[value(name = "32")]
    Side32,
    #[value(name = "64")]
    Side64,
    /// The side that gives the smaller file
    Smaller,
}

#[derive(Args)]
struct Threads {
    /// Threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl Threads {
    fn count(&self) -> usize {
        let per_core = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(per_core, usize::from)
    }
}

fn region(text: &str) -> Result<Region, String> {
    let numbers: Option<Vec<usize>> = text.split(',').map(|number| number.parse().ok()).collect();
    match numbers.as_deref() {
        Some(&[x, y, width, height]) => Ok(Region { x, y, width, height }),
        _ => Err("expected four whole numbers, such as 0,0,640,480".into()),
    }
}

/// Runs the command.
pub fn l3(command: &L3Command) -> anyhow::Result<Ending> {
    match command {
        L3Command::Encode(args) => encode(args)?,
        L3Command::Decode(args) => decode(args)?,
        L3Command::Info { file } => output::print(&describe(file)?)?,
    }
    Ok(Ending::Done)
}

fn encode(args: &EncodeArgs) -> anyhow::Result<()> {
    check_files(&args.image, &args.out)?;
    let name = args.image.display();
    let source = pixels(&read(&args.image)?).with_context(|| format!("cannot encode {name}"))?;
    let (width, height) = (source.width() as usize, source.height() as usize);
    let image = Image::new(source.as_bytes(), width, height, source.color().channel_count().into())?;
    let patch = match args.patch {
        None => PatchSize::BySize,
        Some(Patch::Side32) => PatchSize::Side32,
        Some(Patch::Side64) => PatchSize::Side64,
        Some(Patch::Smaller) => PatchSize::Smaller,
    };
    let bytes = ddlp_l3::encode(image, Options { patch, threads: args.threads.count() });
    output::write(&args.out, &bytes, "the image in L3")?;
    output::say_written(&args.out, &size_text(bytes.len(), source.as_bytes().len()))
}

/// Decodes an image of another format.
fn pixels(file: &[u8]) -> anyhow::Result<DynamicImage> {
    const FORMATS: [ImageFormat; 4] = [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::Pnm, ImageFormat::WebP];
    let reader = ImageReader::new(Cursor::new(file)).with_guessed_format()?;
    if !reader.format().is_some_and(|format| FORMATS.contains(&format)) {
        if reader.format() == Some(ImageFormat::Jpeg) {
            bail!("it is a JPEG, which L3 would make larger: `ddlp pack` stores JPEGs as they are");
        }
        bail!("it is not a PNG, BMP, PPM, PGM or WebP image");
    }
    let image = reader.decode()?;
    match image.color() {
        ColorType::L8 | ColorType::Rgb8 => Ok(image),
        color if color.has_alpha() => bail!("it has an alpha channel, which L3 does not store: remove it first"),
        _ => bail!("it has more than 8 bits per channel, which L3 does not store: convert it to 8 bits first"),
    }
}

fn decode(args: &DecodeArgs) -> anyhow::Result<()> {
    check_files(&args.image, &args.out)?;
    let format = match ImageFormat::from_path(&args.out) {
        Ok(format @ (ImageFormat::Png | ImageFormat::Bmp | ImageFormat::Pnm)) => format,
        _ => wrong!("{}: its ending must be png, bmp, ppm or pgm", args.out.display()),
    };
    let (name, bytes) = (args.image.display(), read(&args.image)?);
    let opened = OpenImage::open(&bytes).with_context(|| format!("cannot read {name}"))?;
    let whole = opened.index().whole();
    let region = args.region.unwrap_or(whole);
    let pixels = if region == whole {
        opened.decode(args.threads.count())
    } else {
        let stride = region.width.saturating_mul(opened.channels());
        opened.index().pieces(region).and_then(|_| {
            let mut pixels = vec![0; stride * region.height];
            opened.decode_region(region, &mut pixels, stride).map(|()| pixels)
        })
    };
    let pixels = pixels.with_context(|| format!("cannot decode {name}"))?;
    let color = if opened.channels() == 1 { ExtendedColorType::L8 } else { ExtendedColorType::Rgb8 };
    let mut out = Cursor::new(Vec::new());
    encode_as(&mut out, &pixels, region, color, format)
        .with_context(|| format!("cannot make {} of {name}", args.out.display()))?;
    output::write(&args.out, out.get_ref(), "the image")?;
    let size = text::bytes(out.get_ref().len() as u64);
    output::say_written(&args.out, &format!("{}×{}, {size}", region.width, region.height))
}

fn encode_as(
    out: &mut Cursor<Vec<u8>>,
    pixels: &[u8],
    region: Region,
    color: ExtendedColorType,
    format: ImageFormat,
) -> Result<(), ImageError> {
    // The sides of an image in L3 fit into 32 bits.
    let (width, height) = (region.width as u32, region.height as u32);
    if format != ImageFormat::Pnm {
        return image::write_buffer_with_format(out, pixels, width, height, color, format);
    }
    // By itself, the encoder writes PAM, which fewer programs read.
    let kind = match color {
        ExtendedColorType::L8 => PnmSubtype::Graymap(SampleEncoding::Binary),
        _ => PnmSubtype::Pixmap(SampleEncoding::Binary),
    };
    PnmEncoder::new(out).with_subtype(kind).write_image(pixels, width, height, color)
}

fn describe(file: &Path) -> anyhow::Result<String> {
    let (name, bytes) = (file.display(), read(file)?);
    let opened = OpenImage::open(&bytes).with_context(|| format!("cannot read {name}"))?;
    let pixels = opened.decode(1).with_context(|| format!("cannot decode {name}"))?;
    let index = opened.index();
    let color = if index.channels() == 1 { "gray" } else { "RGB" };
    Ok(format!(
        "{name}: {}×{} {color}, patches of {side}×{side}, {}, intact\n",
        index.width(),
        index.height(),
        size_text(bytes.len(), pixels.len()),
        side = index.patch_side(),
    ))
}

/// Describes the size of an image in L3 with this number of bytes, relative to its pixels.
fn size_text(bytes: usize, pixel_bytes: usize) -> String {
    let share = 100.0 * bytes as f64 / pixel_bytes as f64;
    format!("{} ({share:.1} % of the pixels' bytes)", text::bytes(bytes as u64))
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Refuses an output that cannot be written or would replace the input.
fn check_files(input: &Path, out: &Path) -> anyhow::Result<()> {
    let file = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    if file(input).is_some_and(|input| file(out) == Some(input)) {
        wrong!("{} would be overwritten: name another file", input.display());
    }
    output::check_writable(out, "the image")
}
