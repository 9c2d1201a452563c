//! The classes that the options name, for the dataset and for labels from fields beside it.

use crate::error::LoaderError;
use ddlp_dataset::{Classed, ClassesError, Dataset, SampleFields};
use ddlp_pixels::LABEL;
use std::collections::HashSet;
use std::sync::Arc;

/// Field of several labels of each sample.
const LABELS: &str = "labels";
/// Most classes that a message names.
const NAMED_MAX: usize = 5;

/// Returns the dataset that fields are to be read for: with the classes of these names, if there are any, so that names
/// in the fields stand for them.
pub fn for_fields(dataset: &Arc<dyn Dataset>, names: &[String]) -> Result<Arc<dyn Dataset>, LoaderError> {
    match names {
        [] => Ok(dataset.clone()),
        names => Ok(Arc::new(Classed::without_labels(dataset.clone(), names).map_err(refused)?)),
    }
}

/// Returns a dataset with the classes of these names. `for_fields` is the dataset for which the fields beside it were
/// read; it remains if its labels come from them.
pub fn given(
    dataset: Arc<dyn Dataset>,
    for_fields: Arc<dyn Dataset>,
    beside: &SampleFields,
    names: &[String],
) -> Result<Arc<dyn Dataset>, LoaderError> {
    check_fields(&*dataset, beside, names).map_err(refused)?;
    if beside.position(LABEL).is_some() {
        return Ok(for_fields);
    }
    match Classed::new(dataset, names) {
        Ok(dataset) => Ok(Arc::new(dataset)),
        // The classes come from samples with several labels.
        Err(ClassesError::Unlabelled) if beside.position(LABELS).is_some() => Ok(for_fields),
        Err(error) => Err(refused(error)),
    }
}

/// Checks that the labels beside a dataset are of classes with these names.
fn check_fields(dataset: &dyn Dataset, beside: &SampleFields, names: &[String]) -> Result<(), ClassesError> {
    let known: HashSet<&String> = names.iter().collect();
    let unknown: Vec<&String> =
        beside.classes().unwrap_or_default().iter().filter(|class| !known.contains(class)).collect();
    if !unknown.is_empty() {
        let count = unknown.len();
        let classes = unknown.into_iter().take(NAMED_MAX).cloned().collect();
        return Err(ClassesError::Unknown { count, classes, given: names.len() });
    }
    let Some(field) = beside.position(LABEL) else { return Ok(()) };
    for index in 0..dataset.len() {
        let label = i64::from_ne_bytes(beside.value(field, index).try_into().expect("a label is one int64"));
        if label >= names.len() as i64 {
            return Err(ClassesError::Label { sample: dataset.name(index), label, given: names.len() });
        }
    }
    Ok(())
}

fn refused(error: ClassesError) -> LoaderError {
    LoaderError::Options(format!("`classes`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::LoaderBuilder;
    use crate::setup::RunSetup;
    use crate::state::StateError;
    use ddlp_cause::with_causes;
    use std::fs;
    use tempfile::TempDir;

    const ALL: [&str; 3] = ["class0", "class1", "class2"];

    /// A list of two images, of class2 and class0, beside the images alone in the folder `flat`.
    fn list() -> TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("flat")).unwrap();
        for name in ["1.jpg", "2.jpg"] {
            fs::write(root.path().join("flat").join(name), "x").unwrap();
        }
        fs::write(root.path().join("list.csv"), "path,label\nflat/1.jpg,class2\nflat/2.jpg,class0\n").unwrap();
        root
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn builder(root: &TempDir, dataset: &str, classes: &[&str]) -> LoaderBuilder {
        let dataset = root.path().join(dataset);
        LoaderBuilder::default().with(|o| (o.dataset, o.batch_size, o.class_names) = (Some(dataset), 2, names(classes)))
    }

    #[test]
    fn given_classes_number_the_labels_and_belong_to_the_state() {
        let root = list();
        let setup = RunSetup::new(&builder(&root, "list.csv", &ALL)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!([0, 1].map(|index| setup.dataset.label(index)), [2, 0]);
        assert_eq!((setup.dataset.classes(), &setup.fresh.classes), (&names(&ALL)[..], &names(&ALL)));
        for (classes, part) in [
            (&[][..], "classes class0 = 0, this run has the dataset's own"),
            (&["class0", "class2", "class1"], "classes class1 = 1, this run has class2 = 1"),
            (&["class0", "class1", "class2", "more"], "classes no 3, this run has more = 3"),
        ] {
            let refused =
                RunSetup::new(&builder(&root, "list.csv", classes).with(|o| o.resume = Some(setup.fresh.clone())))
                    .err();
            let Some(LoaderError::State(error @ StateError::OtherRun(_))) = refused else { panic!("{refused:?}") };
            assert!(error.to_string().contains(part), "{error}");
        }
        let resumed = RunSetup::new(&builder(&root, "list.csv", &ALL).with(|o| o.resume = Some(setup.fresh.clone())));
        assert!(resumed.is_ok());
        let notes = |dataset: &str, classes: &[&str]| {
            let builder = builder(&root, dataset, classes);
            let setup = RunSetup::new(&builder).unwrap_or_else(|error| panic!("{error}"));
            setup.recorder(&builder.options, &[], 0.0).report().notes.concat()
        };
        assert!(notes("list.csv", &[]).contains("numbers its classes by their sorted names"));
        assert_eq!((notes("list.csv", &ALL), notes("flat", &[]).contains("sorted names")), (String::new(), false));
        let said = RunSetup::new(&builder(&root, "list.csv", &["class0"])).err().unwrap().to_string();
        assert!(said.contains("`classes`: 1 of the dataset's classes") && said.contains("class2"), "{said}");
    }

    #[test]
    fn given_classes_number_the_labels_of_a_file() {
        let root = list();
        let table = root.path().join("table.csv");
        let setup = |text: &str| {
            fs::write(&table, text).unwrap();
            RunSetup::new(&builder(&root, "flat", &ALL).with(|o| o.fields = Some(table.clone())))
                .map_err(|error| with_causes(&error))
        };
        let named = setup("name,label\n1,class2\n2,class0\n").unwrap_or_else(|error| panic!("{error}"));
        let label = |index| i64::from_ne_bytes(named.beside.value(0, index).try_into().unwrap());
        assert_eq!(([0, 1].map(label), named.dataset.classes()), ([2, 0], &names(&ALL)[..]));
        let several = setup("name,labels\n1,class2 class0\n2,\n").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(several.beside.fields().next().unwrap().shape, [3]);
        for (text, part) in [
            (
                "name,label\n1,class2\n2,other\n",
                "line 3: column \"label\": the label other is not among the dataset's 3 classes",
            ),
            ("name,label\n1,1\n2,3\n", "sample 2.jpg has the label 3, but 3 classes are given"),
            ("name,age\n1,1\n2,3\n", "the dataset has no labels"),
        ] {
            let said = setup(text).err().unwrap();
            assert!(said.contains(part), "{said}");
        }
        let said = RunSetup::new(&builder(&root, "flat", &ALL)).err().unwrap().to_string();
        assert!(said.contains("the dataset has no labels"), "{said}");
    }
}
