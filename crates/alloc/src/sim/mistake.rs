//! Mistakes in a program that would go well, and their findings. Panics count as findings and print
//! nothing, because thousands of programs are tried.

use super::Call;
use crate::mutation::{Mutation, plant};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Mistake of a test in a program that would go well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// A step of the pool is left out.
    Of(Mutation),
    /// Driver calls claim success and have no effect.
    Lie(Call),
}

impl Mistake {
    /// Runs a program with the mistake. Returns the first finding, if there is any. `run` gets the
    /// calls that lie, and returns its findings.
    pub fn finding(self, run: impl FnOnce(Option<Call>) -> Vec<String>) -> Option<String> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let loud = take_hook();
            set_hook(Box::new(move |info| {
                if QUIET.get() {
                    SAID.set(info.to_string());
                } else {
                    loud(info);
                }
            }));
        });
        let (mutation, lie) = match self {
            Mistake::None => (None, None),
            Mistake::Of(mutation) => (Some(mutation), None),
            Mistake::Lie(call) => (None, Some(call)),
        };
        QUIET.set(true);
        plant(mutation);
        let outcome = catch_unwind(AssertUnwindSafe(|| run(lie)));
        plant(None);
        QUIET.set(false);
        match outcome {
            Ok(findings) => findings.into_iter().next(),
            Err(_) => Some(SAID.take()),
        }
    }

    /// Prints the number of programs after which `noticed` finds each of these mistakes, and the
    /// finding.
    ///
    /// # Panics
    /// If a mistake is not noticed.
    pub fn all_are_noticed(
        mistakes: impl IntoIterator<Item = Mistake>,
        mut noticed: impl FnMut(Mistake) -> Option<(usize, String)>,
    ) {
        let mut missed = Vec::new();
        for mistake in mistakes {
            match noticed(mistake) {
                Some((n, finding)) => {
                    let finding = finding.replace('\n', " ");
                    println!("{mistake:?}: after {n} programs: {finding}");
                }
                None => missed.push(mistake),
            }
        }
        assert!(missed.is_empty(), "not noticed: {missed:?}");
    }
}
