//! Compiles the header for this machine: `native/wake.c`, which includes it.

fn main() {
    for file in ["include/homenode_wake.h", "native/wake.c", "build.rs"] {
        println!("cargo:rerun-if-changed={file}");
    }
    cc::Build::new()
        .file("native/wake.c")
        .std("c11")
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("homenode_wake");
}
