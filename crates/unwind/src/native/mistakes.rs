//! Planted mistakes in the proof that two walks are the same. Tests must notice each of them.

/// Condition of the proof, left out by mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests make mistakes"))]
pub enum Mistake {
    /// The words of a known walk are not compared with the stack.
    KnownWords,
    /// The words outside of a frame of the last walk are not compared with the stack.
    OuterWords,
    /// The return address is not compared, only its place.
    ReturnAddress,
    /// The frame pointer is not compared.
    FramePointer,
    /// The frames are not counted.
    Count,
}

#[cfg(test)]
thread_local! {
    /// The mistake that this thread makes.
    pub static MADE: std::cell::Cell<Option<Mistake>> = const { std::cell::Cell::new(None) };
}

/// True if a condition is met, or if this mistake leaves it out.
#[inline(always)]
pub fn met_or(_mistake: Mistake, is_met: bool) -> bool {
    #[cfg(test)]
    if MADE.get() == Some(_mistake) {
        return true;
    }
    is_met
}
