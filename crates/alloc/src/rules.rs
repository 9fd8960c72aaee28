//! What the pools may do, and what they must: one function for each rule, named by what it decides. Tests break one rule
//! at a time (`mutation.rs`), and each must be noticed.

use crate::handles::{Context, Stream};
use crate::mutation::{Mutation, planted, planted_at_times};

/// As the rule says, or yes where a test breaks it.
#[inline(always)]
fn yes_if(rule: bool, broken: Mutation) -> bool {
    rule || planted(broken)
}

/// As the rule says, or no where a test breaks it.
#[inline(always)]
fn no_unless(rule: bool, broken: Mutation) -> bool {
    rule && !planted(broken)
}

/// Calls to the driver that would invalidate a capture.
#[derive(Clone, Copy)]
pub(crate) enum Call {
    /// Those that make a fence.
    Fence,
    Query,
    Order,
    Wait,
    Record,
}

/// Whether a call may be made: while no stream captures.
#[inline(always)]
pub(crate) fn may_call(call: Call, is_capturing: bool) -> bool {
    let broken = match call {
        Call::Fence => Mutation::FenceUnderCapture,
        Call::Query => Mutation::QueryUnderCapture,
        Call::Order => Mutation::OrderUnderCapture,
        Call::Wait => Mutation::WaitUnderCapture,
        Call::Record => Mutation::RecordUnderCapture,
    };
    yes_if(!is_capturing, broken)
}

/// Whether a block may be handed out: its work `is_ordered` before the request's.
#[inline(always)]
pub(crate) fn may_use(is_ordered: bool) -> bool {
    yes_if(is_ordered, Mutation::UseEarly)
}

/// Whether a queue may have what was freed on it without a look at the fence: the queue `is_ordered` by itself.
#[inline(always)]
pub(crate) fn may_use_unseen(is_ordered: bool) -> bool {
    yes_if(is_ordered, Mutation::UseForAll)
}

/// Whether a block of a thread cache may be handed out: it was freed on `this_stream`.
#[inline(always)]
pub(crate) fn may_use_cached(this_stream: bool) -> bool {
    yes_if(this_stream, Mutation::CacheForAll)
}

/// Whether a block at hand of a queue without an order of its own may be handed out: its work is over.
#[inline(always)]
pub(crate) fn may_use_unmerged(is_usable: bool) -> bool {
    yes_if(is_usable, Mutation::UnmergedForAll)
}

/// Whether a block may be merged with a neighbour: no later request has to wait longer for that.
#[inline(always)]
pub(crate) fn may_merge(is_joinable: bool) -> bool {
    is_joinable && !planted_at_times(Mutation::MergeSome)
}

/// Whether a block may be merged with neighbours of other queues: its work is over.
#[inline(always)]
pub(crate) fn may_consolidate(is_complete: bool) -> bool {
    no_unless(is_complete, Mutation::NoConsolidate)
}

/// Whether a block takes over the queue and fence of a neighbour from another queue: its own work is over.
#[inline(always)]
pub(crate) fn gives_way(is_complete: bool) -> bool {
    is_complete != planted(Mutation::AbsorbOther)
}

/// Whether a piece may be moved, rather than be mapped a second time: its work is over.
#[inline(always)]
pub(crate) fn may_move(is_complete: bool) -> bool {
    yes_if(is_complete, Mutation::MoveEarly)
}

/// Whether a piece must stay where it is: it is registered outside the process.
#[inline(always)]
pub(crate) fn must_stay(is_pinned: bool) -> bool {
    no_unless(is_pinned, Mutation::MovePinned)
}

/// Whether a place that a piece was moved from may be unmapped: the work there is over.
#[inline(always)]
pub(crate) fn may_unmap(is_complete: bool) -> bool {
    yes_if(is_complete, Mutation::ReapEarly)
}

/// Whether free memory may go back: its work is over.
#[inline(always)]
pub(crate) fn may_evict(is_complete: bool) -> bool {
    yes_if(is_complete, Mutation::EvictEarly)
}

