//! Links the command for the oldest glibc that is supported.

use std::path::Path;

#[path = "build/oldest_glibc.rs"]
mod oldest_glibc;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    // By which debuggers, `--version` and traces name this build: not every linker writes one by itself.
    println!("cargo::rustc-link-arg-bin=gpushim=-Wl,--build-id");
    if let Some(compiler) = oldest_glibc::cross_compiler() {
        let folder = std::env::var_os("OUT_DIR").unwrap_or_default();
        let source = Path::new("build/glibc/later.c");
        match oldest_glibc::object_by(&compiler, Path::new(&folder), source) {
            Ok(object) => println!("cargo::rustc-link-arg-bin=gpushim={}", object.display()),
            Err(why) => println!("cargo::warning=glibc 2.30 or newer is needed: {why}"),
        }
    }
    if !oldest_glibc::is_wanted() {
        return;
    }
    if let Err(why) = link() {
        println!("cargo::warning=gpushim needs this machine's glibc or a newer one: {why}");
    }
}

fn link() -> Result<(), String> {
    let folder = std::env::var_os("OUT_DIR").ok_or("no folder to build in")?;
    let folder = Path::new(&folder);
    oldest_glibc::libraries(folder)?;
    let argument = |argument: &str| println!("cargo::rustc-link-arg-bin=gpushim={argument}");
    for name in ["later", "start"] {
        let source = Path::new("build/glibc").join(name).with_extension("c");
        let object = oldest_glibc::object(folder, &source)?;
        argument(&object.display().to_string());
    }
    argument(&format!("-L{}", folder.display()));
    // An old system has the threads and the loader's functions in libraries of their own.
    argument("-Wl,--push-state,--no-as-needed");
    for name in ["libpthread.so.0", "libdl.so.2"] {
        argument(&folder.join(name).display().to_string());
    }
    argument("-Wl,--pop-state");
    // The compiler's own library may need a newer glibc here; the one beside an old glibc does not.
    argument("-Wl,--allow-shlib-undefined");
    Ok(())
}
