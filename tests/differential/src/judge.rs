//! Judges each step: equal, different as promised, or a bug.

use crate::op::{Op, Place, Question};
use crate::promises::Promise;

/// Rules of the comparison of a configuration with the native run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// `GPUSHIM_LIMIT`, in bytes.
    pub limit: Option<u64>,
    /// Every call goes on to the driver.
    pub is_off: bool,
    /// Native frees put other work in order: programs may rely on that, and find faults here.
    pub orders_memory: bool,
}

/// Memory held on a device when a step is judged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Requested bytes of live blocks.
    pub held: u64,
    /// Bytes that the blocks may cost beyond their size.
    pub extra: u64,
    /// Bytes that are live natively and were refused here as promised.
    pub missing: u64,
    /// A pool's threshold was raised: it may keep as much as it once held.
    pub raised: bool,
    /// A stream captures, or a graph lives: memory freed during the capture may wait for it.
    pub captures: bool,
    /// The default stream of another thread captures, and memory of `cuMemAlloc` was served that a
    /// capture forbids; or a stream captures, and there is a green context.
    pub keeps: bool,
    /// A promised difference has kept a block from one of the runs in this program.
    pub has_diverged: bool,
    /// The step's pool may not grow beyond a size; for threads at once, a device's current pool.
    pub is_capped: bool,
    /// The step's block is of a graph, which takes its memory when it runs.
    pub is_of_graph: bool,
    /// A request of gigabytes was served in this process. One block may keep a large piece of that
    /// memory.
    pub was_vast: bool,
    /// The size of the step's block, in bytes; 0 if it is a pool's.
    pub block: u64,
}

/// The judgement of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The runs do not differ in the step.
    Same,
    /// A difference of the table.
    Promised(Promise),
    /// The difference is not promised.
    Different,
}

/// Most that a block may cost under any policy, in bytes: a power of two, and 32 MiB that it alone
/// pins.
pub fn cost(bytes: u64) -> u64 {
    bytes.max(1).next_power_of_two().max(bytes) + (32 << 20)
}

/// Room for tables of the pools, shared pages and pieces of graphs, in bytes.
const SLACK: u64 = 96 << 20;

/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
pub const CAPTURE_UNSUPPORTED: u64 = 900;
/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`.
const CAPTURE_INVALIDATED: u64 = 901;
/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`.
pub const CAPTURE_IMPLICIT: u64 = 906;

/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: u64 = 801;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: u64 = 2;

