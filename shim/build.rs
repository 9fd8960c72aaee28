//! Link arguments of libgpushim.so.

use std::path::Path;
use std::process::Command;

#[path = "../build/oldest_glibc.rs"]
mod oldest_glibc;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../build");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libgpushim.so");
    // By which debuggers and traces name this build: not every linker writes one by itself.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--build-id");
    // Every symbol bound at start: none is looked up while a host's signal handler or lock is active.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now");
    // A dlclose must not take the code away from under our thread.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // A function in the driver's place is ours, even if another library exports a symbol of that name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    if of("HOST") == of("TARGET") {
        link_unwinder();
    }
    oldest_glibc::link_library(Path::new("../build/glibc"), "libgpushim.so");
}

/// For another kind of machine the linker's driver has an unwinder of its own.
fn link_unwinder() {
    // The library is preloaded into every child process, also where there is no libgcc_s.so.1: with
    // the unwinder inside, the linker leaves that library out.
    let compiler = Command::new("gcc")
        .arg("-print-file-name=libgcc_eh.a")
        .output();
    let archive = compiler.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let archive = archive.unwrap_or_default();
    let folder = Path::new(&archive).parent().filter(|f| f.is_absolute());
    if let Some(folder) = folder {
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static:+whole-archive,-bundle=gcc_eh");
    }
}
