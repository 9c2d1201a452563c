//! What images lose at lower fidelities, by `ddlp inspect --fidelity`.

use crate::{fail, json, photos, refuse, succeed};
use ddlp_pixels::encode::png;
use ddlp_pixels::synthetic;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Puts a PNG beside the photographs.
fn add_png(folder: &Path) {
    let image = png(&synthetic::photo(64, 48, 1), 64, 48).unwrap();
    fs::write(folder.join("photos/class_000/drawing.png"), image).unwrap();
}

/// Keeps a third of the photographs, since measuring one takes long.
fn keep_a_class(folder: &Path) {
    for class in ["class_001", "class_002"] {
        fs::remove_dir_all(folder.join("photos").join(class)).unwrap();
    }
}

fn numbers(figures: &Value, place: &str) -> Vec<f64> {
    let groups = figures["groups"].as_array().expect("groups");
    groups.iter().map(|group| group.pointer(place).and_then(Value::as_f64).expect(place)).collect()
}

#[test]
fn more_groups_cost_more_and_look_better() {
    let home = photos(0);
    let folder = home.path();
    keep_a_class(folder);
    add_png(folder);
    let figures = json(&succeed(folder, "inspect photos --fidelity --json"));
    assert_eq!((&figures["samples"], &figures["measured"], &figures["cut"]), (&9.into(), &9.into(), &8.into()));
    assert_eq!(figures["whole"], serde_json::json!({ "no JPEG": 1 }));
    assert_eq!(figures["rewritten"], 7, "one photograph is progressive");
    assert_eq!(numbers(&figures, "/group"), [1.0, 2.0, 5.0, 10.0]);
    for place in ["/bytes", "/share", "/ssim/mean", "/ssim/percentile_5", "/chroma_ssim_mean"] {
        let found = numbers(&figures, place);
        assert!(found.is_sorted() && found[0] < found[2] && found[2] <= found[3], "{place}: {found:?}");
    }
    let source_bytes = figures["source_bytes"].as_f64().unwrap();
    for (bytes, share) in numbers(&figures, "/bytes").iter().zip(numbers(&figures, "/share")) {
        assert!((bytes / source_bytes - share).abs() < 1e-12);
    }
    let ssim = numbers(&figures, "/ssim/mean");
    assert!(ssim[0] < 0.9 && ssim[3] == 1.0, "{ssim:?}");
}

#[test]
fn a_pack_and_shards_have_the_figures_of_their_folder() {
    let home = photos(0);
    let folder = home.path();
    keep_a_class(folder);
    succeed(folder, "pack photos p.ddlp --jpeg kept --quiet");
    let tar = Command::new("tar").args("-cf p.tar -C photos .".split(' ')).current_dir(folder).status();
    assert!(tar.expect("tar starts").success());
    let of = |dataset: &str| {
        let mut figures = json(&succeed(folder, &format!("inspect {dataset} --fidelity --groups 2,10 --json")));
        for name in ["file", "kind"] {
            figures.as_object_mut().unwrap().remove(name);
        }
        figures
    };
    let expected = of("photos");
    assert_eq!(of("p.ddlp"), expected);
    // The shards have the samples in another order, so sums of floats differ.
    assert_eq!(of("p.tar")["groups"][0]["bytes"], expected["groups"][0]["bytes"]);
}

#[test]
fn a_table_and_a_picture_show_the_figures() {
    let home = photos(0);
    let folder = home.path();
    add_png(folder);
    let said = succeed(folder, "inspect photos --fidelity --samples 5 --groups 2,6,10 --picture f.svg");
    assert!(said.starts_with("photos: folder, fidelity of 5 of 25 samples\n"), "{said}");
    let rows: Vec<&str> = said.lines().skip_while(|line| !line.contains("SSIM mean")).skip(1).collect();
    let begins = ["2", "6", "10", "+ markers"];
    assert!(rows.iter().zip(begins).all(|(row, begin)| row.trim_start().starts_with(begin)), "{said}");
    let picture = fs::read_to_string(folder.join("f.svg")).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    assert!(picture.contains("SSIM, 5th percentile") && !picture.contains("NaN") && !picture.contains("inf"));
}

#[test]
fn one_sample_is_measured_by_its_number_or_name() {
    let home = photos(0);
    let folder = home.path();
    let by_number = json(&succeed(folder, "inspect photos --fidelity --sample 8 --json"));
    let by_name = json(&succeed(folder, "inspect photos --fidelity --sample class_001/000001.jpg --json"));
    assert_eq!(by_number, by_name);
    assert_eq!(by_number["measured"], 1);
}

#[test]
fn what_cannot_be_measured_is_said() {
    let home = photos(0);
    let folder = home.path();
    add_png(folder);
    let message = fail(folder, "inspect photos --fidelity --sample class_000/drawing.png");
    assert!(message.contains("none of the measured samples is a JPEG") && message.contains("no JPEG"), "{message}");
    let message = fail(folder, "inspect photos --fidelity --sample 25");
    assert!(message.contains("there is no sample 25"), "{message}");
    for (line, expected) in [
        ("inspect photos --samples 5", "--fidelity"),
        ("inspect photos --picture f.svg", "--fidelity"),
        ("inspect photos --fidelity --samples 0", "--samples"),
        ("inspect photos --fidelity --samples 5 --sample 1", "--sample"),
        ("inspect photos --fidelity --groups 1,2", "the last of them 10, not '1,2'"),
        ("inspect photos --fidelity --picture f.png", "ends in .svg"),
        ("inspect photos --fidelity --picture photos/class_001/f.svg", "belongs to the dataset"),
    ] {
        let message = refuse(folder, line);
        assert!(message.contains(expected), "{line}: {message}");
    }
}
