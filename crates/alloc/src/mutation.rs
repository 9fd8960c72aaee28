//! Mistakes planted by tests, to show that each would be noticed. Each is made in one place: in
//! `rules.rs`, in `fences.rs` or in `captures.rs`. The simulated driver (`sim`) makes the mistakes
//! of a driver that lies.

/// A step that is left out, or taken too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    // Fences and their events (`fences.rs`).
    /// A free does not join any fence.
    NoFence,
    /// A free joins the fence before the open one, whose event is older.
    OlderFence,
    /// A block that is freed after an event was recorded belongs to this event's fence.
    NoClose,
    /// A stream is made to wait for an older event than the noted one.
    OrderOlder,
    /// An event is retired before it is complete.
    RetireEarly,
    /// A mark does not close the open fence.
    OpenMark,
    /// Adjacent blocks of one queue keep the older fence.
    AbsorbOlder,
    // Captures and graphs (`captures.rs`).
    /// A block that is freed under a capture is reused.
    NoQuarantine,
    /// A block does not know the group under which it was allocated.
    NoGroup,
    /// Graphs do not hold any blocks.
    NoGraphs,
    /// Graphs made from graphs do not hold any blocks.
    NoDerived,
    /// A block in two groups is freed with the first.
    NoHoldBack,
    /// Blocks that wait for captures and graphs are not freed when memory is short.
    NoGiveUp,
    /// Blocks that graphs depend on are freed, too, when memory is short.
    GiveUpKept,
    // Calls that invalidate a capture (`rules.rs`, as for all mistakes below).
    /// Fences are made under a capture.
    FenceUnderCapture,
    /// Events are queried under a capture.
    QueryUnderCapture,
    /// Streams are made to wait under a capture.
    OrderUnderCapture,
    /// The host waits under a capture.
    WaitUnderCapture,
    /// The event of a stream that ends is recorded though it may be capturing.
    RecordUnderCapture,
    // Uses of free memory.
    /// Blocks are allocated whatever their fence.
    UseEarly,
    /// Blocks of an unordered queue are allocated on it as if it were ordered.
    UseForAll,
    /// Blocks freed on no particular stream are allocated whatever their fence.
    UnmergedForAll,
    /// Blocks of a thread cache are allocated on any stream.
    CacheForAll,
    /// Every other block that could be merged with an adjacent one stays apart.
    MergeSome,
    /// Adjacent blocks of two queues stay apart when their work is complete.
    NoConsolidate,
    /// Adjacent blocks of two queues lose the fence that is incomplete.
    AbsorbOther,
    /// A graph's former block is free when the work of the stream that freed it is complete.
    ReturnOrdered,
    /// A block that waited for a graph waits in the context that its queue serves by then.
    WaitElsewhere,
    // Pieces and driver allocations.
    /// Pieces move as if the work that uses them were complete.
    MoveEarly,
    /// Former places of pieces are unmapped whatever their work.
    ReapEarly,
    /// Free memory is given back whatever its work.
    EvictEarly,
    /// An exported allocation is reused.
    ReuseExported,
    /// Pieces that are too large are given back whatever their work.
    TakeBackEarly,
    /// Blocks on pieces that moved under work have no fence.
    NoFenceAfterAlias,
    /// Memory in the window of a mapping that failed has no fence.
    NoFenceAfterFailure,
    /// Memory is got beyond the size that the pool's creator demanded.
    BeyondSize,
    /// A request is refused before all free memory is given back.
    NoLastResort,
    // Streams and contexts.
    /// A synchronised stream is taken for its whole context.
    MarkOtherStreams,
    /// A synchronised context is taken for all contexts.
    MarkOtherContexts,
    /// A synchronised context is taken for others that may use its memory.
    MarkDespitePeers,
    /// A stream that ended is taken for one with the same handle.
    KeepStream,
    /// No event is recorded on a stream that ends.
    NoLastEvent,
    /// A new stream in the queue of a former one counts as ordered behind the same work.
    KeepOrder,
    /// A queue ends before its work is complete.
    EndQueueEarly,
    /// Memory freed in a context that ends waits for no other context.
    EndAlone,
    /// Events of a context that is gone are kept.
    KeepEvents,
    /// Blocks of a context that is gone are kept.
    KeepBlocks,
    // Elastic segments.
    /// A wrong sum of live bytes is not noticed.
    NoLiveSum,
    /// When the announcements are wrong, pages stay without memory.
    NoRestore,
    /// An emptied page gives its memory away whatever its work.
    NoPageFence,
    /// A piece takes its memory back although another one has it.
    HaveOthers,
    /// Memory goes to a piece whatever the order of their streams.
    HaveUnordered,
    /// Work of other streams on a tensor is forgotten.
    ForgetOtherStreams,
    /// A piece whose memory another one has is unmapped under its work.
    UnmapPlaceEarly,
    /// A page is empty when the first of its tensors is freed.
    SpareShared,
    /// A tensor that was allocated under a capture moves later.
    NoPinOfNew,
    /// A tensor that is live under a capture moves later.
    NoPinOfLives,
    /// A segment that was exported moves.
    NoPinOfExports,
    /// A piece is unmapped with a part of a range, though a tensor is on its pages beside the part.
    UnmapBeside,
    /// An allocator is trusted to announce its tensors before it has done so.
    TrustUnproven,
    /// Segments are allocated whatever memory is in use.
    NoAdmission,
    /// A segment is freed under its work.
    FreeSegmentEarly,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// Plants a mistake, or none, in this thread until the next call.
#[cfg(test)]
pub(crate) fn plant(mutation: Option<Mutation>) {
    PLANTED.set(mutation);
}

/// True if a mistake is to be made: never outside of tests.
#[inline(always)]
pub(crate) fn planted(mutation: Mutation) -> bool {
    #[cfg(test)]
    return PLANTED.get() == Some(mutation);
    #[cfg(not(test))]
    {
        let _ = mutation;
        false
    }
}

/// Alternates between false and the answer of [`planted`].
#[inline(always)]
pub(crate) fn planted_at_times(mutation: Mutation) -> bool {
    #[cfg(test)]
    if planted(mutation) {
        thread_local! {
            static MADE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
        }
        return MADE.replace(!MADE.get());
    }
    #[cfg(not(test))]
    let _ = mutation;
    false
}
