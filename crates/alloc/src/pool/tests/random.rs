//! Tests with random programs under all policies and shortages.

use super::machine::run;
use super::program::{program, setting};
use crate::policy::Policy;
use crate::sim::Mistake;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of programs that `POOL_CASES` asks for.
fn asked() -> Option<u32> {
    std::env::var("POOL_CASES").ok()?.parse().ok()
}

/// Runs this number of sixteenths of the random programs.
fn programs(policy: Policy, parts: u32) {
    let cases = asked().unwrap_or(if cfg!(miri) { 16 } else { 1600 });
    let mut runner = TestRunner::new(Config {
        cases: (cases / 16 * parts).max(1),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    });
    let operations = AtomicU64::new(0);
    let length = if cfg!(miri) { 40 } else { 320 };
    let result = runner.run(&(setting(policy), program(length)), |(setting, actions)| {
        operations.fetch_add(actions.len() as u64, Ordering::Relaxed);
        match Mistake::None.finding(|lie| run(&setting, &actions, lie)) {
            Some(finding) => Err(TestCaseError::fail(finding)),
            None => Ok(()),
        }
    });
    println!("{policy:?}: {} operations", operations.into_inner());
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn nothing_goes_wrong_with_pages() {
    programs(Policy::Vmm, 12);
}

#[test]
fn nothing_goes_wrong_with_whole_allocations() {
    programs(Policy::Blocks, 4);
}
