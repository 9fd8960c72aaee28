//! Rules of the pools, one function for each, named by its decision. Tests break one rule at a time
//! (`mutation.rs`), and each broken rule must be noticed.

use crate::handles::{Context, Stream};
use crate::mutation::{Mutation, planted, planted_at_times};

/// Returns the rule's answer, or true if a test breaks the rule.
#[inline(always)]
fn yes_if(rule: bool, broken: Mutation) -> bool {
    rule || planted(broken)
}

/// Returns the rule's answer, or false if a test breaks the rule.
#[inline(always)]
fn no_unless(rule: bool, broken: Mutation) -> bool {
    rule && !planted(broken)
}

/// Calls to the driver that would invalidate a capture.
#[derive(Clone, Copy)]
pub(crate) enum Call {
    /// Calls that make a fence.
    Fence,
    Query,
    Order,
    Wait,
    Record,
}

/// True if a call may be made: no stream captures.
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

/// True if a block may be allocated: its work `is_ordered` before the request's.
#[inline(always)]
pub(crate) fn may_use(is_ordered: bool) -> bool {
    yes_if(is_ordered, Mutation::UseEarly)
}

/// True if a queue may reuse its freed blocks without a look at their fences: the queue
/// `is_ordered`.
#[inline(always)]
pub(crate) fn may_use_unseen(is_ordered: bool) -> bool {
    yes_if(is_ordered, Mutation::UseForAll)
}

/// True if a block of a thread cache may be allocated: it was freed on `this_stream`.
#[inline(always)]
pub(crate) fn may_use_cached(this_stream: bool) -> bool {
    yes_if(this_stream, Mutation::CacheForAll)
}

/// True if an unmerged block of an unordered queue may be allocated: the queue's later work may use
/// it.
#[inline(always)]
pub(crate) fn may_use_unmerged(is_usable: bool) -> bool {
    yes_if(is_usable, Mutation::UnmergedForAll)
}

/// True if a block may be merged with an adjacent block: no later request has to wait longer for
/// that.
#[inline(always)]
pub(crate) fn may_merge(is_joinable: bool) -> bool {
    is_joinable && !planted_at_times(Mutation::MergeSome)
}

/// True if a block may be merged with adjacent blocks of other queues: its work is complete.
#[inline(always)]
pub(crate) fn may_consolidate(is_complete: bool) -> bool {
    no_unless(is_complete, Mutation::NoConsolidate)
}

/// True if a block takes over the queue and fence of an adjacent block from another queue: its own
/// work is complete.
#[inline(always)]
pub(crate) fn gives_way(is_complete: bool) -> bool {
    is_complete != planted(Mutation::AbsorbOther)
}

/// True if a piece may be moved rather than mapped a second time: its work is complete.
#[inline(always)]
pub(crate) fn may_move(is_complete: bool) -> bool {
    yes_if(is_complete, Mutation::MoveEarly)
}

/// True if the former place of a moved piece may be unmapped: the work there is complete.
#[inline(always)]
pub(crate) fn may_unmap(is_complete: bool) -> bool {
    yes_if(is_complete, Mutation::ReapEarly)
}

/// True if free memory may be given back to the driver: its work is complete.
#[inline(always)]
pub(crate) fn may_evict(is_complete: bool) -> bool {
    yes_if(is_complete, Mutation::EvictEarly)
}

/// True if a freed block must not be used again: it was exported from the process.
#[inline(always)]
pub(crate) fn must_release(is_exported: bool) -> bool {
    no_unless(is_exported, Mutation::ReuseExported)
}

/// True if a piece that is too large may be given back to the driver: `finish` has waited for its
/// work.
#[inline(always)]
pub(crate) fn may_take_back(finish: impl FnOnce() -> bool) -> bool {
    planted(Mutation::TakeBackEarly) || finish()
}

/// True if newly mapped memory needs a fence: earlier work may use it elsewhere.
#[inline(always)]
pub(crate) fn needs_fence(was_used: bool) -> bool {
    no_unless(was_used, Mutation::NoFenceAfterAlias)
}

/// True if memory needs a fence after its mapping failed: some of it may have been used before.
#[inline(always)]
pub(crate) fn needs_fence_after_failure() -> bool {
    !planted(Mutation::NoFenceAfterFailure)
}

/// True if a pool may hold `bytes` bytes, as its creator demanded; 0 is no limit.
#[inline(always)]
pub(crate) fn may_hold(bytes: u64, max_size: u64) -> bool {
    yes_if(max_size == 0 || bytes <= max_size, Mutation::BeyondSize)
}

/// Returns the ways to find memory for a request. The last of them gives back all free memory.
#[inline(always)]
pub(crate) fn ways<T>(all: &[T]) -> &[T] {
    let left_out = usize::from(planted(Mutation::NoLastResort));
    all.get(..all.len() - left_out).unwrap_or_default()
}

/// Returns the stream that a mark covers: the synchronised one, or `None` for the whole context.
#[inline(always)]
pub(crate) fn marked_stream(stream: Option<Stream>) -> Option<Stream> {
    stream.filter(|_| !planted(Mutation::MarkOtherStreams))
}

/// True if a mark covers a queue: the queue is of the synchronised context.
#[inline(always)]
pub(crate) fn may_mark(is_of_context: bool) -> bool {
    yes_if(is_of_context, Mutation::MarkOtherContexts)
}

/// True if a mark covers frees on no particular stream: only the synchronised context may use them.
#[inline(always)]
pub(crate) fn may_mark_shared(is_alone: bool) -> bool {
    yes_if(is_alone, Mutation::MarkDespitePeers)
}

