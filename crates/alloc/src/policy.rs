//! Choices of the user: the source of memory, and the method that makes freed memory safe to reuse.

/// Ticks of the background thread until cached memory that is not requested is given back to the
/// driver.
pub const TICKS_TO_DECAY: u32 = 4;

/// Source of the memory of a pool (`GPUSHIM_POLICY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Physical memory, mapped into one reserved range of addresses and moved as needed.
    #[default]
    Vmm,
    /// Whole driver allocations, cached one to one.
    Blocks,
    /// Requests are forwarded to the driver and traced. A pool made in spite of that keeps whole
    /// driver allocations.
    Off,
}

impl Policy {
    /// All policies, the default first.
    pub const ALL: [Policy; 3] = [Policy::Vmm, Policy::Blocks, Policy::Off];

    /// Name of the policy in `GPUSHIM_POLICY`.
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

    /// Returns the policy of a name; `None` if there is no such policy.
    pub fn parse(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// Method that makes a freed block safe to reuse (`GPUSHIM_REUSE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reuse {
    /// Later work waits on the device for the work before the free.
    #[default]
    Order,
    /// The host waits for the work before the free, at the allocation.
    Wait,
    /// The host waits for the context at each free, as the driver does.
    Strict,
}

impl Reuse {
    /// Returns the method of a name; `None` if there is no such method.
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
