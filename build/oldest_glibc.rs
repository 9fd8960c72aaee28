//! Links for the oldest supported glibc, independent of the glibc of this machine. For build
//! scripts.
//!
//! The linker decides which glibc a library needs. It takes each function in the newest version
//! that the glibc of this machine has. The linker therefore gets other libraries: without code,
//! with the names of this machine's glibc. Each symbol has the newest version that the oldest glibc
//! had, too. Functions that came later and are needed are in the C files beside this one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest glibc on which everything loads.
pub const OLDEST: [u64; 2] = [2, 28];

/// Libraries that glibc 2.34 joined with libc. They are one library here, too: the linker's script
/// for `-lc` names it.
const JOINED: [&str; 5] = [
    "libc.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
];

/// True if the build can be linked by these libraries: if it is for this machine's own kind. C
/// files exist only for this kind.
pub fn is_wanted() -> bool {
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    of("TARGET") == "x86_64-unknown-linux-gnu" && of("HOST") == of("TARGET")
}

/// The C compiler for another kind of machine, as cargo-zigbuild names it.
///
/// It links for an old glibc by itself, except for newer functions of Rust's library.
pub fn cross_compiler() -> Option<String> {
    let of = |name: &str| std::env::var(name).ok();
    let target = of("TARGET").filter(|target| target.ends_with("-linux-gnu"))?;
    if of("HOST")? == target {
        return None;
    }
    println!(
        "cargo::rerun-if-env-changed=CC_{}",
        target.replace('-', "_")
    );
    of(&format!("CC_{}", target.replace('-', "_"))).or_else(|| of(&format!("CC_{target}")))
}

/// Gives cargo the arguments that link a `cdylib` for the oldest glibc, with the C files of a
/// folder. A preloaded library that does not load takes every program of a container with it.
#[allow(dead_code, reason = "the command is a program")]
pub fn link_library(files: &Path, name: &str) {
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    let folder = Path::new(&out);
    let argument = |argument: &str| println!("cargo::rustc-cdylib-link-arg={argument}");
    let link = || -> Result<(), String> {
        if let Some(compiler) = cross_compiler() {
            let object = object_by(&compiler, folder, &files.join("later.c"))?;
            argument(&object.display().to_string());
        }
        if !is_wanted() {
            return Ok(());
        }
        libraries(folder)?;
        for file in ["later.c", "threads.c", "find_object.c"] {
            let object = object(folder, &files.join(file))?;
            argument(&object.display().to_string());
        }
        argument(&format!("-L{}", folder.display()));
        // What the libraries here do not have fails now, and not in every process that is to load it.
        argument("-Wl,-z,defs");
        Ok(())
    };
    if let Err(why) = link() {
        println!("cargo::warning={name} needs this machine's glibc or a newer one: {why}");
    }
}

/// Makes the libraries in a folder. The error is one line.
pub fn libraries(folder: &Path) -> Result<(), String> {
    let mut joined = BTreeMap::new();
    for name in JOINED {
        // Where libc has them all, the others may be left out.
        if let Some(path) = of_compiler(name) {
            exports(&path, &mut joined)?;
        }
    }
    if joined.is_empty() {
        return Err("gcc knows no libc.so.6".to_owned());
    }
    library(folder, "libc.so.6", &joined)?;
    for (name, file) in [
        ("libm.so.6", "libm.so"),
        ("ld-linux-x86-64.so.2", "ld-linux-x86-64.so.2"),
    ] {
        let path = of_compiler(name).ok_or_else(|| format!("gcc knows no {name}"))?;
        let mut symbols = BTreeMap::new();
        exports(&path, &mut symbols)?;
        library(folder, name, &symbols)?;
        if name != file {
            rename(folder, name, file)?;
        }
    }
    // Through these libraries the loader of an old system finds functions that are in libc on a new
    // one.
    for name in ["libpthread.so.0", "libdl.so.2"] {
        library(folder, name, &BTreeMap::new())?;
    }
    // In the place of this machine's own, if it has such.
    for name in ["libpthread.a", "libdl.a", "librt.a", "libutil.a"] {
        write(&folder.join(name), "!<arch>\n")?;
    }
    let at = |name: &str| format!("\"{}\"", folder.join(name).display());
    let rest = of_compiler("libc_nonshared.a").ok_or("gcc knows no libc_nonshared.a")?;
    let script = format!(
        "GROUP ( {} \"{}\" AS_NEEDED ( {} ) )\n",
        at("libc.so.6"),
        rest.display(),
        at("ld-linux-x86-64.so.2")
    );
    write(&folder.join("libc.so"), &script)
}

