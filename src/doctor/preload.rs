//! Contents of `LD_PRELOAD`, and a check for libraries in it that keep calls from gpushim.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::check::{Check, Verdict};
use crate::elf;

/// Debian's name of this architecture.
#[cfg(target_arch = "aarch64")]
macro_rules! multiarch {
    () => {
        "aarch64-linux-gnu"
    };
}
#[cfg(not(target_arch = "aarch64"))]
macro_rules! multiarch {
    () => {
        "x86_64-linux-gnu"
    };
}

const WHAT: &str = "LD_PRELOAD";
const OURS: &str = "libgpushim.so";

/// Looks at `LD_PRELOAD` as it is set now.
pub fn check() -> Check {
    let value = std::env::var_os(WHAT).unwrap_or_default();
    let value = value.to_string_lossy();
    if value.trim().is_empty() {
        let detail = "not set; `gpushim run` sets it for the program that it runs";
        return Check::new(WHAT, Verdict::Ok, detail);
    }
    let libraries: Vec<&str> = value
        .split([':', ' '])
        .filter(|library| !library.is_empty())
        .collect();
    let Some(ours) = libraries.iter().position(|library| is_ours(library)) else {
        let detail = format!("{value} (names other libraries, which come after ours)");
        return Check::new(WHAT, Verdict::Note, detail);
    };
    let dlsym = libraries[..ours]
        .iter()
        .find(|library| find(library).is_some_and(|path| exports(&path, b"dlsym")));
    match dlsym {
        Some(library) => {
            let detail = format!(
                "{library} comes before {OURS} and exports dlsym: CUDA calls may go past gpushim; put {OURS} first"
            );
            Check::new(WHAT, Verdict::Problem, detail)
        }
        None => Check::new(
            WHAT,
            Verdict::Note,
            format!("{value} (already names {OURS})"),
        ),
    }
}

fn is_ours(library: &str) -> bool {
    Path::new(library).file_name() == Some(OsStr::new(OURS))
}

/// The file of an entry: a path, or a name that the loader looks for.
fn find(library: &str) -> Option<PathBuf> {
    if library.contains('/') {
        return Some(PathBuf::from(library));
    }
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let usual = [
        concat!("/lib/", multiarch!()),
        concat!("/usr/lib/", multiarch!()),
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
    ];
    std::env::split_paths(&path)
        .chain(usual.iter().map(PathBuf::from))
        .map(|folder| folder.join(library))
        .find(|path| path.is_file())
}

/// True if a 64-bit ELF library defines a dynamic symbol of this name. False if it cannot be read.
fn exports(library: &Path, symbol: &[u8]) -> bool {
    fs::read(library).is_ok_and(|file| elf::defines(&file, symbol).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// The file that defines a function of this process.
    fn library_of(function: *const libc::c_void) -> PathBuf {
        // SAFETY: Dl_info is plain data, for which zeros are valid.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: any address may be asked about; the name is a C string if there is one.
        let name = unsafe {
            assert_ne!(libc::dladdr(function, &mut info), 0);
            std::ffi::CStr::from_ptr(info.dli_fname)
        };
        PathBuf::from(OsStr::from_bytes(name.to_bytes()))
    }

    #[test]
    #[cfg_attr(miri, ignore = "no dynamic linker under Miri")]
    fn the_c_library_exports_dlsym_and_not_what_it_only_mentions() {
        let libc = library_of(libc::dlsym as *const libc::c_void);
        assert!(exports(&libc, b"dlsym"), "{}", libc.display());
        assert!(!exports(&libc, b"dlsy"));
        // Undefined there: it is the loader's.
        assert!(!exports(&libc, b"_dl_argv"));
        assert!(!exports(Path::new("/no/such/file"), b"dlsym"));
        assert_eq!(elf::defines(b"\x7fELF\x02\x01", b"dlsym"), None);
        assert_eq!(elf::defines(b"#!/bin/sh", b"dlsym"), None);
    }
}