/// Compares the observations of a step in both runs. Both lists end with the number of findings.
pub fn judge(op: &Op, theirs: &[u64], ours: &[u64], facts: &Facts, rules: &Rules) -> Verdict {
    use Verdict::*;
    let (Some((their_findings, theirs)), Some((our_findings, ours))) =
        (theirs.split_last(), ours.split_last())
    else {
        return Different;
    };
    // A wrong free is a finding wherever the driver sees it.
    let is_wrong = matches!(op, Op::FreeWrongly { .. });
    let is_crowd = matches!(op, Op::Crowd { .. });
    let is_excused = is_wrong || rules.orders_memory && !is_crowd;
    if our_findings > their_findings && !is_excused {
        return Different;
    }
    let is_of_memory = matches!(
        op,
        Op::AskMemory | Op::Allocate { .. } | Op::Storm { .. } | Op::Crowd { .. }
    );
    if theirs == ours && !is_of_memory {
        return if our_findings != their_findings {
            Promised(Promise::Quiet)
        } else {
            Same
        };
    }
    let is_refused = matches!(
        theirs.first(),
        Some(&(CAPTURE_UNSUPPORTED | CAPTURE_IMPLICIT))
    );
    let is_lawful = matches!(
        op,
        Op::Allocate { .. } | Op::Free { .. } | Op::FreeAsync { .. } | Op::Probe { .. }
    );
    if is_refused && is_lawful && matches!(ours.first(), Some(&(0 | OUT_OF_MEMORY))) {
        return Promised(Promise::Lawful);
    }
    // Such a free is wrong in two ways: the driver and we may name either.
    let is_invalidated = theirs.first() == Some(&CAPTURE_INVALIDATED);
    if (is_refused || is_invalidated) && is_wrong && ours.first() == Some(&1) {
        return Promised(Promise::Lawful);
    }
    let is_request = matches!(op, Op::Allocate { .. } | Op::Probe { .. });
    if facts.keeps
        && is_request
        && theirs.first() == Some(&0)
        && ours.first() == Some(&OUT_OF_MEMORY)
    {
        return Promised(Promise::Kept);
    }
    match op {
        Op::Allocate { bytes, from, .. } => {
            allocation(theirs, ours, from.takes(*bytes), facts, rules)
        }
        Op::AskMemory => memory(theirs, ours, facts, rules),
        // A graph that is launched takes memory, too.
        Op::Probe { .. } | Op::Launch { .. }
            if theirs.first() == Some(&OUT_OF_MEMORY) && ours.first() == Some(&0) =>
        {
            Promised(Promise::Served)
        }
        Op::Probe { .. } if rules.limit.is_some() && ours.first() == Some(&OUT_OF_MEMORY) => {
            Promised(Promise::Limited)
        }
        Op::Probe { .. }
            if facts.was_vast && facts.held > 0 && ours.first() == Some(&OUT_OF_MEMORY) =>
        {
            Promised(Promise::Rounded)
        }
        // An open capture may forbid a call natively.
        Op::ThreadsInTurn { .. } if ours.first() >= theirs.first() => Same,
        Op::Storm { bytes, .. } => storm(theirs, ours, u64::from(*bytes), facts, rules),
        Op::Crowd { .. } => crowd(op, theirs, ours, facts, rules),
        // Another block may hold the address, for example a block whose free on a stream is
        // pending. The place was freed, or may lie behind the block.
        Op::Ask {
            freed,
            place,
            question:
                Question::Attributes(_)
                | Question::Attribute(_)
                | Question::SetSyncMemops(_)
                | Question::IpcHandle
                | Question::Access
                | Question::Exported(_)
                | Question::RangeAttribute(_)
                | Question::Range,
            ..
        } if *freed || matches!(place, Place::Offset(_) | Place::End) => Promised(Promise::Again),
        // The driver looks at a capture first, unless a block of its own is there.
        Op::FreeWrongly {
            stream: Some(_), ..
        } if facts.captures && theirs[0] != 0 && matches!(ours[0], 900..=906) => {
            Promised(Promise::Again)
        }
        // A block of up to 256 KiB begins wherever there is room, at a page of the host or not.
        Op::Ask {
            question: Question::Exported(_),
            ..
        } if matches!((theirs.first(), ours.first()), (Some(0 | 1), Some(0 | 1))) => {
            Promised(Promise::Mapping)
        }
        Op::Ask { question, .. } => answer(*question, theirs, ours, facts),
        Op::AskPool {
            attribute: 7 | 8, ..
        } if facts.has_diverged && theirs.first() == ours.first() => Promised(Promise::Used),
        Op::AskPool {
            attribute: 5 | 6, ..
        } if theirs.first() == ours.first() => Promised(Promise::Reserved),
        _ => Different,
    }
}

fn allocation(theirs: &[u64], ours: &[u64], bytes: u64, facts: &Facts, rules: &Rules) -> Verdict {
    use Verdict::*;
    let (code, their_free) = (theirs[0], theirs[theirs.len() - 1]);
    let same = theirs[..theirs.len() - 1] == ours[..ours.len() - 1];
    if let Some(limit) = rules.limit {
        if ours[0] == 0 && !facts.is_of_graph && facts.held + bytes > limit {
            return Different;
        }
        // Natively a broken capture refuses the request, and here the limit does.
        if matches!(code, 900..=906) && ours[0] == OUT_OF_MEMORY {
            return Promised(Promise::Limited);
        }
        // Memory freed on a stream counts until it is released. Nothing waits for it while a stream
        // captures.
        let may_be_refused =
            facts.captures || facts.held + facts.extra + cost(bytes) + SLACK > limit;
        if code == 0 && ours[0] == OUT_OF_MEMORY && may_be_refused {
            return Promised(Promise::Limited);
        }
    }
    match (code, ours[0]) {
        _ if same => Same,
        (OUT_OF_MEMORY, 0) => Promised(Promise::Served),
        (0, OUT_OF_MEMORY) if facts.is_capped => Promised(Promise::Rounded),
        (0, OUT_OF_MEMORY) if their_free < facts.extra + cost(bytes) - bytes + SLACK => {
            Promised(Promise::Rounded)
        }
        _ => Different,
    }
}

/// The answer to a question about an address.
fn answer(question: Question, theirs: &[u64], ours: &[u64], facts: &Facts) -> Verdict {
    use Verdict::*;
    let is_alike = theirs.first() == ours.first();
    match question {
        Question::SetSyncMemops(_) if theirs == [0] && ours == [NOT_SUPPORTED] => {
            Promised(Promise::SyncMemops)
        }
        Question::Attribute(6) if is_alike && is_other_sync(&theirs[1..], &ours[1..], facts) => {
            Promised(Promise::SyncMemops)
        }
        // The list that it is first in.
        Question::Attributes(2)
            if is_alike
                && is_other_sync(&theirs[1..2], &ours[1..2], facts)
                && theirs[2..] == ours[2..] =>
        {
            Promised(Promise::SyncMemops)
        }
        Question::Attribute(10 | 15) if is_alike => Promised(Promise::Ipc),
        Question::Attribute(7 | 18..=20) if is_alike => Promised(Promise::Mapping),
        _ => Different,
    }
}

