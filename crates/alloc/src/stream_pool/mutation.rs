//! Mistakes that tests plant, to show that each would be noticed.

/// Mistakes that tests plant, to show that each would be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    /// A free joins no fence.
    NoFence,
    /// A free joins the fence before the open one, whose event is older.
    OlderFence,
    /// Blocks are handed out whatever their fence.
    UseUnordered,
    /// Blocks of a queue without an order of its own are handed out on it as if it had one.
    UseForAll,
    /// Blocks freed on no stream in particular are kept at hand.
    AtHandForAll,
    /// A stream is said to wait for another but is not made to.
    NoOrder,
    /// A stream is made to wait for an older event than the one noted.
    OrderOlder,
    /// What is freed after an event was recorded belongs to its fence.
    NoClose,
    /// Fences are complete once they are asked about.
    CompleteEarly,
    /// The host is said to have waited but has not.
    NoWait,
    /// The work of a context is said to be over while streams capture, but is not waited for.
    NoDrain,
    /// What waits for captures and graphs does not come back when memory is short.
    NoGiveUp,
    /// An event is given up before it is complete.
    RetireEarly,
    /// Neighbours of one queue keep the older fence.
    AbsorbOlder,
    /// Of neighbours of two queues, the fence that goes on is lost.
    AbsorbOther,
    /// Neighbours are merged one on each side only.
    MergeOne,
    /// Neighbours of two queues stay apart when their work is over.
    NoConsolidate,
    /// What is free does not go back before a request is refused.
    NoLastResort,
    /// Pieces move as if the work that uses them were over.
    MoveEarly,
    /// A piece that moves stays mapped where it was.
    MoveMapped,
    /// Blocks on pieces that moved under work have no fence.
    NoFenceAfterAlias,
    /// Memory in the window of a mapping that failed has no fence.
    NoFenceAfterFailure,
    /// The places where pieces were are unmapped whatever their work.
    ReapEarly,
    /// A piece goes back while it is still mapped where it was before.
    ReapLate,
    /// Free memory goes back whatever its work.
    EvictEarly,
    /// Pieces that are too large go back whatever their work.
    TakeBackEarly,
    /// Memory that somebody relies on moves.
    MovePinned,
    /// Memory that somebody relies on goes back.
    EvictPinned,
    /// Memory is got beyond the size that the pool's creator demanded.
    BeyondSize,
    /// Memory that is there does not change hands.
    NoAccess,
    /// New memory is the pool's device's only.
    NoPeers,
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
    /// What a graph held is free when the stream that freed it is done.
    ReturnOrdered,
    /// Events are asked about under a capture.
    QueryUnderCapture,
    /// Streams are made to wait under a capture.
    OrderUnderCapture,
    /// The host waits under a capture.
    WaitUnderCapture,
    /// The event of a stream that ends is recorded though it may be capturing.
    RecordUnderCapture,
    /// No event is recorded on a stream that ends.
    NoLastEvent,
    /// A stream that ended is taken for one with the same handle.
    KeepStream,
    /// A new stream in a queue that was another's comes after what that one did.
    KeepOrder,
    /// A queue ends before its work is over.
    EndQueueEarly,
    /// What waits for a graph is taken for the memory of the stream that its queue serves by then.
    WaitElsewhere,
    /// A mark does not end the open fence.
    OpenMark,
    /// A synchronised stream is taken for all of its context.
    MarkOtherStreams,
    /// A synchronised context is taken for all.
    MarkOtherContexts,
    /// A synchronised context is taken for others that may use its memory.
    MarkDespitePeers,
    /// Events of a context that is gone are kept.
    KeepEvents,
    /// Blocks of a context that is gone are kept.
    KeepBlocks,
    /// The driver is called with the lock held.
    CallLocked,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// Makes a mistake from now on in this thread, or none.
#[cfg(test)]
pub(super) fn plant(mutation: Option<Mutation>) {
    PLANTED.set(mutation);
}

/// Whether a mistake is to be made.
#[inline(always)]
pub(super) fn on(mutation: Mutation) -> bool {
    #[cfg(test)]
    return PLANTED.get() == Some(mutation);
    #[cfg(not(test))]
    {
        let _ = mutation;
        false
    }
}

impl Mutation {
    #[cfg(test)]
    pub const ALL: &[Mutation] = &[
        Mutation::NoFence,
        Mutation::OlderFence,
        Mutation::UseUnordered,
        Mutation::UseForAll,
        Mutation::AtHandForAll,
        Mutation::NoOrder,
        Mutation::OrderOlder,
        Mutation::NoClose,
        Mutation::CompleteEarly,
        Mutation::NoWait,
        Mutation::NoDrain,
        Mutation::NoGiveUp,
        Mutation::RetireEarly,
        Mutation::AbsorbOlder,
        Mutation::AbsorbOther,
        Mutation::MergeOne,
        Mutation::NoConsolidate,
        Mutation::NoLastResort,
        Mutation::MoveEarly,
        Mutation::MoveMapped,
        Mutation::NoFenceAfterAlias,
        Mutation::NoFenceAfterFailure,
        Mutation::ReapEarly,
        Mutation::ReapLate,
        Mutation::EvictEarly,
        Mutation::TakeBackEarly,
        Mutation::MovePinned,
        Mutation::EvictPinned,
        Mutation::BeyondSize,
        Mutation::NoAccess,
        Mutation::NoPeers,
        Mutation::NoQuarantine,
        Mutation::NoGroup,
        Mutation::NoGraphs,
        Mutation::NoDerived,
        Mutation::NoHoldBack,
        Mutation::ReturnOrdered,
        Mutation::QueryUnderCapture,
        Mutation::OrderUnderCapture,
        Mutation::WaitUnderCapture,
        Mutation::RecordUnderCapture,
        Mutation::NoLastEvent,
        Mutation::KeepStream,
        Mutation::KeepOrder,
        Mutation::EndQueueEarly,
        Mutation::WaitElsewhere,
        Mutation::OpenMark,
        Mutation::MarkOtherStreams,
        Mutation::MarkOtherContexts,
        Mutation::MarkDespitePeers,
        Mutation::KeepEvents,
        Mutation::KeepBlocks,
        Mutation::CallLocked,
    ];
}
