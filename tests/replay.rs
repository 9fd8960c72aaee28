//! `gpushim replay` as a process: its output, and recordings that make no sense.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const POLICIES: [&str; 8] = [
    "vmm",
    "blocks",
    "torch",
    "torch-expandable",
    "torch-elastic",
    "rmm-pool",
    "rmm-arena",
    "bfc",
];
const HEAD: &str = "op,ptr,size,stream,thread,time_ns\n";

fn replay(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpushim"));
    command.arg("replay").args(args).current_dir(dir);
    command.env_remove("LD_PRELOAD").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Results of a file with every policy, as text and as JSON. All agree, and none panics.
fn each(dir: &Path, file: &str, code: i32) -> (String, Value) {
    let plain = replay(dir, &[file]);
    let stderr = text(&plain.stderr);
    assert_eq!(plain.status.code(), Some(code), "{file}: {stderr}");
    assert!(!stderr.contains("panicked"), "{file}: {stderr}");
    let json = replay(dir, &["--format", "json", file]);
    assert_eq!(json.status.code(), Some(code), "{file}");
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let device = json["results"][0]["devices"][0].clone();
    let names: Vec<&str> = device["policies"]
        .as_array()
        .map(|all| {
            all.iter()
                .filter_map(|one| one["policy"].as_str())
                .collect()
        })
        .unwrap_or_default();
    if !device.is_null() {
        assert_eq!(names, POLICIES, "{file}");
    }
    (text(&plain.stdout), device)
}

#[test]
fn requests_that_make_no_sense_are_counted_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let lines = [
        "free,0x10,5,-,1,1",
        "alloc,0x20,512,0,1,2",
        "alloc,0x20,700,0,1,3",
        "free,0x20,700,0,1,4",
        "free,0x20,700,0,1,5",
        "alloc,0x50,0,0,1,8",
        "alloc,0x60,4096,-,1,9",
    ];
    std::fs::write(
        dir.path().join("odd.csv"),
        format!("{HEAD}{}\n", lines.join("\n")),
    )
    .unwrap();
    let (said, device) = each(dir.path(), "odd.csv", 0);
    let odd = &device["odd"];
    assert_eq!(
        (
            &odd["made_before"],
            &odd["double_allocations"],
            &odd["empty"]
        ),
        (&2.into(), &1.into(), &1.into())
    );
    insta::assert_snapshot!(said);
    for policy in device["policies"].as_array().unwrap() {
        // 512 and 700 bytes are never live together.
        assert_eq!(policy["peak_requested"], 4096, "{policy}");
        assert_eq!(policy["out_of_memory"], 0, "{policy}");
    }
}

#[test]
fn absurd_sizes_are_refused_and_what_comes_after_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let lines = [
        "alloc,0x10,1048576,0,1,1",
        "alloc,0x20,18446744073709551615,0,1,2",
        "alloc,0x30,9223372036854775808,-,1,3",
        "alloc,0x40,18446744073709551104,-,1,4",
        "free,0x20,18446744073709551615,0,1,5",
        "free,0x10,1048576,0,1,6",
        "alloc,0x50,1048576,0,1,7",
    ];
    std::fs::write(
        dir.path().join("huge.csv"),
        format!("{HEAD}{}\n", lines.join("\n")),
    )
    .unwrap();
    let (said, device) = each(dir.path(), "huge.csv", 1);
    insta::assert_snapshot!(said);
    let policies = device["policies"].as_array().unwrap();
    for policy in policies {
        assert_eq!(policy["out_of_memory"], 3, "{policy}");
        assert_eq!(policy["peak_requested"], 1 << 20, "{policy}");
        // RMM's arenas take half of an H100, for any requests.
        let most = if policy["policy"] == "rmm-arena" {
            85_017_493_504 / 2
        } else {
            1 << 30
        };
        assert!(policy["peak_reserved"].as_u64() <= Some(most), "{policy}");
    }
}

