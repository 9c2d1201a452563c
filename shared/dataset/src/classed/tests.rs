use super::*;
use crate::list::List;
use crate::open;
use crate::pack::{Pack, PackOptions, pack};
use crate::samples::write_folder;
use std::fs;
use std::ops::ControlFlow;
use tempfile::TempDir;

/// A folder of classes class0 to class2 with two images each, and a list in it.
fn list(text: &str) -> (TempDir, Arc<dyn Dataset>) {
    let root = tempfile::tempdir().unwrap();
    write_folder(root.path(), 3, 2);
    let path = root.path().join("list.csv");
    fs::write(&path, text).unwrap();
    let list = Arc::new(List::open(&path).unwrap());
    (root, list)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn labels(dataset: &dyn Dataset) -> Vec<u32> {
    (0..dataset.len()).map(|index| dataset.label(index)).collect()
}

fn refused(dataset: &Arc<dyn Dataset>, classes: &[&str]) -> String {
    Classed::new(dataset.clone(), &names(classes)).map(drop).unwrap_err().to_string()
}

const VALIDATION: &str = "path,label\nclass2/0000.jpg,class2\nclass0/0001.jpg,class0\n";

#[test]
fn a_list_without_some_of_the_classes_has_the_numbers_of_all() {
    let (_root, list) = list(VALIDATION);
    assert_eq!((labels(&*list), list.classes().len()), (vec![1, 0], 2));
    let all = names(&["class1", "class0", "class2", "class9"]);
    let classed = Classed::new(list.clone(), &all).unwrap();
    assert_eq!((labels(&classed), classed.classes()), (vec![2, 1], &all[..]));
    assert_eq!(classed.identity(), list.identity());
}

#[test]
fn a_folder_has_the_numbers_of_all_classes_too() {
    let root = tempfile::tempdir().unwrap();
    write_folder(root.path(), 3, 1);
    fs::remove_dir_all(root.path().join("class1")).unwrap();
    let folder: Arc<dyn Dataset> = open(root.path()).unwrap().into();
    let classed = Classed::new(folder, &names(&["class0", "class1", "class2"])).unwrap();
    assert_eq!(labels(&classed), [0, 2]);
}

#[test]
fn a_pack_keeps_the_given_classes() {
    let (root, list) = list(VALIDATION);
    let all = names(&["class0", "class1", "class2"]);
    let out = root.path().join("list.ddlp");
    let classed = Classed::new(list, &all).unwrap();
    pack(&classed, &out, &PackOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    let packed = Pack::open(&out).unwrap();
    assert_eq!((labels(&packed), packed.classes()), (vec![2, 0], &all[..]));
}

#[test]
fn classes_that_are_not_given_are_named() {
    let (_root, list) = list(VALIDATION);
    let said = refused(&list, &["class1", "class2"]);
    assert!(said.contains("1 of the dataset's classes are not among the 2 given ones, such as class0:"), "{said}");
}

#[test]
fn numbers_are_the_places_of_names_that_are_no_numbers_themselves() {
    let numbered = "path,label\nclass2/0000.jpg,2\nclass0/0001.jpg,0.0\n";
    let (_root, numbers) = list(numbered);
    let classed = Classed::new(numbers.clone(), &names(&["ant", "bee", "cat"])).unwrap();
    assert_eq!((labels(&classed), classed.classes().len()), (vec![2, 0], 3));
    assert!(Classed::new(numbers.clone(), &names(&["0", "1", "2"])).is_ok());
    let said = refused(&numbers, &["0", "1", "10", "2"]);
    assert!(said.contains("the given class 10 has the number 2"), "{said}");
    let said = refused(&numbers, &["ant", "bee"]);
    assert!(said.contains("sample class2/0000.jpg has the label 2, but 2 classes are given"), "{said}");
    let (_root, unlabelled) = list("path\nclass2/0000.jpg\n");
    assert!(refused(&unlabelled, &["ant"]).contains("the dataset has no labels"));
    let mix = crate::mix::Mix::new(vec![("numbers".into(), numbers)], None).unwrap();
    assert!(refused(&(Arc::new(mix) as Arc<dyn Dataset>), &["ant"]).contains("(kind: mix) does not name its own"));
}

#[test]
fn given_names_are_there_once_each() {
    let (_root, list) = list(VALIDATION);
    for (given, part) in [
        (&["class0", "class2", "class0"][..], "have the name class0 for the numbers 0 and 2"),
        (&["class0", ""], "have no name for number 1"),
        (&[], "are 0 names"),
    ] {
        let said = refused(&list, given);
        assert!(said.contains(part), "{said}");
    }
}
