//! Link arguments of `libcuda.so`.

use std::path::Path;

#[path = "../../../build/oldest_glibc.rs"]
mod oldest_glibc;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../../../build");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Binds calls inside the driver to itself, as in the real one: a preloaded shim must not see
    // them.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Packages have it, for `gpushim demo`.
    oldest_glibc::link_library(Path::new("../../../build/glibc"), "libcuda.so.1");
}