/// True if a queue ends with its stream: a later stream with the same handle is another one.
#[inline(always)]
pub(crate) fn queue_ends_with_stream() -> bool {
    !planted(Mutation::KeepStream)
}

/// True if the last work of a stream that ends needs an event: no event covers it.
#[inline(always)]
pub(crate) fn needs_last_event(lacks_event: bool) -> bool {
    no_unless(lacks_event, Mutation::NoLastEvent)
}

/// True if a queue may end: its work is complete.
#[inline(always)]
pub(crate) fn may_end(is_over: bool) -> bool {
    yes_if(is_over, Mutation::EndQueueEarly)
}

/// True if a queue's order behind other queues is forgotten when it ends.
#[inline(always)]
pub(crate) fn order_ends_with_queue() -> bool {
    !planted(Mutation::KeepOrder)
}

/// True if events end with a context: they are its own.
#[inline(always)]
pub(crate) fn events_end_with_context(are_its_own: bool) -> bool {
    no_unless(are_its_own, Mutation::KeepEvents)
}

/// True if a queue is complete once its context has ended. The queue of a stream is, since no other
/// context uses it.
#[inline(always)]
pub(crate) fn ends_alone(is_of_stream: bool) -> bool {
    yes_if(is_of_stream, Mutation::EndAlone)
}

/// True if blocks end with a context: some of them may be for no particular stream.
#[inline(always)]
pub(crate) fn blocks_end_with_context(may_have_some: bool) -> bool {
    no_unless(may_have_some, Mutation::KeepBlocks)
}

/// Returns the context whose work a graph's former block waits for. This is the context in which
/// the block was freed, even if its queue serves another one `now`.
#[inline(always)]
pub(crate) fn freed_in(context: Context, now: impl FnOnce() -> Option<Context>) -> Context {
    match planted(Mutation::WaitElsewhere) {
        true => now().unwrap_or(context),
        false => context,
    }
}

/// Returns the queue and fence that a graph's former block waits for. They cover the whole context,
/// because the graph's last launch may still run on any stream. The block's `own` queue and fence
/// do not suffice.
#[inline(always)]
pub(crate) fn after_graph(all: (u32, u64), own: (u32, u64)) -> (u32, u64) {
    match planted(Mutation::ReturnOrdered) {
        true => own,
        false => all,
    }
}

/// True if the allocator above must report the sum of live bytes that its announcements add up to.
#[inline(always)]
pub(crate) fn must_agree() -> bool {
    !planted(Mutation::NoLiveSum)
}

/// True if all pages get memory again once the announcements prove wrong.
#[inline(always)]
pub(crate) fn must_restore() -> bool {
    !planted(Mutation::NoRestore)
}

/// True if an emptied page has to wait for an event.
#[inline(always)]
pub(crate) fn needs_page_fence() -> bool {
    !planted(Mutation::NoPageFence)
}

/// True if a piece may take its memory again: the memory `is_spare`, and not another piece's.
#[inline(always)]
pub(crate) fn is_spare(is_spare: bool) -> bool {
    yes_if(is_spare, Mutation::HaveOthers)
}

/// True if memory may move to another piece before its work is complete: one stream orders this
/// work first.
#[inline(always)]
pub(crate) fn may_have_in_order(is_ordered: bool) -> bool {
    yes_if(is_ordered, Mutation::HaveUnordered)
}

/// True if a freed tensor's work is not ordered by its stream: other streams may use the tensor,
/// too.
#[inline(always)]
pub(crate) fn counts_other_streams(may_use: bool) -> bool {
    no_unless(may_use, Mutation::ForgetOtherStreams)
}

/// True if a piece whose memory was moved to another is unmapped only after its own work.
#[inline(always)]
pub(crate) fn must_finish_place() -> bool {
    !planted(Mutation::UnmapPlaceEarly)
}

/// Number of tensors on a page after one of them was freed.
#[inline(always)]
pub(crate) fn without_one(tensors: u32) -> u32 {
    if planted(Mutation::SpareShared) {
        return 0;
    }
    tensors.saturating_sub(1)
}

/// True if the memory of a tensor stays: the tensor was allocated while a stream `is_capturing`.
#[inline(always)]
pub(crate) fn pins_new_tensors(is_capturing: bool) -> bool {
    no_unless(is_capturing, Mutation::NoPinOfNew)
}

/// True if a page keeps its memory: it `is_live` while a stream captures.
#[inline(always)]
pub(crate) fn pins_lives(is_live: bool) -> bool {
    no_unless(is_live, Mutation::NoPinOfLives)
}

/// True if a piece stays when a part of its pages is unmapped: its other pages must `keep` their
/// memory.
#[inline(always)]
pub(crate) fn must_stay_beside(keep: bool) -> bool {
    no_unless(keep, Mutation::UnmapBeside)
}

/// True if a segment stays as it is once it was exported.
#[inline(always)]
pub(crate) fn pins_exports() -> bool {
    !planted(Mutation::NoPinOfExports)
}

/// True if a segment keeps all its memory, because its allocator has yet to prove that it announces
/// its tensors.
#[inline(always)]
pub(crate) fn must_keep_unproven(is_unproven: bool) -> bool {
    no_unless(is_unproven, Mutation::TrustUnproven)
}

/// True if there may be one more segment: it `fits` beside the memory in use.
#[inline(always)]
pub(crate) fn may_have_segment(fits: bool) -> bool {
    yes_if(fits, Mutation::NoAdmission)
}

/// True if a segment must not be freed before the work that may use it is complete.
#[inline(always)]
pub(crate) fn must_wait_for_segment() -> bool {
    !planted(Mutation::FreeSegmentEarly)
}