/// Tells whether SYNC_MEMOPS was set for another block of the context, or refused for
/// stream-ordered memory.
fn is_other_sync(theirs: &[u64], ours: &[u64], facts: &Facts) -> bool {
    (theirs, ours) == (&[0], &[1]) || facts.block == 0 && (theirs, ours) == (&[1], &[0])
}

fn memory(theirs: &[u64], ours: &[u64], facts: &Facts, rules: &Rules) -> Verdict {
    use Verdict::*;
    if theirs[0] != ours[0] || theirs.len() != ours.len() {
        return Different;
    }
    if theirs[0] != 0 {
        return Same;
    }
    let (their_free, their_total, free, total) = (theirs[1], theirs[2], ours[1], ours[2]);
    let whole = rules
        .limit
        .map_or(their_total, |limit| limit.min(their_total));
    if total != whole || free > whole.saturating_sub(facts.held) {
        return Different;
    }
    let used = their_total - their_free;
    // Memory kept by pools may be rounded up as live memory is.
    let most = used + used.saturating_sub(facts.held) + facts.extra + SLACK;
    let may_keep = facts.raised || facts.captures || facts.was_vast && used > 0;
    if !may_keep && free < whole.saturating_sub(most) {
        return Different;
    }
    match (total == their_total, free == their_free) {
        (true, true) => Same,
        (true, false) => Promised(Promise::Free),
        _ => Promised(Promise::Total),
    }
}

fn storm(theirs: &[u64], ours: &[u64], bytes: u64, facts: &Facts, rules: &Rules) -> Verdict {
    use Verdict::*;
    // Pieces of 32 MiB that a driver's pool keeps by its threshold: how many depends on where its
    // blocks lie.
    let kept = if facts.raised { 128 << 20 } else { 0 };
    let (their_count, their_free, count) = (theirs[0], theirs[1], ours[0]);
    if let Some(limit) = rules.limit {
        if facts.held + count * bytes > limit {
            return Different;
        }
        if count < their_count
            && facts.held + facts.extra + their_count * cost(bytes) + SLACK > limit
        {
            return Promised(Promise::Limited);
        }
    }
    match count.cmp(&their_count) {
        std::cmp::Ordering::Equal => Same,
        std::cmp::Ordering::Greater => Promised(Promise::Served),
        std::cmp::Ordering::Less
            if their_free < facts.extra + their_count * (cost(bytes) - bytes) + SLACK + kept =>
        {
            Promised(Promise::Rounded)
        }
        std::cmp::Ordering::Less => Different,
    }
}

/// Judges threads at once: no call fails that succeeds natively, and no more memory is taken than a
/// pool may keep.
fn crowd(op: &Op, theirs: &[u64], ours: &[u64], facts: &Facts, rules: &Rules) -> Verdict {
    let (&[ref theirs @ .., their_growth, is_short], &[ref ours @ .., growth, _]) = (theirs, ours)
    else {
        return Verdict::Different;
    };
    let is_worse = |(theirs, ours): (&u64, &u64)| ours > theirs;
    // Where memory is short natively, or a pool may not grow, chance decides how many requests are
    // refused: the first number.
    let is_by_chance = is_short != 0 || facts.is_capped;
    let any_worse = theirs
        .iter()
        .zip(ours)
        .skip(usize::from(is_by_chance))
        .any(is_worse);
    let most = match *op {
        // While a stream captures, all that is freed may be kept for the graph.
        Op::Crowd { capturing, .. } if capturing > 0 || rules.is_off => u64::MAX,
        _ => 0,
    };
    let most = most.saturating_add(3 * their_growth + 2 * (SLACK >> 20));
    match any_worse || growth > most {
        true => Verdict::Different,
        false => Verdict::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Ending;

    #[test]
    fn chance_decides_how_many_requests_a_capped_pool_refuses_to_threads_at_once() {
        let op = Op::Crowd {
            threads: 2,
            capturing: 0,
            ending: Ending::None,
            exports: false,
            seed: 1,
        };
        let [none, one, unfreed] = [[0; 8], [1, 0, 0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0]];
        let judged = |ours: &[u64], is_capped| {
            let facts = Facts {
                is_capped,
                ..Facts::default()
            };
            judge(&op, &none, ours, &facts, &Rules::default())
        };
        assert_eq!(judged(&one, false), Verdict::Different);
        assert_eq!(judged(&one, true), Verdict::Same);
        assert_eq!(judged(&unfreed, true), Verdict::Different);
    }
}
