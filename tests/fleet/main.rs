//! Tests `gpushim report` on generated jobs.
//!
//! Every planted fault is found, with its rank and function. Jobs without faults have no findings.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpushim_trace::attached::{self, Attached};
use serde_json::Value;

mod made;

use made::{Base, Fault, Job, Rank};

/// The command, with nothing of gpushim in its environment.
fn gpushim(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpushim"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GPUSHIM_") {
            command.env_remove(name);
        }
    }
    command.args(args).output().unwrap()
}

fn fleet(folder: &Path, more: &[&str]) -> Value {
    let folder = folder.to_str().unwrap();
    let args = [&["report", "--format", "json", folder][..], more].concat();
    let output = gpushim(&args);
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {said}"))
}

fn base(name: &str, most: usize) -> Base {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    Base::of(&data.join(name), most)
}

/// Findings: rank, kind, and the function that was named.
fn found(answer: &Value) -> BTreeSet<(u32, String, String)> {
    let mut found = BTreeSet::new();
    for job in answer["jobs"].as_array().unwrap() {
        for outlier in job["outliers"].as_array().unwrap() {
            let function = outlier["site"]["short"].as_str().unwrap_or_default();
            for rank in outlier["ranks"].as_array().unwrap() {
                let rank = rank.as_str().unwrap().parse().unwrap();
                let kind = outlier["kind"].as_str().unwrap();
                found.insert((rank, kind.to_string(), function.to_string()));
            }
        }
    }
    found
}

fn assert_planted(answer: &Value, planted: &[(u32, &'static str, Option<&'static str>)]) {
    let found = found(answer);
    let kinds: BTreeSet<(u32, &str)> = found
        .iter()
        .map(|(rank, kind, _)| (*rank, kind.as_str()))
        .collect();
    let expected: BTreeSet<(u32, &str)> = planted
        .iter()
        .map(|(rank, kind, _)| (*rank, *kind))
        .collect();
    assert_eq!(kinds, expected, "{}", answer["jobs"]);
    for (rank, kind, function) in planted {
        if let Some(function) = function {
            let known = (*rank, kind.to_string(), function.to_string());
            assert!(found.contains(&known), "{known:?} is not among {found:?}");
        }
    }
}

fn is_long() -> bool {
    std::env::var_os("GPUSHIM_TEST_LONG").is_some()
}

#[test]
fn planted_faults_are_found_with_rank_and_function() {
    let (ranks, many, most) = if is_long() {
        (512, 24, 600)
    } else {
        (40, 10, 120)
    };
    let job = Job {
        name: "81234",
        world: ranks,
        faults: many,
        steps: 14,
    };
    for name in ["training.pickle.gz", "layers32_forward.pickle.gz"] {
        let folder = tempfile::tempdir().unwrap();
        let planted = made::faulty(&base(name, most), &job, folder.path());
        let answer = fleet(folder.path(), &["--keep"]);
        assert_planted(&answer, &planted);
        // From the summaries, which are attached to the traces now; and of some ranks only these are
        // left, in files as of an earlier form.
        for entry in std::fs::read_dir(folder.path()).unwrap().flatten() {
            let path = entry.path();
            let is_trace = path
                .extension()
                .is_some_and(|extension| extension == "trace");
            if is_trace && !path.to_string_lossy().contains("node000") {
                let file = std::fs::File::open(&path).unwrap();
                let summary = attached::read(&file, Attached::Summary).unwrap().unwrap();
                std::fs::write(path.with_extension("trace.summary"), summary).unwrap();
                std::fs::remove_file(path).unwrap();
            }
        }
        let again = fleet(folder.path(), &[]);
        assert_planted(&again, &planted);
        let figures = |answer: &Value| answer["jobs"][0]["totals"].clone();
        assert_eq!(figures(&again), figures(&answer));
    }
}

#[test]
fn clean_jobs_have_no_findings() {
    let recordings = [
        "training.pickle.gz",
        "layers32_forward.pickle.gz",
        "backward_wide.pickle.gz",
        "inference.pickle.gz",
    ];
    for number in 0..if is_long() { 100 } else { 4 } {
        let folder = tempfile::tempdir().unwrap();
        let base = base(recordings[number % recordings.len()], 60 + number);
        // Alike, or the stages of a pipeline.
        let stages = [1, 1, 4, 2][number / 4 % 4];
        let world = 8 + number as u32 % 9;
        for rank in 0..world {
            let stage = 1.0 + 0.4 * f64::from(rank * stages / world);
            let rank = Rank {
                rank,
                world,
                steps: 8 + number as u64 % 7,
                fault: Fault::None,
                stage,
            };
            made::write(&base, &rank, &format!("{number}"), folder.path());
        }
        let answer = fleet(folder.path(), &[]);
        assert_eq!(
            answer["found"], false,
            "job {number}: {}",
            answer["jobs"][0]["outliers"]
        );
        assert_eq!(
            answer["jobs"][0]["ranks"].as_array().unwrap().len(),
            world as usize
        );
    }
}

#[test]
fn half_of_the_files_are_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let base = base("training.pickle.gz", 80);
    for rank in 0..16 {
        let rank = Rank {
            rank,
            world: 16,
            steps: 8,
            fault: Fault::None,
            stage: 1.0,
        };
        made::write(&base, &rank, "x", folder.path());
    }
    assert_eq!(fleet(folder.path(), &["--keep"])["found"], false);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    // Of every second rank the summary is damaged, and of every fourth the trace, too.
    let mut lost = 0;
    for rank in (0..16).step_by(2) {
        let name = format!("-{rank}.trace");
        let its = files
            .iter()
            .find(|path| path.to_string_lossy().ends_with(&name))
            .unwrap();
        let mut content = std::fs::read(its).unwrap();
        let at = content.len() - 100;
        content[at] ^= 1;
        std::fs::write(its, content).unwrap();
        if rank % 4 == 0 {
            std::fs::write(its, b"gpushim\0 and nothing more").unwrap();
            lost += 1;
        }
    }
    let answer = fleet(folder.path(), &[]);
    let job = &answer["jobs"][0];
    assert_eq!(job["ranks"].as_array().unwrap().len(), 16 - lost);
    // The summaries, and the traces of which nothing is left.
    assert_eq!(
        job["unreadable"].as_array().unwrap().len(),
        8,
        "{}",
        job["unreadable"]
    );
    assert_eq!(
        job["missing"].as_array().unwrap().len(),
        lost,
        "{}",
        job["missing"]
    );
    let output = gpushim(&["report", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "ranks are missing");
    let nothing = gpushim(&["report", folder.path().join("no").to_str().unwrap()]);
    assert_eq!(nothing.status.code(), Some(2));
}
