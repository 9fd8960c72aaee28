//! Mistakes that tests plant, to show that each would be noticed. Each is made in one place: in `rules.rs`, in `fences.rs`
//! or in `captures.rs`. What a driver that lies can make wrong is made by the simulated one (`sim`).

/// A step that is left out, or done too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    // Fences and their events (`fences.rs`).
    /// A free joins no fence.
    NoFence,
    /// A free joins the fence before the open one, whose event is older.
    OlderFence,
    /// What is freed after an event was recorded belongs to its fence.
    NoClose,
    /// A stream is made to wait for an older event than the one noted.
    OrderOlder,
    /// An event is given up before it is complete.
    RetireEarly,
    /// A mark does not end the open fence.
    OpenMark,
    /// Neighbours of one queue keep the older fence.
    AbsorbOlder,
    // Captures and graphs (`captures.rs`).
    /// What is freed under a capture goes into circulation.
    NoQuarantine,
    /// A block does not know which group it was handed out under.
    NoGroup,
    /// Graphs hold nothing.
    NoGraphs,
    /// Graphs made from graphs hold nothing.
    NoDerived,
    /// A block in two groups is returned with the first.
    NoHoldBack,
    /// What waits for captures and graphs does not come back when memory is short.
    NoGiveUp,
    /// When memory is short, what graphs depend on goes back too.
    GiveUpKept,
    // Calls that invalidate a capture (`rules.rs`, as all that follow).
    /// Fences are made under a capture.
    FenceUnderCapture,
    /// Events are asked about under a capture.
    QueryUnderCapture,
    /// Streams are made to wait under a capture.
    OrderUnderCapture,
    /// The host waits under a capture.
    WaitUnderCapture,
    /// The event of a stream that ends is recorded though it may be capturing.
    RecordUnderCapture,
    // What free memory may be used for.
    /// Blocks are handed out whatever their fence.
    UseEarly,
    /// Blocks of a queue without an order of its own are handed out on it as if it had one.
    UseForAll,
    /// Blocks freed on no stream in particular are handed out whatever their fence.
    UnmergedForAll,
    /// Blocks of a thread cache are handed out on any stream.
    CacheForAll,
    /// One in two neighbours that could be merged stays apart.
    MergeSome,
    /// Neighbours of two queues stay apart when their work is over.
    NoConsolidate,
    /// Of neighbours of two queues, the fence that goes on is lost.
    AbsorbOther,
    /// What a graph held is free when the stream that freed it is done.
    ReturnOrdered,
    /// What waits for a graph is taken for the memory of the stream that its queue serves by then.
    WaitElsewhere,
    // Pieces and driver allocations.
    /// Pieces move as if the work that uses them were over.
    MoveEarly,
    /// Memory that is registered outside the process moves.
    MovePinned,
    /// The places where pieces were are unmapped whatever their work.
    ReapEarly,
    /// Free memory goes back whatever its work.
    EvictEarly,
    /// Memory that is registered outside the process goes back.
    EvictPinned,
    /// An allocation that others reach from outside the process is used again.
    ReuseExported,
    /// Pieces that are too large go back whatever their work.
    TakeBackEarly,
    /// Blocks on pieces that moved under work have no fence.
    NoFenceAfterAlias,
    /// Memory in the window of a mapping that failed has no fence.
    NoFenceAfterFailure,
    /// Memory is got beyond the size that the pool's creator demanded.
    BeyondSize,
    /// What is free does not go back before a request is refused.
    NoLastResort,
    // Streams and contexts.
    /// A synchronised stream is taken for all of its context.
    MarkOtherStreams,
    /// A synchronised context is taken for all.
    MarkOtherContexts,
    /// A synchronised context is taken for others that may use its memory.
    MarkDespitePeers,
    /// A stream that ended is taken for one with the same handle.
    KeepStream,
    /// No event is recorded on a stream that ends.
    NoLastEvent,
    /// A new stream in a queue that was another's comes after what that one did.
    KeepOrder,
    /// A queue ends before its work is over.
    EndQueueEarly,
    /// Memory that was freed in a context that ends waits for no other context.
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
    /// Memory goes to a piece whatever the order of its streams.
    HaveUnordered,
    /// Work of other streams on a tensor is forgotten.
    ForgetOtherStreams,
    /// A piece whose memory another one has is unmapped under its work.
    UnmapPlaceEarly,
    /// A page is empty when the first of its tensors dies.
    SpareShared,
    /// What is born under a capture moves later.
    NoPinOfNew,
    /// What lives under a capture moves later.
    NoPinOfLives,
    /// What others may reach moves.
    NoPinOfExports,
    /// An allocator is trusted to announce its tensors before it did.
    TrustUnproven,
    /// Segments are handed out whatever is in use.
    NoAdmission,
    /// A segment is freed under its work.
    FreeSegmentEarly,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// Makes a mistake from now on in this thread, or none.
#[cfg(test)]
pub(crate) fn plant(mutation: Option<Mutation>) {
    PLANTED.set(mutation);
}

/// Whether a mistake is to be made: never outside of tests.
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

/// As [`planted`], every other time.
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