/// Compiles a C file into an object beside the libraries.
pub fn object(folder: &Path, source: &Path) -> Result<PathBuf, String> {
    object_by("gcc", folder, source)
}

/// Compiles a C file as [`object`] does, with another compiler.
pub fn object_by(compiler: &str, folder: &Path, source: &Path) -> Result<PathBuf, String> {
    let name = source.file_stem().unwrap_or_default();
    let object = folder.join(name).with_extension("o");
    let arguments = ["-O2", "-fPIC", "-Wall", "-Wextra", "-c", "-o"].map(OsStr::new);
    run(
        compiler,
        &[&arguments[..], &[object.as_os_str(), source.as_os_str()]].concat(),
    )?;
    Ok(object)
}

/// One symbol of a library.
struct Export {
    version: String,
    /// True if programs are linked to this version. Programs only run with other versions.
    is_current: bool,
    /// Bytes of a variable; `None` for a function.
    variable: Option<u64>,
}

/// Prefix of the labels of symbols. No symbol begins with it.
const LABEL: &str = ".gpushim.";

/// Makes a library without code.
fn library(folder: &Path, name: &str, symbols: &BTreeMap<String, Export>) -> Result<(), String> {
    let mut code = String::new();
    let mut versions = BTreeMap::new();
    for (number, (symbol, export)) in symbols.iter().enumerate() {
        let version = &export.version;
        let of_variable = export.variable.map(|size| size.max(1));
        let (section, kind) = match of_variable {
            Some(_) => (".bss", "object"),
            None => (".text", "function"),
        };
        let size = of_variable.unwrap_or(1);
        // Writing to a string does not fail.
        let _ = writeln!(
            code,
            "{section}\n.globl {LABEL}{number}\n.type {LABEL}{number},@{kind}\n{LABEL}{number}: .skip {size}\n\
             .size {LABEL}{number},{size}\n.symver {LABEL}{number},{symbol}@@{version}"
        );
        versions.insert(version, ());
    }
    let mut script = String::new();
    for version in versions.keys() {
        let _ = writeln!(script, "{version} {{ local: {LABEL}*; }};");
    }
    if versions.is_empty() {
        script.push_str("{ local: *; };\n");
    }
    let file = |extension: &str| folder.join(format!("{name}.{extension}"));
    write(&file("s"), &code)?;
    write(&file("versions"), &script)?;
    let option = |option: &str, value: &Path| format!("-Wl,{option},{}", value.display());
    let arguments = [
        // Not the linker that cargo may have been given.
        "-shared".to_owned(),
        "-nostdlib".to_owned(),
        "-fno-lto".to_owned(),
        format!("-Wl,-soname,{name}"),
        option("--version-script", &file("versions")),
        "-o".to_owned(),
        folder.join(name).display().to_string(),
        file("s").display().to_string(),
    ];
    gcc(&arguments.each_ref().map(OsStr::new))
}

/// Adds the symbols of a library of this machine, each in its newest version up to [`OLDEST`].
fn exports(path: &Path, into: &mut BTreeMap<String, Export>) -> Result<(), String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let found = symbols(&bytes).ok_or_else(|| format!("{}: not understood", path.display()))?;
    let current = found.iter().filter(|(_, export)| export.is_current);
    let current: BTreeSet<_> = current.map(|(name, _)| name.clone()).collect();
    for (name, export) in found {
        let Some(version) = number(&export.version).filter(|&version| version <= OLDEST3) else {
            continue;
        };
        // Only kept for old programs: nothing can be linked to it, here or there.
        if !current.contains(&name) {
            continue;
        }
        let newer = |known: &Export| number(&known.version).is_some_and(|known| known >= version);
        if !into.get(&name).is_some_and(newer) {
            into.insert(name, export);
        }
    }
    Ok(())
}

