use super::{fail, json, photos, refuse, run, stderr, succeed};
use std::fs;

#[test]
fn parts_of_a_split_are_disjoint_and_run() {
    let home = photos(0);
    let folder = home.path();
    succeed(folder, "pack photos p.ddlp --quiet");
    let said = succeed(folder, "split p.ddlp --ratios 0.5,0.5 --balance original --seed 3 --out s.json");
    assert!(said.contains("s.json:train  12 samples, 3 classes, 4 of each"), "{said}");
    let digests = |part: &str| {
        let said = succeed(folder, &format!("run p.ddlp --drive none --batch 6 --split s.json:{part} --digest"));
        assert!(said.contains("12 images in 2 batches"), "{said}");
        said.lines().find(|line| line.starts_with("digest ")).unwrap().to_owned()
    };
    assert_ne!(digests("train"), digests("val"));
    let split = json(&fs::read_to_string(folder.join("s.json")).unwrap());
    let indices = |part: usize| {
        let indices = split["parts"][part]["indices"].as_array().unwrap();
        indices.iter().map(|index| index.as_u64().unwrap()).collect::<Vec<_>>()
    };
    let mut all = [indices(0), indices(1)].concat();
    all.sort_unstable();
    assert_eq!(all, (0..24).collect::<Vec<_>>());
    succeed(folder, "split p.ddlp --ratios 0.5,0.5 --balance original --seed 3 --out again.json");
    assert_eq!(fs::read(folder.join("again.json")).unwrap(), fs::read(folder.join("s.json")).unwrap());
    let cached = "--cache c --cache-limit 16777216";
    let printed = json(&succeed(folder, &format!("split photos --where id<6 --ratios 1 --names few --out - {cached}")));
    assert_eq!(printed["parts"], json(r#"[{"name": "few", "indices": [0, 1, 2, 3, 4, 5]}]"#));
}

#[test]
fn a_run_keeps_to_the_split_that_it_began_with() {
    let home = photos(0);
    let folder = home.path();
    succeed(folder, "pack photos p.ddlp --quiet");
    succeed(folder, "split p.ddlp --ratios 0.5,0.5 --out s.json --quiet");
    succeed(folder, "split p.ddlp --ratios 0.5,0.5 --out t.json --seed 1 --quiet");
    let line = "run p.ddlp --drive none --batch 3 --quiet";
    succeed(folder, &format!("{line} --split s.json:train --stop-after 2 --state-out at.json"));
    succeed(folder, &format!("{line} --split s.json:train --resume at.json"));
    for other in ["--split s.json:val", "--split t.json:train", ""] {
        let said = fail(folder, &format!("{line} {other} --resume at.json"));
        assert!(said.contains("the state was saved with") && said.contains("part train of the split"), "{said}");
    }
    let said = refuse(folder, &format!("{line} --split s.json:test"));
    assert!(
        said.contains("--split is s.json:test: the split has no part \"test\": its parts are train, val"),
        "{said}"
    );
    let said = refuse(folder, "run photos --drive none --quiet --split s.json:train");
    assert!(said.contains("it divides another dataset"), "{said}");
    let said = refuse(folder, &format!("{line} --split s.json"));
    assert!(said.contains("a colon and the name of a part"), "{said}");
}

#[test]
fn what_cannot_be_divided_is_named() {
    let home = photos(0);
    let folder = home.path();
    let said = refuse(folder, "split photos --ratios 0.8,0.3");
    assert!(said.contains("add up to 1.1"), "{said}");
    let output = run(folder, "split photos --where lable=1");
    assert!(stderr(&output).contains("at `lable=1` (character 1): there is no column lable"), "{}", stderr(&output));
    let said = refuse(folder, "split photos --balance fair");
    assert!(said.contains("none, original, class"), "{said}");
    let said = refuse(folder, "split photos --cache-limit 16777216");
    assert!(said.contains("--cache <FOLDER>"), "{said}");
    let said = refuse(folder, "split photos --cache c --cache-limit 1");
    assert!(said.contains("16777216"), "{said}");
    assert!(!folder.join("splits.json").exists());
}
