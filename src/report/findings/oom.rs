//! Finding of the first request that ran out of memory.

use super::{Finding, Kind};
use crate::growth::Growth;
use crate::loops::Iterations;
use crate::oom::{OomReport, Shortage};
use crate::output::answer::Subject;
use crate::output::units::{count, percent};
use crate::recording::{Names, Recording};
use crate::report::overview::{HOLDERS, Overview};

/// Makes the finding of the first request that could not be met.
pub fn find(
    recording: &dyn Recording,
    overview: &Overview,
    mut shortages: Vec<Shortage>,
    names: &mut dyn Names,
) -> Option<Finding> {
    shortages.truncate(1);
    shortages
        .iter_mut()
        .for_each(|one| one.holders.truncate(HOLDERS));
    let bytes = shortages.first()?.size;
    let main = overview.layers.first()?;
    let grows = Growth::of(&main.followed).filter(|growth| growth.grows);
    let iterations = main.iterations();
    let set = iterations.and_then(Iterations::option);
    let set = set.map_or(String::new(), |set| format!(" {set}"));
    let subject = Subject::of(recording, main.focus);
    // A replay of a long recording takes seconds, so it is left to `gpushim oom`.
    let replayed = usize::from(!overview.is_long());
    let oom = OomReport::new(
        recording,
        subject,
        shortages,
        iterations,
        grows.as_ref(),
        replayed,
        names,
    );
    let first = oom.shortages.into_iter().next()?;
    let site = first.site().cloned();
    let kept_by = first.owners.first().map(|owned| owned.owner.in_words());
    let why = first.explanation.why();
    let mut text = first.verdict;
    let mut known = first.held_by.iter();
    if let Some(holder) = known.find(|holder| holder.who.function.is_some()) {
        text.push_str(&format!(
            " {} of what was live was held by {}.",
            percent(holder.share, 1.0),
            holder.who.in_a_sentence()
        ));
    }
    match overview.summary.out_of_memory_count.saturating_sub(1) {
        0 => {}
        1 => text.push_str(" It happened once more."),
        more => text.push_str(&format!(" It happened {} times more.", count(more))),
    }
    let advice = first.advice.into_iter().next();
    Some(Finding {
        kind: Kind::OutOfMemory,
        of: oom.subject.of,
        text,
        bytes,
        per_iteration: None,
        kept_by,
        site,
        sure: true,
        why: why.to_string(),
        fix: advice,
        next: format!("gpushim oom{set} {}", recording.path().display()),
    })
}
