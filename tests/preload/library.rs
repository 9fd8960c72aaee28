//! Demands of libgpushim.so on a process. It is loaded into each one, also where CUDA is never
//! used.

use std::path::Path;
use std::process::Command;

use crate::support::{Run, place, program};

/// The newest glibc that anything of ours may need.
const OLDEST_GLIBC: [u64; 2] = [2, 28];
/// Bytes of thread-local storage that each thread of each process may pay.
const THREAD_LOCAL: u64 = 1024;

fn readelf(option: &str, file: &Path) -> String {
    let output = Command::new("readelf")
        .args(["-W", option])
        .arg(file)
        .output()
        .expect("readelf, which comes with the linker");
    assert!(output.status.success(), "readelf {option}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The names in a list like `0x01 (NEEDED)  Shared library: [libc.so.6]`.
fn needed(file: &Path) -> Vec<String> {
    let listed = readelf("-d", file);
    let lines = listed.lines().filter(|line| line.contains("(NEEDED)"));
    let mut names: Vec<_> = lines
        .filter_map(|line| Some(line.split('[').nth(1)?.split(']').next()?.to_owned()))
        .collect();
    names.sort();
    names
}

/// The versions of glibc that a file needs functions of.
fn versions(file: &Path) -> Vec<[u64; 2]> {
    let listed = readelf("-V", file);
    let names = listed.split("Name: GLIBC_").skip(1);
    let parts = names.map(|name| {
        let number = name.split_whitespace().next().unwrap_or_default();
        let mut parts = number
            .split('.')
            .map(|part| part.parse().unwrap_or(u64::MAX));
        [parts.next().unwrap_or(u64::MAX), parts.next().unwrap_or(0)]
    });
    parts.collect()
}

#[test]
fn it_and_the_command_load_on_an_old_glibc() {
    for file in [&place().shim, &place().built.join("gpushim")] {
        let versions = versions(file);
        assert!(versions.len() > 3, "{}: {versions:?}", file.display());
        let newest = versions.iter().max().expect("some");
        assert!(
            *newest <= OLDEST_GLIBC,
            "{} needs glibc {newest:?}",
            file.display()
        );
    }
    // And on a new one, where the threads and dlopen are in libc, it takes no file more.
    assert_eq!(needed(&place().shim), ["ld-linux-x86-64.so.2", "libc.so.6"]);
}

#[test]
fn a_thread_that_uses_no_cuda_pays_little_for_it() {
    let listed = readelf("-l", &place().shim);
    let header = listed.lines().find(|line| line.trim().starts_with("TLS "));
    // Type, offset, two addresses, bytes in the file, bytes in memory.
    let bytes = header.and_then(|line| line.split_whitespace().nth(5));
    let bytes =
        bytes.and_then(|bytes| u64::from_str_radix(bytes.trim_start_matches("0x"), 16).ok());
    let bytes = bytes.expect("thread-local storage");
    assert!(bytes <= THREAD_LOCAL, "{bytes} bytes for each thread");
}

#[test]
fn it_is_bound_at_the_start_and_then_read_only() {
    assert!(readelf("-l", &place().shim).contains("GNU_RELRO"));
    assert!(readelf("-d", &place().shim).contains("BIND_NOW"));
}

#[test]
fn functions_that_the_loader_did_not_find_are_looked_up() {
    let native = Run::new(program("looked_up")).native();
    assert_eq!(native.code, 0, "{}", native.stdout);
    assert_eq!(
        native.stdout,
        "looked-up, on its stack: 1\nguard 1, ended 107, unknown 0\n"
    );
}