#[test]
fn tens_of_thousands_of_streams_are_folded_into_those_that_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mut lines = HEAD.to_string();
    for at in 0..70_000_u64 {
        writeln!(lines, "alloc,{:#x},4096,{},1,{at}", (at + 1) << 20, at + 1).unwrap();
        if at >= 100 {
            let gone = at - 100;
            writeln!(
                lines,
                "free,{:#x},4096,{},1,{at}",
                (gone + 1) << 20,
                gone + 1
            )
            .unwrap();
        }
    }
    std::fs::write(dir.path().join("streams.csv"), lines).unwrap();
    let said = text(&replay(dir.path(), &["--policy", "torch", "streams.csv"]).stdout);
    assert!(
        said.contains("  138876 requests are on streams beyond the limit"),
        "{said}"
    );
    let all = replay(dir.path(), &["--format", "json", "streams.csv"]);
    assert_eq!(all.status.code(), Some(0), "{}", text(&all.stderr));
    let all: Value = serde_json::from_slice(&all.stdout).unwrap();
    let device = &all["results"][0]["devices"][0];
    // 512 are distinguished; the last hundred blocks are not freed.
    assert_eq!(device["odd"]["more_streams"], 2 * (70_000 - 512) - 100);
    assert_eq!(
        device["policies"].as_array().map(Vec::len),
        Some(POLICIES.len())
    );
    for policy in device["policies"].as_array().unwrap() {
        assert_eq!(policy["out_of_memory"], 0, "{policy}");
        let steps = policy["steps"].as_array().map_or(0, Vec::len);
        assert!(steps <= 4096, "{steps}");
    }
}

#[test]
fn files_without_requests_and_files_that_are_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("empty.csv"), HEAD).unwrap();
    let (said, device) = each(dir.path(), "empty.csv", 0);
    assert!(
        said.contains("There are no requests in it that a pool could serve."),
        "{said}"
    );
    assert!(device.is_null());
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for name in ["torch-streams", "torch-expandable-late", "torch-graph"] {
        let packed = std::fs::read(data.join(format!("{name}.pickle.gz"))).unwrap();
        for part in [2, 3, 4] {
            let file = format!("{name}-{part}.pickle.gz");
            std::fs::write(
                dir.path().join(&file),
                &packed[..packed.len() * (part - 1) / part],
            )
            .unwrap();
            // It is cut off, and answered as far as it goes.
            let (_, device) = each(dir.path(), &file, 2);
            assert!(device["requests"].as_u64() > Some(10), "{file}");
        }
        let cut = replay(
            dir.path(),
            &["--policy", "torch", &format!("{name}-2.pickle.gz")],
        );
        assert!(
            text(&cut.stderr).contains("cannot be read beyond byte"),
            "{}",
            text(&cut.stderr)
        );
    }
}

/// Ten steps of three blocks: 1 + 2 + 4 MiB, of which the last is freed first.
fn steps(dir: &Path) {
    let mut lines = HEAD.to_string();
    for step in 0..10_u64 {
        for (at, size) in [1_u64, 2, 4].into_iter().enumerate() {
            let ns = step * 1_000_000 + at as u64;
            writeln!(lines, "alloc,{:#x},{},0,1,{ns}", 0x1000 << at, size << 20).unwrap();
        }
        for (at, size) in [4_u64, 2, 1].into_iter().enumerate() {
            let ns = step * 1_000_000 + 500_000 + at as u64;
            writeln!(lines, "free,{:#x},{},0,1,{ns}", 0x4000 >> at, size << 20).unwrap();
        }
    }
    std::fs::write(dir.join("steps.csv"), lines).unwrap();
}

#[test]
fn figures_of_steps() {
    let dir = tempfile::tempdir().unwrap();
    steps(dir.path());
    let replayed = replay(dir.path(), &["--policy", "torch,bfc", "steps.csv"]);
    let said = text(&replayed.stdout);
    assert_eq!(replayed.status.code(), Some(0));
    // 2 MiB for the small block, 20 for the others.
    insta::assert_snapshot!(said);
    let json = replay(
        dir.path(),
        &["--policy", "torch", "--format", "json", "steps.csv"],
    );
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let device = &json["results"][0]["devices"][0];
    let torch = &device["policies"][0];
    assert_eq!(
        (&device["steps"], torch["steps"].as_array().map(Vec::len)),
        (&10.into(), Some(10))
    );
    let step = |at: usize| {
        let step = &torch["steps"][at];
        [
            "requests",
            "peak_requested",
            "peak_reserved",
            "driver_calls",
        ]
        .map(|key| step[key].as_u64().unwrap())
    };
    assert_eq!(step(0), [6, 7 << 20, 22 << 20, 2]);
    assert_eq!(step(9), [6, 7 << 20, 22 << 20, 0]);
    assert_eq!(torch["largest_free_least"], 1 << 20);
    for key in [
        "peak_requested",
        "peak_reserved",
        "utilization",
        "driver_calls",
        "out_of_memory",
    ] {
        assert!(torch[key].is_number(), "{key}");
    }
}
