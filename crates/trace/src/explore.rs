//! Exploration of a model under loom, and types for models.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use loom::sync::atomic::AtomicU64 as Modelled;

use super::ring::Word;

/// Runs a model in every interleaving with at most `preemptions` preemptions; fails if there was
/// only one interleaving.
///
/// Every model is run by this function.
pub fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // Limit for one interleaving: it only bounds the memory.
    builder.max_branches = 10_000;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let runs = runs.load(Ordering::Relaxed);
    println!("{runs} interleavings");
    assert!(runs > 1, "nothing was explored");
}

/// Outcomes of all interleavings of a model.
#[derive(Clone, Default)]
pub struct Outcomes(Arc<Mutex<BTreeSet<usize>>>);

impl Outcomes {
    pub fn add(&self, outcome: usize) {
        self.0.lock().unwrap().insert(outcome);
    }

    pub fn all(&self) -> Vec<usize> {
        self.0.lock().unwrap().iter().copied().collect()
    }
}

/// Returns `count` words of zero, as in a new part.
pub fn zeros<W>(word: impl Fn() -> W, count: usize) -> Box<[W]> {
    (0..count).map(|_| word()).collect()
}

/// Makes words such that every access to one is also an access to a word shared by all.
///
/// Loom tries two accesses to a word in both orders only if no access is between them. So a thread
/// that loads a word and then swaps it hides an earlier load of another thread. These words are
/// always tried in every order. They are not for code that relies on acquire fences. With such
/// fences the shared word would impose an order that the code does not have.
pub fn crowd() -> impl Fn() -> Crowded {
    let all = Arc::new(Modelled::new(0));
    move || Crowded {
        word: Modelled::new(0),
        all: Arc::clone(&all),
    }
}

pub struct Crowded {
    word: Modelled,
    all: Arc<Modelled>,
}

impl Crowded {
    fn touched(&self) -> &Modelled {
        self.all.fetch_add(1, Ordering::Relaxed);
        &self.word
    }
}

impl Word for Crowded {
    fn load(&self, order: Ordering) -> u64 {
        Word::load(self.touched(), order)
    }
    fn store(&self, value: u64, order: Ordering) {
        Word::store(self.touched(), value, order);
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        Word::fetch_add(self.touched(), value, order)
    }
    fn swap_if(&self, current: u64, new: u64, success: Ordering) -> bool {
        Word::swap_if(self.touched(), current, new, success)
    }
    fn fence(order: Ordering) {
        <Modelled as Word>::fence(order);
    }
}
