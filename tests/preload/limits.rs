//! How much memory there is, as the program is told.

use gpushim_trace::Kind;

use crate::support::{Run, program};

#[test]
fn cached_memory_counts_as_free() {
    for policy in ["blocks", "off"] {
        Run::new(program("mem_info"))
            .env("GPUSHIM_POLICY", policy)
            .both();
    }
    // Parts of larger segments: what is freed must be free again, whatever a segment's size.
    for policy in ["segments", "vmm"] {
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
    for policy in ["blocks", "segments", "vmm", "off"] {
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
        assert!(got.iter().all(|n| (18..=20).contains(n)), "{what}");
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
