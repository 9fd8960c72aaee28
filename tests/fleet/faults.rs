//! The faults that are planted in a made-up job.

use std::path::Path;

use super::{Base, Fault, MIB, Rank, write};

/// Planted fault, with the kind and the function that must be reported.
type Planted = (Fault, &'static str, Option<&'static str>);

/// The situations that are planted, in turn: which kind `gpushim report` must say, and the function.
fn faults() -> Vec<Planted> {
    let call = |name: &str, file: &str, line| (name.to_string(), format!("/home/me/{file}"), line);
    vec![
        (
            Fault::Leak(8 * MIB, call("keep_loss", "train.py", 31)),
            "leak",
            Some("keep_loss train.py:31"),
        ),
        (
            Fault::Holds(2048 * MIB, call("Cache.fill", "cache.py", 12)),
            "imbalance",
            Some("Cache.fill cache.py:12"),
        ),
        (
            Fault::OutOfMemory(6144 * MIB, call("Replay.store", "replay.py", 55)),
            "out-of-memory",
            Some("Replay.store replay.py:55"),
        ),
        (Fault::Model, "other-model", None),
        (
            Fault::Setting("GPUSHIM_POLICY", "vmm"),
            "other-settings",
            None,
        ),
        (Fault::Died, "died", None),
        (Fault::Slow(1.5), "straggler", None),
        (Fault::Missing, "missing", None),
        (
            Fault::Leak(2 * MIB, call("Metrics.update", "metrics.py", 7)),
            "leak",
            Some("Metrics.update metrics.py:7"),
        ),
        (Fault::Batch(1.6), "imbalance", None),
    ]
}

/// A job of which some ranks have a fault.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Name of the generated job.
    pub name: &'a str,
    /// Number of ranks of the job.
    pub world: u32,
    /// Number of ranks with a fault.
    pub faults: usize,
    /// Number of steps of each rank.
    pub steps: u64,
}

/// Writes the traces of a job. Returns the expected findings: rank, kind and function.
pub fn faulty(
    base: &Base,
    job: &Job<'_>,
    folder: &Path,
) -> Vec<(u32, &'static str, Option<&'static str>)> {
    let (world, many) = (job.world, job.faults);
    let faults = faults();
    let mut planted = Vec::new();
    let at = |number: usize| 3 + number as u32 * (world - 4) / many.max(1) as u32;
    for rank in 0..world {
        let number = (0..many).find(|number| at(*number) == rank);
        let fault = number.map(|number| faults[number % faults.len()].clone());
        if let Some((_, kind, function)) = &fault {
            planted.push((rank, *kind, *function));
        }
        let fault = fault.map_or(Fault::None, |(fault, ..)| fault);
        write(
            base,
            &Rank {
                rank,
                world,
                steps: job.steps,
                fault,
                stage: 1.0,
            },
            job.name,
            folder,
        );
    }
    planted
}
