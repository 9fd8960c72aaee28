//! Running a model under loom, and what models are made of.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use loom::sync::atomic::AtomicU64 as Modelled;

use super::ring::Word;

/// Runs a model in every interleaving with at most `preemptions` preemptions; fails if there was only one interleaving.
///
/// Every model is run by this function.
pub fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // Of one interleaving: it only bounds the memory for it.
    builder.max_branches = 10_000;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let runs = runs.load(Ordering::Relaxed);
    println!("{runs} interleavings");
    assert!(runs > 1, "nothing was explored");
}

/// What came about in any of the interleavings of a model.
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

/// `count` words of zero, as of a new part.
pub fn zeros<W>(word: impl Fn() -> W, count: usize) -> Box<[W]> {
    (0..count).map(|_| word()).collect()
}

/// Makes words whose every access is also one to a word that they all share.
///
/// Loom tries two accesses to a word in both orders only if one is the last before the other, so that a
/// thread that loads a word and then swaps it hides another's load before. These words are always tried in
/// every order. Not for code that relies on acquire fences: with those the shared word would put things in
/// an order that the code does not.
pub fn crowd() -> impl Fn() -> Crowded {
    let all = Arc::new(Modelled::new(0));
    move || Crowded {
        word: Modelled::new(0),
        all: Arc::clone(&all),
    }
}

/// One of them.
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
