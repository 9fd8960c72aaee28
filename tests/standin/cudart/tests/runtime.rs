//! Tests with programs for each version of the runtime, shared and static, on the stand-in driver.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the target directory of this test's build.
fn target() -> PathBuf {
    let room = Path::new(env!("CARGO_TARGET_TMPDIR"));
    room.parent()
        .expect("tmp lies in the target directory")
        .to_path_buf()
}

/// Returns the output of a command. It tries again while another test's fork has the program open
/// for writing.
fn started(command: &mut Command) -> io::Result<Output> {
    for _ in 0..100 {
        match command.output() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
    command.output()
}

fn run(command: &mut Command) -> String {
    let output = started(command).expect("the command starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{error}",
        output.status
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the directory with both stand-ins, built once.
fn libraries() -> &'static Path {
    static ROOM: OnceLock<PathBuf> = OnceLock::new();
    ROOM.get_or_init(build)
}

fn build() -> PathBuf {
    let room = Path::new(env!("CARGO_TARGET_TMPDIR")).join("runtime");
    std::fs::create_dir_all(&room).expect("a directory for the libraries");
    let script = here().join("../build-cudart");
    run(Command::new(script)
        .arg(&room)
        .env("CARGO_TARGET_DIR", target()));
    let cargo = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "standin-cuda"])
        .env("CARGO_TARGET_DIR", target())
        .status();
    assert!(
        cargo.expect("cargo starts").success(),
        "the stand-in driver builds"
    );
    let link = room.join("libcuda.so.1");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(target().join("debug/libcuda.so"), link)
        .expect("a link under the driver's name");
    room
}

/// Builds the program against a library and runs it.
fn check(room: &Path, version: u32, library: &str) {
    let program = room.join(format!("runtime-{version}-{library}"));
    run(Command::new("gcc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1"])
        .arg(format!("-DVERSION={version}"))
        .arg("-o")
        .arg(&program)
        .arg(here().join("tests/runtime.c"))
        .arg("-L")
        .arg(room)
        .arg(format!("-l:{library}"))
        .args(["-ldl", "-lpthread", "-lm", "-lgcc_s"]));
    let out = run(Command::new(&program).env("LD_LIBRARY_PATH", room));
    assert_eq!(out, "ok\n", "{library}");
    let symbols = run(Command::new("readelf")
        .args(["-W", "--dyn-syms"])
        .arg(&program));
    let versioned = symbols.contains(&format!("cudaMalloc@{library}"));
    // A static runtime leaves no symbol to interpose.
    assert_eq!(versioned, library.contains(".so"), "{symbols}");
    assert_eq!(symbols.contains("cudaMalloc"), versioned, "{symbols}");
}

#[test]
fn programs_of_every_version_run() {
    let room = libraries();
    check(room, 11, "libcudart.so.11.0");
    check(room, 12, "libcudart.so.12");
    check(room, 13, "libcudart.so.13");
    check(room, 13, "libcudart_static.a");
}

#[test]
fn without_a_driver_there_is_one_clear_error() {
    let room = libraries();
    let program = room.join("no-driver");
    let source = room.join("no-driver.c");
    let text = "int cudaFree(void *); int cudaDriverGetVersion(int *); int main(void) { return cudaFree(0); }\n";
    std::fs::write(&source, text).expect("a source file");
    run(Command::new("gcc")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .arg("-L")
        .arg(room)
        .arg("-l:libcudart.so.13"));
    // Only the runtime is on the path.
    let alone = room.join("alone");
    std::fs::create_dir_all(&alone).expect("a directory");
    std::fs::copy(room.join("libcudart.so.13"), alone.join("libcudart.so.13")).expect("a copy");
    let status = Command::new(&program)
        .env("LD_LIBRARY_PATH", &alone)
        .status()
        .expect("the program starts");
    // The code is cudaErrorInsufficientDriver. With a real driver on the machine it may be any
    // other.
    if !Path::new("/usr/lib/x86_64-linux-gnu/libcuda.so.1").exists() {
        assert_eq!(status.code(), Some(35));
    }
}
