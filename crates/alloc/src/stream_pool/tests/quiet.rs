//! Panics as findings, without their noise: thousands of programs are tried.

use super::machine::run;
use super::program::{Action, Setting};
use crate::sim::Call;
use crate::stream_pool::mutation::{Mutation, plant};
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

/// What went wrong in a program, the first thing if many did.
pub fn finding(setting: &Setting, actions: &[Action], mistake: Mistake) -> Option<String> {
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
    let (mutation, lie) = match mistake {
        Mistake::None => (None, None),
        Mistake::Of(mutation) => (Some(mutation), None),
        Mistake::Lie(call) => (None, Some(call)),
    };
    QUIET.set(true);
    plant(mutation);
    let outcome = catch_unwind(AssertUnwindSafe(|| run(setting, actions, lie)));
    plant(None);
    QUIET.set(false);
    match outcome {
        Ok(findings) => findings.into_iter().next(),
        Err(_) => Some(SAID.take()),
    }
}
