//! Programs under the policy `off`, which `gpushim run` sets: the driver calls are the native ones.

use std::collections::BTreeMap;
use std::fs;

use crate::support::{Outcome, Run, library, program};

/// Returns the number of calls of each function that changes anything.
///
/// Recording makes calls of its own that change nothing: queries, and a context made current for
/// them.
fn calls(outcome: &Outcome) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(outcome.folder().join("calls"));
    let text = text.unwrap_or_else(|error| panic!("{error}: {}", outcome.stdout));
    let is_query = |name: &str| {
        [
            "Get",
            "Query",
            "IsCapturing",
            "TotalMem",
            "PushCurrent",
            "PopCurrent",
        ]
        .iter()
        .any(|part| name.contains(part))
    };
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| !is_query(name))
        .map(|(name, count)| (name.to_string(), count.parse().expect("a number")))
        .collect()
}

#[test]
fn recording_makes_the_calls_of_the_program_and_no_other() {
    for name in ["basics", "ranges", "held_by_graph", "both_families"] {
        let run = Run::new(program(name))
            .may("")
            .env("GPUSHIM_POLICY", "off")
            .env("STANDIN_COUNT", "1")
            .env("CALLS", "{}/calls")
            .preload_after(library("lib_calls", &[]));
        let (native, shim) = run.both();
        let (native, shim) = (calls(&native), calls(&shim));
        assert!(native.values().sum::<u64>() > 0, "{name}");
        assert_eq!(shim, native, "{name}");
    }
}
