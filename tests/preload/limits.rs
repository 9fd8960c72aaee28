//! Amount of memory that the program sees.

use gpushim_trace::Kind;

use crate::support::{Outcome, Run, program};

#[test]
fn cached_memory_counts_as_free() {
    for policy in ["blocks", "off"] {
        let run = Run::new(program("mem_info")).env("GPUSHIM_POLICY", policy);
        run.both();
        // The driver takes whole pages for these.
        run.arg("1200000").both();
    }
    // Freed memory must be free again, with any memory below the pool's blocks.
    for policy in ["blocks", "vmm"] {
        let shim = Run::new(program("mem_info"))
            .env("GPUSHIM_POLICY", policy)
            .shim();
        let free = |line: &str| line.split_whitespace().rev().nth(1).map(str::to_owned);
        let lines: Vec<_> = shim.stdout.lines().map(free).collect();
        assert_eq!(lines.len(), 5, "{}", shim.stdout);
        assert_eq!(lines[0], lines[2], "{policy}: {}", shim.stdout);
        assert_eq!(lines[0], lines[4], "{policy}: {}", shim.stdout);
    }
}

#[test]
fn a_limit_is_an_honest_out_of_memory() {
    for policy in ["blocks", "vmm", "off"] {
        let shim = Run::new(program("limit"))
            .env("GPUSHIM_LIMIT", "200M")
            .env("GPUSHIM_POLICY", policy)
            .shim();
        let what = format!("{policy}: {}", shim.stdout);
        assert!(shim.stdout.starts_with("free 200 of 200\n"), "{what}");
        let got = shim.stdout.lines().filter_map(|line| {
            line.strip_prefix("got ")?
                .split([',', ' '])
                .next()?
                .parse::<u64>()
                .ok()
        });
        let got: Vec<_> = got.collect();
        assert_eq!(got.len(), 3, "{what}");
        // Rounding may cost two blocks; never more is handed out.
        assert!(got[..2].iter().all(|n| (18..=20).contains(n)), "{what}");
        // The driver's own pools grow by 32 MiB, and the 18th block may need that.
        let least = if policy == "off" { 17 } else { 18 };
        assert!((least..=20).contains(&got[2]), "{what}");
        assert_eq!(shim.stdout.matches("then 2").count(), 3, "{what}");
        assert_eq!(
            shim.stdout.matches("freed; free 200 of 200\n").count(),
            2,
            "{what}"
        );
        for line in [
            "the address is 0 then: 1",
            "pitched, beyond it: 2; the address is 0 then: 1",
            "host memory beyond it: 0",
        ] {
            assert!(shim.stdout.lines().any(|other| other == line), "{what}");
        }
        assert_eq!(shim.trace().of(Kind::OutOfMemory).len(), 4, "{what}");
    }
}

#[test]
fn no_limit_no_difference() {
    let (native, _) = Run::new(program("limit")).both();
    assert!(
        native.stdout.contains("got 64, then 0"),
        "{}",
        native.stdout
    );
}

const POLICIES: [&str; 3] = ["auto", "blocks", "off"];
/// A limit of the process, and one in a ledger.
const SCOPES: [&str; 2] = ["process", "{}/ledger"];

fn exact(part: &str, limit: &str, policy: &str, scope: &str) -> Outcome {
    Run::new(program("limit_exact"))
        .args([part, limit])
        .env("STANDIN_DEVICES", "2")
        .env("STANDIN_MEMORY", "4G")
        .env("GPUSHIM_LIMIT", format!("{limit}M"))
        .env("GPUSHIM_LIMIT_SCOPE", scope)
        .env("GPUSHIM_POLICY", policy)
        .shim()
}

#[test]
fn threads_get_all_of_the_limit_and_never_more() {
    let runs = POLICIES
        .iter()
        .flat_map(|policy| SCOPES.map(|scope| (*policy, scope)));
    for (policy, scope) in runs {
        let shim = exact("threads", "256", policy, scope);
        let what = format!("{policy} {scope}: {}", shim.stdout);
        assert_eq!(shim.code, 0, "{what}");
        let lines: Vec<_> = shim
            .stdout
            .lines()
            .filter(|l| !l.starts_with('#'))
            .collect();
        assert_eq!(lines.len(), 10, "{what}");
        for line in lines {
            assert!(line.ends_with(": 1"), "{what}");
            if let Some((_, rest)) = line.split_once(", threads: ") {
                assert!(rest.starts_with("most of the limit: 1,"), "{what}");
                continue;
            }
            let percent = line.split_whitespace().nth(3).and_then(|n| n.parse().ok());
            assert!(percent.is_some_and(|n: u32| n >= 95), "{what}");
        }
    }
}

#[test]
fn the_limit_counts_what_the_driver_takes() {
    let told = [
        (
            "small",
            "small blocks of 1 KiB: 2048; the driver gave 62 MiB\nbeside the last: 2; without: 0\n",
        ),
        (
            "physical",
            "beside a mapping and a handle: 2; a handle: 2; a mapping: 2; nothing: 0\n",
        ),
        ("levels", "levels: 0; the driver gave 64 MiB; two: 2\n"),
        (
            "later",
            "behind work: 0; the driver gave no more: 1\nafter the context: 0\n",
        ),
        (
            "pools",
            "all is free again: 1\nbeside blocks of a destroyed pool: 2; a small one: 0; all is free again: 1\na capture: 0\n",
        ),
    ];
    let runs = POLICIES
        .iter()
        .flat_map(|policy| SCOPES.map(|scope| (*policy, scope)));
    for (policy, scope) in runs {
        for (part, lines) in told {
            let limit = if part == "pools" { "160" } else { "64" };
            let shim = exact(part, limit, policy, scope);
            let mut seen: Vec<_> = shim.stdout.lines().collect();
            seen.dedup();
            assert_eq!(
                seen,
                lines.lines().collect::<Vec<_>>(),
                "{policy} {scope} {part}"
            );
        }
    }
}
