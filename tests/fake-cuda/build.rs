//! Compiles the kernels' sources for the CPU.

fn main() {
    let compile = |file: &str, sanitizers: &[&str]| {
        let mut build = cc::Build::new();
        build.cpp(true).cpp_link_stdlib(None).std("c++17").warnings(true).extra_warnings(true).opt_level(2);
        // A kernel's products and sums are rounded one by one. Neither exceptions nor the C++ library are used.
        for flag in ["-ffp-contract=off", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden"] {
            build.flag(flag);
        }
        build.flag("-Wno-unknown-pragmas");
        for flag in sanitizers {
            build.flag_if_supported(flag);
        }
        build.file(format!("twin/{file}.cpp")).compile(&format!("fake_cuda_{file}"));
    };
    // Each stand-in of a test is a copy of the library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--strip-debug");
    println!("cargo::rerun-if-changed=twin");
    println!("cargo::rerun-if-changed=../../host/cuda/kernels");
    compile("launch", &[]);
    compile(
        "kernels",
        &[
            "-fsanitize=alignment,bounds,shift,integer-divide-by-zero,signed-integer-overflow",
            "-fno-sanitize-recover=all",
        ],
    );
}
