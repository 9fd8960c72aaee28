//! Memory of libraries, communicators, code, graphs and an extension: each has its row, and the
//! rows add up to the driver's figure.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Outcome, Run, library, place, program};

const MIB: u64 = 1 << 20;

/// Libraries under the names by which they are known, in a folder.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let named = |built: PathBuf, name: &str| {
        let path = folder.join(name);
        fs::copy(&built, &path).expect("a copy");
        path
    };
    let takes = |function: &str, name: &str| {
        let define = format!("-DNAME={function}");
        let built = library(
            "lib_takes",
            &["-fno-optimize-sibling-calls", &define].map(OsStr::new),
        );
        named(built, name)
    };
    named(library("lib_nvml", &[]), "libnvidia-ml.so.1");
    let nccl = named(
        library(
            "lib_nccl",
            &["-pthread", "-Wl,-soname,libnccl.so.2"].map(OsStr::new),
        ),
        "libnccl.so.2",
    );
    let user = library(
        "lib_uses_nccl",
        &[nccl.as_os_str(), OsStr::new("-fno-optimize-sibling-calls")],
    );
    vec![
        nccl,
        named(user, "libframework.so"),
        takes("cublas_takes", "libcublas.so.13"),
        takes("cudnn_takes", "libcudnn_graph.so.9"),
        takes("grow", "libextension.so"),
    ]
}

fn run(folder: &TempDir) -> Outcome {
    let search = [place().libraries.as_os_str(), folder.path().as_os_str()].join(OsStr::new(":"));
    let run = Run::new(program("outside"))
        .args(libraries(folder.path()))
        .env("LD_LIBRARY_PATH", search)
        .env("GPUSHIM_POLICY", "off")
        .env("GPUSHIM_STACKS", "all")
        .env("STANDIN_MODULE_BYTES", "6M")
        .env("STANDIN_GRAPH_BYTES", "3M")
        .env("NVML_BYTES", (20 * MIB).to_string());
    run.both().1
}

/// Runs a command on the only trace.
fn told(outcome: &Outcome, command: &str) -> Value {
    let files = outcome.files();
    let trace = files.iter().find(|name| name.ends_with(".trace"));
    let trace = outcome.folder().join(trace.expect("a trace"));
    let output = Command::new(env!("CARGO_BIN_EXE_gpushim"))
        .args([command, "--format", "json"])
        .arg(trace)
        .output()
        .expect("the command");
    let listed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    listed["results"][0].clone()
}

/// The rows of a table: owner, kind, MiB, and the function that made it.
fn rows(memory: &Value) -> Vec<(String, String, u64, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let rows = memory["rows"].as_array().expect("rows").iter();
    let mut rows: Vec<_> = rows
        .map(|row| {
            let bytes = row["bytes"].as_u64().expect("bytes");
            assert_eq!(bytes % MIB, 0, "{row}");
            let made = text(&row["made_at"]["name"]);
            (text(&row["owner"]), text(&row["part"]), bytes / MIB, made)
        })
        .collect();
    rows.sort();
    rows
}

#[test]
fn each_owner_has_a_row_and_they_add_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let outcome = run(&folder);
    let report = told(&outcome, "report");
    let memory = &report["memory"][0]["at_end"];
    let expected = [
        ("CUDA", "modules", 6, ""),
        ("CUDA graphs", "graphs", 3, ""),
        ("NCCL", "communicator", 4, "main"),
        ("NCCL", "communicator", 32, "half_group"),
        ("NCCL", "communicator", 64, "world_group"),
        ("cuBLAS", "library", 24, ""),
        ("cuDNN", "library", 12, ""),
        ("libextension.so", "code", 40, ""),
        (
            "other processes, and the driver itself",
            "other-processes",
            64,
            "",
        ),
        ("outside-", "code", 20, ""),
    ];
    let found = rows(memory);
    let mut found: Vec<_> = (found.iter())
        .map(|(owner, part, mib, made)| (owner.as_str(), part.as_str(), *mib, made.as_str()))
        .collect();
    // The program's own file has a number in its name.
    for row in &mut found {
        if row.0.starts_with("outside-") {
            row.0 = "outside-";
        }
    }
    assert_eq!(found, expected, "{memory:#}");
    let sum: u64 = expected.iter().map(|row| row.2).sum();
    assert_eq!(memory["used"], sum * MIB);
    // Native and recorded, the driver says the same.
    let in_use = &report["summary"]["devices"][0]["in_use"]["end"];
    assert_eq!(*in_use, sum * MIB);
    // Code and graphs came after the last block, and after the peak of those.
    let peak = &told(&outcome, "peak")["memory"][0];
    assert_eq!(peak["by_process"], (sum - 64 - 6 - 3) * MIB);
}
