//! The choices that a user has: where memory comes from, and what makes freed memory safe to hand out again.

/// Cached memory that nothing asked for in this number of ticks of the background thread goes back.
pub const TICKS_TO_DECAY: u32 = 4;

/// Where the memory of a pool comes from (`GPUSHIM_POLICY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Physical memory mapped into one reserved range of addresses, moved where it is needed.
    #[default]
    Vmm,
    /// Whole driver allocations, cached one to one.
    Blocks,
    /// Forwarded to the driver, and traced. A pool that is made all the same keeps whole driver allocations.
    Off,
}

impl Policy {
    /// Every policy, the default first.
    pub const ALL: [Policy; 3] = [Policy::Vmm, Policy::Blocks, Policy::Off];

    /// Its name in `GPUSHIM_POLICY`.
    ///
    /// ```
    /// use gpushim_alloc::Policy;
    /// assert_eq!(Policy::parse("blocks"), Some(Policy::Blocks));
    /// assert_eq!(Policy::Blocks.name(), "blocks");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Vmm => "vmm",
            Policy::Blocks => "blocks",
            Policy::Off => "off",
        }
    }

    /// The policy of a name; `None` if there is no such policy.
    pub fn parse(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// What makes a freed block safe to hand out again (`GPUSHIM_REUSE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reuse {
    /// Ordered on the device: later work waits for the work before the free.
    #[default]
    Order,
    /// The host waits for the work before the free, at the allocation.
    Wait,
    /// The host waits for the context at each free, as the driver does.
    Strict,
}

impl Reuse {
    /// The choice of a name; `None` if there is none.
    ///
    /// ```
    /// use gpushim_alloc::Reuse;
    /// assert_eq!(Reuse::parse("wait"), Some(Reuse::Wait));
    /// ```
    pub fn parse(name: &str) -> Option<Reuse> {
        match name {
            "order" => Some(Reuse::Order),
            "wait" => Some(Reuse::Wait),
            "strict" => Some(Reuse::Strict),
            _ => None,
        }
    }
}
