//! A sample goes in, a sample comes out.

use ddlp_pixels::encode::{self, JpegOptions};
use ddlp_pixels::{Draw, Limits, Pipeline, Preparer, Source};

#[test]
fn smoke() {
    let pixels = vec![77; 300 * 200 * 3];
    let file = encode::jpeg(&pixels, 300, 200, &JpegOptions::default()).unwrap();
    let mut preparer = Preparer::new(Limits::default());
    for pipeline in [Pipeline::imagenet_train(), Pipeline::imagenet_val(), Pipeline::cifar_train()] {
        let mut out = vec![0; pipeline.output().bytes()];
        let prepared = preparer.prepare(Source::Encoded(&file), &pipeline, Draw::default(), &mut out);
        assert_eq!(prepared.unwrap().warnings, 0);
        assert!(out.iter().filter(|&&v| v == 77).count() > out.len() / 2);
    }
    println!("{:?} {:?}", preparer.info(&file), preparer.inspect(&file));
    println!("{}", ddlp_pixels::fingerprint());
}
