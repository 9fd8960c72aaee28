//! Link arguments of `libcuda.so`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Binds calls inside the driver to itself, as in the real one: a preloaded shim must not see
    // them.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
