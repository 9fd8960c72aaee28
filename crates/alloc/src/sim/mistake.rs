//! Mistakes in a program that would go well, and what is noticed of them: panics count as findings, without their noise,
//! as thousands of programs are tried.

use super::Call;
use crate::mutation::{Mutation, plant};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What a test does to a program that would go well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// A step of the pool's is left out.
    Of(Mutation),
    /// Calls of the driver claim to have done their work and have not.
    Lie(Call),
}

impl Mistake {
    /// What goes wrong with the mistake in a program that `run` runs and tells the findings of, the first thing if much
    /// does. `run` is told which calls lie.
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

    /// Tells after how many programs each of these mistakes is noticed, as `noticed` finds out, and how.
    ///
    /// # Panics
    /// If one is not.
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