/// Whether a piece must not go back: it is registered outside the process.
#[inline(always)]
pub(crate) fn must_not_evict(is_pinned: bool) -> bool {
    no_unless(is_pinned, Mutation::EvictPinned)
}

/// True if a freed block must not be used again: others reach it from outside the process.
#[inline(always)]
pub(crate) fn must_release(is_exported: bool) -> bool {
    no_unless(is_exported, Mutation::ReuseExported)
}

/// Whether a piece that is too large may go back, after `finish` has waited for its work.
#[inline(always)]
pub(crate) fn may_take_back(finish: impl FnOnce() -> bool) -> bool {
    planted(Mutation::TakeBackEarly) || finish()
}

/// Whether memory that is mapped anew needs a fence: earlier work may use it elsewhere.
#[inline(always)]
pub(crate) fn needs_fence(was_used: bool) -> bool {
    no_unless(was_used, Mutation::NoFenceAfterAlias)
}

/// Whether memory where a mapping failed needs a fence: some of it may have been used before.
#[inline(always)]
pub(crate) fn needs_fence_after_failure() -> bool {
    !planted(Mutation::NoFenceAfterFailure)
}

/// Whether a pool may hold `bytes` bytes, as its creator demanded; 0: it may hold any.
#[inline(always)]
pub(crate) fn may_hold(bytes: u64, max_size: u64) -> bool {
    yes_if(max_size == 0 || bytes <= max_size, Mutation::BeyondSize)
}

/// The ways to find memory for a request, the last of which gives back all that is free.
#[inline(always)]
pub(crate) fn ways<T>(all: &[T]) -> &[T] {
    let left_out = usize::from(planted(Mutation::NoLastResort));
    all.get(..all.len() - left_out).unwrap_or_default()
}

/// The stream for which a mark stands: the one that is synchronised; `None`: all of the context.
#[inline(always)]
pub(crate) fn marked_stream(stream: Option<Stream>) -> Option<Stream> {
    stream.filter(|_| !planted(Mutation::MarkOtherStreams))
}

/// Whether a mark stands for a queue: it is one of the context that is synchronised.
#[inline(always)]
pub(crate) fn may_mark(is_of_context: bool) -> bool {
    yes_if(is_of_context, Mutation::MarkOtherContexts)
}

/// Whether a mark stands for what no stream in particular uses: only the context that is synchronised can.
#[inline(always)]
pub(crate) fn may_mark_shared(is_alone: bool) -> bool {
    yes_if(is_alone, Mutation::MarkDespitePeers)
}

/// Whether a queue ends with its stream: a stream with the same handle later is another one.
#[inline(always)]
pub(crate) fn queue_ends_with_stream() -> bool {
    !planted(Mutation::KeepStream)
}

/// Whether the last work of a stream that ends needs an event: there is none that covers it.
#[inline(always)]
pub(crate) fn needs_last_event(lacks_event: bool) -> bool {
    no_unless(lacks_event, Mutation::NoLastEvent)
}

/// Whether a queue may end: its work is over.
#[inline(always)]
pub(crate) fn may_end(is_over: bool) -> bool {
    yes_if(is_over, Mutation::EndQueueEarly)
}

/// Whether what is known of other queues' order ends with a queue.
#[inline(always)]
pub(crate) fn order_ends_with_queue() -> bool {
    !planted(Mutation::KeepOrder)
}

/// Whether events end with a context: they are its own.
#[inline(always)]
pub(crate) fn events_end_with_context(are_its_own: bool) -> bool {
    no_unless(are_its_own, Mutation::KeepEvents)
}

/// Tells whether a queue is complete once its context has ended.
/// That of a stream is: no other context uses it.
#[inline(always)]
pub(crate) fn ends_alone(is_of_stream: bool) -> bool {
    yes_if(is_of_stream, Mutation::EndAlone)
}

