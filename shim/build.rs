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
    if let Some(compiler) = oldest_glibc::cross_compiler() {
        let folder = std::env::var_os("OUT_DIR").unwrap_or_default();
        let source = Path::new("../build/glibc/later.c");
        match oldest_glibc::object_by(&compiler, Path::new(&folder), source) {
            Ok(object) => println!("cargo::rustc-cdylib-link-arg={}", object.display()),
            Err(why) => println!("cargo::warning=glibc 2.30 or newer is needed: {why}"),
        }
    }
    if oldest_glibc::is_wanted()
        && let Err(why) = link_for_oldest_glibc()
    {
        println!("cargo::warning=libgpushim.so needs this machine's glibc or a newer one: {why}");
    }
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

/// A preloaded library that does not load takes every program of a container with it.
fn link_for_oldest_glibc() -> Result<(), String> {
    let folder = std::env::var_os("OUT_DIR").ok_or("no folder to build in")?;
    let folder = Path::new(&folder);
    oldest_glibc::libraries(folder)?;
    let argument = |argument: &str| println!("cargo::rustc-cdylib-link-arg={argument}");
    for name in ["later", "threads", "find_object"] {
        let source = Path::new("../build/glibc").join(name).with_extension("c");
        let object = oldest_glibc::object(folder, &source)?;
        argument(&object.display().to_string());
    }
    argument(&format!("-L{}", folder.display()));
    // What the libraries here do not have fails now, and not in every process that is to load it.
    argument("-Wl,-z,defs");
    Ok(())
}
