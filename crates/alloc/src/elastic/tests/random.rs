//! Tests with random programs.

use super::machine::run;
use super::program::{program, setting};
use proptest::prelude::*;

/// Number of programs: `ELASTIC_CASES`, or a default.
fn cases() -> u32 {
    let asked = std::env::var("ELASTIC_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    asked.unwrap_or(if cfg!(miri) { 3 } else { 1000 })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nothing_goes_wrong(setting in setting(), actions in program(if cfg!(miri) { 40 } else { 200 })) {
        prop_assert_eq!(run(&setting, &actions, None), Vec::<String>::new());
    }
}
