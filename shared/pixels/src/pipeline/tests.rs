use super::*;

#[test]
fn named_pipelines_are_valid() {
    for name in Pipeline::NAMES {
        let pipeline = Pipeline::named(name).unwrap();
        assert_eq!(Pipeline::named(&name.replace('-', "_")).as_ref(), Some(&pipeline));
        let side = if name.starts_with("cifar") { 32 } else { 224 };
        assert_eq!(pipeline.validate(), Ok(Shape { height: side, width: side, channels: 3 }));
        assert_eq!(pipeline.output().bytes(), (side * side * 3) as usize);
    }
    assert_eq!(Pipeline::named("imagenet"), None);
}

#[test]
fn toml_has_torchvisions_defaults() {
    let text = "operations = [{ random_resized_crop = { size = 224 } }, { random_horizontal_flip = {} }]";
    assert_eq!(Pipeline::from_toml(text), Ok(Pipeline::imagenet_train()));
    let text = "
        exif_orientation = true
        [[operations]]
        resize = { size = 40 }
        [[operations]]
        random_crop = { size = 32, padding = 4 }
    ";
    let pipeline = Pipeline::from_toml(text).unwrap();
    assert!(pipeline.exif_orientation);
    assert_eq!(pipeline.operations, [Resize::to(40).into(), RandomCrop::padded(32, 4).into()]);
    let again = toml::to_string(&pipeline).unwrap();
    assert_eq!(Pipeline::from_toml(&again), Ok(pipeline));
}

#[test]
fn files_of_the_first_version_are_read() {
    let text = "stages = [{ random_resized_crop = { size = 224 } }, { random_horizontal_flip = {} }]";
    assert_eq!(Pipeline::from_toml(text), Ok(Pipeline::imagenet_train()));
}

#[test]
fn bad_descriptions_name_the_operation() {
    let syntax = |text| matches!(Pipeline::from_toml(text), Err(PipelineError::Syntax { .. }));
    assert!(syntax("operations = 3"));
    assert!(syntax("operations = [{ center_crop = { size = 8, padding = 2 } }]"));
    assert!(syntax("operations = [{ warp = { size = 8 } }]"));
    assert!(syntax("operations = []\nexif = true"));
    for (text, index) in [
        ("{ center_crop = { size = 0 } }", 0),
        ("{ center_crop = { size = 8 } }, { random_crop = { size = 20, padding = 5 } }", 1),
        ("{ random_resized_crop = { size = 8, scale = [0.5, 0.1] } }", 0),
        ("{ random_resized_crop = { size = 8, scale = [nan, 1.0] } }", 0),
        ("{ random_resized_crop = { size = 8, ratio = [0.0, 1.0] } }", 0),
        ("{ random_resized_crop = { size = 8, ratio = [1.0, inf] } }", 0),
        ("{ center_crop = { size = 8 } }, { random_horizontal_flip = { p = 1.5 } }", 1),
        ("{ random_resized_crop = { size = 18919 } }, { center_crop = { size = 8 } }", 0),
        ("{ center_crop = { size = 8 } }, { resize = { size = 65535 } }, { center_crop = { size = 8 } }", 1),
        ("{ random_crop = { size = 65535, padding = 65535 } }, { center_crop = { size = 8 } }", 0),
    ] {
        match Pipeline::from_toml(&format!("operations = [{text}]")) {
            Err(PipelineError::Parameter { index: found, .. }) => assert_eq!(found, index, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn an_error_names_the_operation_and_the_value() {
    let flip = "[[operations]]\n[operations.random_horizontal_flip]\n";
    for (operation, parameter, said) in [
        ("random_rotation", "degrees = 30\nfill = 127.6", "127.6"),
        ("center_crop", "size = \"large\"", "\"large\""),
        ("center_crop", "size = 8\nsides = 9", "sides"),
        ("center_crop", "size = 0", "0"),
        ("random_resized_crop", "size = 8\nscale = [2.0, 1.0]", "[2, 1]"),
    ] {
        let text = format!("{flip}[[operations]]\n[operations.{operation}]\n{parameter}\n");
        let error = Pipeline::from_toml(&text).unwrap_err().to_string();
        assert!(error.contains(&format!("operation 1, {operation}: ")) && error.contains(said), "{error}");
    }
    for operation in Operation::examples().into_iter().flatten() {
        let json = serde_json::to_value(&operation).unwrap();
        assert!(json.get(operation.name()).is_some(), "{json} is not {}", operation.name());
    }
}

#[test]
fn the_output_has_to_be_of_one_size_and_bounded() {
    assert_eq!(Pipeline::from_toml("operations = [{ resize = { size = 8 } }]"), Err(PipelineError::OpenSize));
    assert_eq!(Pipeline::from_toml("operations = []"), Err(PipelineError::OpenSize));
    let large = Pipeline::from_toml("operations = [{ center_crop = { size = 20000 } }]");
    assert!(matches!(large, Err(PipelineError::TooLarge { bytes: 1_200_000_000, .. })));
    let many = vec![Operation::from(RandomHorizontalFlip { p: 0.5 }); 17];
    assert!(matches!(Pipeline::of(many).validate(), Err(PipelineError::TooManyOperations { operations: 17, .. })));
}
