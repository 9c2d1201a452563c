use super::*;
use std::fs;

/// Makes a dataset of images of one colour, of which the second is damaged, and the arguments to show it.
fn dataset(out: &str) -> (tempfile::TempDir, ShowArgs) {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos");
    for class in 0..3u8 {
        fs::create_dir_all(photos.join(format!("class<{class}>"))).unwrap();
        let values = if class == 1 { 7 } else { 50 * 30 * 3 };
        let file = [b"P6 50 30 255\n".to_vec(), vec![90 * class + 20; values]].concat();
        fs::write(photos.join(format!("class<{class}>/x.ppm")), file).unwrap();
    }
    let pipeline = folder.path().join("p.toml");
    fs::write(&pipeline, "operations = [{ random_resized_crop = { size = [20, 24] } }, { random_invert = {} }]")
        .unwrap();
    let args = ShowArgs {
        dataset: photos,
        opening: OpeningArgs::default(),
        pipeline: pipeline.to_str().unwrap().into(),
        out: folder.path().join(out),
        samples: 4,
        draws: 3,
        seed: 1,
    };
    (folder, args)
}

fn sheet(args: &ShowArgs) -> Sheet {
    Sheet::of(&*ddlp_dataset::open(&args.dataset).unwrap(), pipeline(&args.pipeline).unwrap(), args).unwrap()
}

#[test]
fn every_option_that_names_a_file_is_an_input_or_an_output() {
    output::assert_complete(files, &[]);
}

#[test]
fn a_sheet_has_each_sample_as_it_is_and_as_it_is_drawn() {
    let (_folder, args) = dataset("sheet.png");
    let sheet = sheet(&args);
    assert_eq!((sheet.width, sheet.height, sheet.rows.len()), (24, 20, 3));
    let described: Vec<_> = sheet.rows.iter().map(|row| (row.index, row.label.as_str(), row.images.len())).collect();
    assert_eq!(described, [(0, "class<0>", 4), (1, "class<1>", 4), (2, "class<2>", 4)]);
    let whole = sheet.rows[2].images[0].as_ref().unwrap();
    // 20 × 12 pixels in the middle of 24 × 20.
    assert_eq!(whole.iter().filter(|&&value| value == 200).count(), 20 * 12 * 3);
    assert_eq!(whole.iter().filter(|&&value| value == 0).count(), (24 * 20 - 20 * 12) * 3);
    for drawn in &sheet.rows[2].images[1..] {
        let drawn = drawn.as_ref().unwrap();
        assert!(drawn.iter().all(|value| *value == 200) || drawn.iter().all(|value| *value == 55));
    }
    assert!(sheet.rows[1].images.iter().all(Result::is_err), "a damaged sample has a reason");
}

#[test]
fn a_sheets_draws_are_those_of_a_run() {
    let (_folder, args) = dataset("sheet.png");
    let sheet = sheet(&args);
    let loader = ddlp_host::Loader::builder().with(|o| {
        o.dataset = Some(args.dataset);
        o.pipeline = pipeline(&args.pipeline).unwrap();
        o.seed = 1;
        o.epochs = 3;
        o.policy = CorruptPolicy::Skip;
        o.strategy = ddlp_host::Strategy::Cpu;
    });
    let mut count = 0;
    for batch in loader.build().unwrap() {
        let batch = batch.unwrap();
        let images = batch.field("image").unwrap().as_slice::<u8>().unwrap();
        for (&id, image) in batch.sample_ids().iter().zip(images.chunks_exact(24 * 20 * 3)) {
            let shown = &sheet.rows[id as usize].images[1 + batch.epoch() as usize];
            assert_eq!(shown.as_deref(), Ok(image));
            count += 1;
        }
    }
    assert_eq!(count, 6);
}

#[test]
fn the_files_name_says_what_it_is() {
    for (name, begins) in [("a.html", &b"<!DOCTYPE html>"[..]), ("a.PNG", b"\x89PNG"), ("a.jpeg", &[0xFF, 0xD8, 0xFF])]
    {
        let (_folder, args) = dataset(name);
        assert_eq!(show(&args).unwrap(), Ending::Done);
        let written = fs::read(&args.out).unwrap();
        assert!(written.starts_with(begins), "{name}");
        if name == "a.html" {
            let page = String::from_utf8(written).unwrap();
            assert_eq!(page.matches("data:image/png;base64,").count(), 8);
            assert!(page.contains("class&lt;2&gt;") && !page.contains("class<") && page.contains("epoch 2"));
        }
    }
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let (folder, args) = dataset("sheet.gif");
    assert!(show(&args).unwrap_err().to_string().contains("ends in .html, .png, .jpg"));
    let many = ShowArgs { samples: 3, draws: 1000, out: "x.png".into(), pipeline: "imagenet-train".into(), ..args };
    assert!(show(&many).unwrap_err().to_string().contains("fewer --samples or --draws"));
    let image = many.dataset.join("class<0>/x.png");
    let over = ShowArgs { out: image.clone(), ..many };
    fs::write(&image, "an image").unwrap();
    assert!(format!("{:#}", show(&over).unwrap_err()).contains("belongs to the dataset"));
    let drive =
        ShowArgs { dataset: "tcp://host:4420/nqn.2024-01.a:b".into(), out: folder.path().join("x.png"), ..over };
    assert!(show(&drive).unwrap_err().to_string().contains("is a drive"));
}
