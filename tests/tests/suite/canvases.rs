//! Images of different sizes in one batch: each lies on a canvas, and the field `size` says how large it is there.

use ddlp_host::pixels::ops::{Fill, PadTo, RandomHorizontalFlip, Resize, Size};
use ddlp_host::{Batch, CorruptPolicy, DType, Field, FieldKind, LoaderBuilder, LocalResults, Pipeline, Strategy};
use ddlp_tests::agent::Agent;
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{Run, chain, images, loader, local};
use std::collections::BTreeMap;

const SAMPLES: u32 = 40;
const CANVAS: Size = Size { height: 60, width: 90 };
/// No image has a line of this colour.
const FILL: [u8; 3] = [255, 0, 255];

fn size(index: u32) -> (u32, u32) {
    (70 + index * 7 % 90, 50 + index * 11 % 80)
}

fn photos() -> Photos {
    Photos::with_sizes(SAMPLES, size)
}

fn pipeline() -> Pipeline {
    let canvas = PadTo { size: CANVAS, fill: Fill(FILL) };
    Pipeline::of([Resize::to(48).into(), RandomHorizontalFlip { p: 0.5 }.into(), canvas.into()])
}

/// Returns the height and width of each row of a batch, after checking that the rest of its canvas is empty.
fn sizes(batch: &Batch) -> Vec<[i64; 2]> {
    let field = batch.field("size").unwrap();
    let expected =
        Field { name: "size".into(), kind: FieldKind::Vector, dtype: DType::I64, layout: None, shape: vec![2] };
    assert_eq!(*field.field(), expected);
    let sizes: Vec<[i64; 2]> = field.as_slice::<i64>().unwrap().as_chunks::<2>().0.to_vec();
    for (&[height, width], image) in sizes.iter().zip(images::<u8>(batch)) {
        let pixels = image.as_chunks::<3>().0;
        let is_empty = |x: i64, y: i64| pixels[(y * i64::from(CANVAS.width) + x) as usize] == FILL;
        let rest = |x: i64, y: i64| x >= width || y >= height;
        let (wide, high) = (i64::from(CANVAS.width), i64::from(CANVAS.height));
        assert!((0..high).all(|y| (0..wide).all(|x| !rest(x, y) || is_empty(x, y))), "{height} x {width}");
        assert!(!(0..width).all(|x| is_empty(x, height - 1)) && !(0..height).all(|y| is_empty(width - 1, y)));
    }
    sizes
}

/// Returns what each sample's size on its canvas has to be, by its name.
fn expected(index: u32) -> [i64; 2] {
    let (width, height) = size(index);
    let (short, long) = (width.min(height), width.max(height));
    let long = 48 * long / short;
    let (width, height) = if width <= height { (48, long) } else { (long, 48) };
    // The canvas is 90 wide and 60 high.
    let (width, height) = if width * 60 >= height * 90 {
        if width > 90 { (90, height * 90 / width) } else { (width, height) }
    } else if height > 60 {
        (width * 60 / height, 60)
    } else {
        (width, height)
    };
    [height.into(), width.into()]
}

#[test]
fn the_field_size_says_how_large_each_image_is_on_its_canvas() {
    let photos = photos();
    photos.write(7, b"no image");
    let dataset = ddlp_dataset::open(&photos.folder()).unwrap();
    let number =
        |id: u64| -> u32 { dataset.name(id).rsplit_once('/').unwrap().1.trim_end_matches(".jpg").parse().unwrap() };
    let of = |builder: LoaderBuilder| {
        builder.with(|o| (o.pipeline, o.policy, o.epochs) = (pipeline(), CorruptPolicy::Skip, 2))
    };
    let check = |builder: LoaderBuilder, what: &str| {
        let mut found = BTreeMap::new();
        let run = Run::with(builder, |batch, _| {
            for (&id, size) in batch.sample_ids().iter().zip(sizes(batch)) {
                found.insert((batch.epoch(), id), size);
            }
        });
        run.assert_exactly_once(2, u64::from(SAMPLES) - 1);
        for (&(_, id), &size) in &found {
            assert_eq!(size, expected(number(id)), "{what}: {}", dataset.name(id));
        }
        run.digest
    };
    let digest = check(of(loader(&photos.pack())), "pack");
    assert_eq!(check(of(loader(&photos.folder())).with(|o| o.threads = Some(3)), "folder"), digest);
    for results in [LocalResults::Shared, LocalResults::Read] {
        for strategy in [Strategy::Csd, Strategy::Ordered] {
            let builder = of(loader(&photos.pack())).with(|o| o.strategy = strategy).drive(local(results.clone()));
            assert_eq!(check(builder, "drive"), digest, "{strategy}");
        }
    }
    let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "8"]);
    assert_eq!(check(of(loader(agent.url().as_ref())), "alone"), digest);
}

#[test]
fn a_replaced_sample_has_the_size_of_its_replacement() {
    let photos = photos();
    photos.write(7, b"no image");
    let builder = loader(&photos.folder()).with(|o| (o.pipeline, o.policy) = (pipeline(), CorruptPolicy::Replace));
    Run::with(builder, |batch, _| drop(sizes(batch))).assert_exactly_once(1, SAMPLES.into());
}

#[test]
fn canvases_and_buckets_go_together() {
    let photos = photos();
    let high = PadTo { size: Size { height: 90, width: 60 }, fill: Fill(FILL) };
    let high = Pipeline::of([Resize::to(48).into(), high.into()]);
    let (mut shapes, mut count) = (Vec::new(), 0);
    Run::with(loader(&photos.pack()).with(|o| o.buckets = vec![pipeline(), high]), |batch, _| {
        let [height, width, _] = batch.field("image").unwrap().field().shape[..] else { panic!("three dimensions") };
        for size in batch.field("size").unwrap().as_slice::<i64>().unwrap().as_chunks::<2>().0 {
            assert!(size[0] <= height.into() && size[1] <= width.into());
            count += 1;
        }
        shapes.push((height, width));
    });
    shapes.sort_unstable();
    shapes.dedup();
    assert_eq!((shapes, count), (vec![(60, 90), (90, 60)], SAMPLES));
}

#[test]
fn what_cannot_go_with_canvases_is_refused() {
    let photos = photos();
    let of = || loader(&photos.pack()).with(|o| o.pipeline = pipeline());
    let refused = |builder: LoaderBuilder| chain(&builder.build().unwrap_err());
    assert!(refused(of().with(|o| o.mixup = 0.2)).contains("PadTo"));
    let field = Field { name: "size".into(), kind: FieldKind::Vector, dtype: DType::F32, layout: None, shape: vec![] };
    assert!(refused(of().field(field, vec![0; 4 * SAMPLES as usize])).contains("choose another one"));
    let said = refused(loader(&photos.pack()).with(|o| o.buckets = vec![pipeline(), Pipeline::imagenet_val()]));
    assert!(said.contains("end with PadTo"), "{said}");
}
