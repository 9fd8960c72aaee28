//! Running a model under loom.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs a model in every interleaving with so many preemptions; fails if there was only one.
pub fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let runs = runs.load(Ordering::Relaxed);
    println!("{runs} interleavings");
    assert!(runs > 1, "nothing was explored");
}