/// Whether blocks end with a context: it may have some that are for no stream in particular.
#[inline(always)]
pub(crate) fn blocks_end_with_context(may_have_some: bool) -> bool {
    no_unless(may_have_some, Mutation::KeepBlocks)
}

/// The context whose work a block that a graph held waits for: the one that it was freed in, whichever its queue serves
/// `now`.
#[inline(always)]
pub(crate) fn freed_in(context: Context, now: impl FnOnce() -> Option<Context>) -> Context {
    match planted(Mutation::WaitElsewhere) {
        true => now().unwrap_or(context),
        false => context,
    }
}

/// The queue and fence that a block that a graph held waits for: all of its context's, as the graph's last launch may be
/// running on any stream. `own`: its own, which is not enough.
#[inline(always)]
pub(crate) fn after_graph(all: (u32, u64), own: (u32, u64)) -> (u32, u64) {
    match planted(Mutation::ReturnOrdered) {
        true => own,
        false => all,
    }
}

/// Whether the allocator above must tell the sum of live bytes that its announcements give.
#[inline(always)]
pub(crate) fn must_agree() -> bool {
    !planted(Mutation::NoLiveSum)
}

/// Whether all pages get memory again when the announcements turn out to be wrong.
#[inline(always)]
pub(crate) fn must_restore() -> bool {
    !planted(Mutation::NoRestore)
}

/// Whether an emptied page has to wait for an event.
#[inline(always)]
pub(crate) fn needs_page_fence() -> bool {
    !planted(Mutation::NoPageFence)
}

/// Whether a piece may have its memory again: it `is_spare`, and not another's.
#[inline(always)]
pub(crate) fn is_spare(is_spare: bool) -> bool {
    yes_if(is_spare, Mutation::HaveOthers)
}

/// Whether memory may go to another piece although its work is not over: one stream orders it before the other's.
#[inline(always)]
pub(crate) fn may_have_in_order(is_ordered: bool) -> bool {
    yes_if(is_ordered, Mutation::HaveUnordered)
}

/// Whether the work of a tensor that died is not ordered by its stream: others may use it, too.
#[inline(always)]
pub(crate) fn counts_other_streams(may_use: bool) -> bool {
    no_unless(may_use, Mutation::ForgetOtherStreams)
}

/// Whether a piece whose memory another one has is unmapped only after its own work.
#[inline(always)]
pub(crate) fn must_finish_place() -> bool {
    !planted(Mutation::UnmapPlaceEarly)
}

/// The tensors of a page, after one of them died.
#[inline(always)]
pub(crate) fn without_one(tensors: u32) -> u32 {
    if planted(Mutation::SpareShared) {
        return 0;
    }
    tensors.saturating_sub(1)
}

/// Whether the segment of a tensor stays as it is: it was born while a stream `is_capturing`.
#[inline(always)]
pub(crate) fn pins_new_tensors(is_capturing: bool) -> bool {
    no_unless(is_capturing, Mutation::NoPinOfNew)
}

/// Whether a page keeps its memory: it `is_live` while a stream captures.
#[inline(always)]
pub(crate) fn pins_lives(is_live: bool) -> bool {
    no_unless(is_live, Mutation::NoPinOfLives)
}

/// Whether a segment stays as it is when others may reach it.
#[inline(always)]
pub(crate) fn pins_exports() -> bool {
    !planted(Mutation::NoPinOfExports)
}

/// Whether a segment has all its memory because its allocator is one that announces nothing, for all that is known.
#[inline(always)]
pub(crate) fn must_keep_unproven(is_unproven: bool) -> bool {
    no_unless(is_unproven, Mutation::TrustUnproven)
}

/// Whether there may be one more segment: it `fits` beside what is in use.
#[inline(always)]
pub(crate) fn may_have_segment(fits: bool) -> bool {
    yes_if(fits, Mutation::NoAdmission)
}

/// Whether a segment must not be freed before the work that may use it is over.
#[inline(always)]
pub(crate) fn must_wait_for_segment() -> bool {
    !planted(Mutation::FreeSegmentEarly)
}