const OLDEST3: [u64; 3] = [OLDEST[0], OLDEST[1], 0];

/// `GLIBC_2.2.5` as numbers; `None` for `GLIBC_PRIVATE` and the like.
fn number(version: &str) -> Option<[u64; 3]> {
    let mut parts = version.strip_prefix("GLIBC_")?.split('.');
    let mut part = || parts.next().map_or(Some(0), |part| part.parse().ok());
    Some([part()?, part()?, part()?])
}

/// The defined symbols of a 64-bit ELF library, with their versions.
fn symbols(bytes: &[u8]) -> Option<Vec<(String, Export)>> {
    const DYNSYM: u64 = 11;
    const VERDEF: u64 = 0x6fff_fffd;
    const VERSYM: u64 = 0x6fff_ffff;
    const VARIABLE: u64 = 1;
    const TLS: u64 = 6;
    let at = |offset: u64, size: usize| -> Option<u64> {
        let from = usize::try_from(offset).ok()?;
        let part = bytes.get(from..from.checked_add(size)?)?;
        let mut word = [0; 8];
        word.get_mut(..size)?.copy_from_slice(part);
        Some(u64::from_le_bytes(word))
    };
    let text = |offset: u64| -> Option<String> {
        let rest = bytes.get(usize::try_from(offset).ok()?..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        Some(String::from_utf8_lossy(rest.get(..end)?).into_owned())
    };
    let (headers, count) = (at(0x28, 8)?, at(0x3c, 2)?);
    let header = |index: u64| headers + index * 64;
    let section = |kind: u64| {
        (0..count)
            .map(header)
            .find(|&header| at(header + 4, 4) == Some(kind))
    };
    let place = |header: u64| at(header + 24, 8);
    let linked = |of: u64| place(header(at(of + 40, 4)?));

    let definitions = section(VERDEF)?;
    let names = linked(definitions)?;
    let mut versions = BTreeMap::new();
    let mut next = place(definitions)?;
    for _ in 0..at(definitions + 44, 4)? {
        let name = at(next + at(next + 12, 4)?, 4)?;
        versions.insert(at(next + 4, 2)?, text(names + name)?);
        next += at(next + 16, 4)?;
    }

    let (table, numbers) = (section(DYNSYM)?, place(section(VERSYM)?)?);
    let names = linked(table)?;
    let mut found = Vec::new();
    for index in 0..at(table + 32, 8)? / 24 {
        let symbol = place(table)? + index * 24;
        let kind = at(symbol + 4, 1)? & 15;
        let is_defined = at(symbol + 6, 2)? != 0;
        let number = at(numbers + index * 2, 2)?;
        let version = versions.get(&(number & 0x7fff));
        let (true, Some(version)) = (is_defined && kind != TLS, version) else {
            continue;
        };
        let variable = (kind == VARIABLE).then_some(at(symbol + 16, 8)?);
        let name = text(names + at(symbol, 4)?)?;
        // The versions themselves are symbols, too.
        if name != *version {
            let export = Export {
                version: version.clone(),
                is_current: number & 0x8000 == 0,
                variable,
            };
            found.push((name, export));
        }
    }
    Some(found)
}

/// The file that the C compiler links for this name; `None` if it knows none.
fn of_compiler(name: &str) -> Option<PathBuf> {
    let output = Command::new("gcc")
        .arg(format!("-print-file-name={name}"))
        .output();
    let path = PathBuf::from(String::from_utf8_lossy(&output.ok()?.stdout).trim());
    path.is_absolute().then_some(path)
}

fn gcc(arguments: &[&OsStr]) -> Result<(), String> {
    run("gcc", arguments)
}

fn run(compiler: &str, arguments: &[&OsStr]) -> Result<(), String> {
    let output = Command::new(compiler).args(arguments).output();
    let output = output.map_err(|error| format!("{compiler}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().take(3).collect::<Vec<_>>().join(" / "))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn rename(folder: &Path, from: &str, to: &str) -> Result<(), String> {
    std::fs::rename(folder.join(from), folder.join(to)).map_err(|error| format!("{to}: {error}"))
}
