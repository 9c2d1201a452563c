//! Builds the C shim against the headers of the same libjpeg-turbo that `turbojpeg-sys` builds and links.

use std::env;

const SHIM: [&str; 4] = ["decode.c", "coefficients.c", "encode.c", "sink.c"];

fn main() {
    let include = env::var("DEP_TURBOJPEG_INCLUDE")
        .expect("turbojpeg-sys names no include directory: it has to build its own libjpeg-turbo");
    let mut build = cc::Build::new();
    build.std("c11").warnings(true).extra_warnings(true).opt_level(2).include("src/jpeg/shim");
    for directory in include.split(',') {
        build.include(directory);
    }
    println!("cargo:rerun-if-changed=src/jpeg/shim/shim.h");
    for file in SHIM {
        let path = format!("src/jpeg/shim/{file}");
        println!("cargo:rerun-if-changed={path}");
        build.file(path);
    }
    build.compile("ddlp_pixels_jpeg");
}
