//! Mistakes that tests plant, to show that each would be noticed.

/// Mistakes that tests plant, to show that each would be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    #[cfg(test)]
    None,
    /// Blocks are handed out whatever their fence.
    PromoteEarly,
    /// Only the owner's later work is ordered.
    OrderOwnerOnly,
    /// Fences do not cover other contexts of the device.
    NoNeighbours,
    /// Fences do not cover contexts that were given access.
    NoPeers,
    /// A context that joins late is not ordered after what others were.
    NoCatchUp,
    /// Access that was taken away is forgotten at once.
    ForgetPeers,
    /// What is freed under a capture goes to the cache.
    NoQuarantine,
    /// A block does not know which group it was handed out under.
    NoGroup,
    /// Graphs hold nothing.
    NoGraphs,
    /// Graphs made from graphs hold nothing.
    NoDerived,
    /// A block in two groups is returned with the first.
    NoHoldBack,
    /// Fence calls are made under a capture.
    FenceUnderCapture,
    /// When memory is short, what graphs depend on goes back too.
    GiveUpKept,
    /// When memory is short under a capture, nothing waits for other contexts.
    GiveBackUnwaited,
    /// A mark does not end the open fence.
    OpenMark,
    /// A synchronised context is taken for all that the fence covers.
    MarkDespitePeers,
    /// Memory goes back while other contexts may use it.
    ReleaseForeign,
    /// Events of a context that is gone are kept.
    KeepEvents,
}

impl Mutation {
    #[cfg(test)]
    pub const ALL: [Mutation; 18] = [
        Mutation::PromoteEarly,
        Mutation::OrderOwnerOnly,
        Mutation::NoNeighbours,
        Mutation::NoPeers,
        Mutation::NoCatchUp,
        Mutation::ForgetPeers,
        Mutation::NoQuarantine,
        Mutation::NoGroup,
        Mutation::NoGraphs,
        Mutation::NoDerived,
        Mutation::NoHoldBack,
        Mutation::FenceUnderCapture,
        Mutation::GiveUpKept,
        Mutation::GiveBackUnwaited,
        Mutation::OpenMark,
        Mutation::MarkDespitePeers,
        Mutation::ReleaseForeign,
        Mutation::KeepEvents,
    ];
}
