//! The settings that are tried: policies with their parameters.

use std::fmt;

use super::search::{Job, Run};
use crate::replay::{Policy, ReplayDevice};
use crate::requests::Op;
use gpushim_alloc as alloc;

/// Which calls the runs allocate by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    /// `cudaMalloc` and its kin.
    pub plain: bool,
    /// `cudaMallocAsync` and its kin; a framework's tensors, too, which takeover puts there.
    pub ordered: bool,
}

/// Settings that the runs could have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// For `cudaMalloc` and its kin.
    pub plain: alloc::Policy,
    /// For `cudaMallocAsync` and its kin.
    pub ordered: alloc::Policy,
    /// `GPUSHIM_PAGE`, bytes.
    pub page: u64,
    /// `GPUSHIM_CACHE_MAX`, bytes.
    pub cache_max: Option<u64>,
}

/// The default of `GPUSHIM_PAGE`, bytes.
pub const PAGE: u64 = 2 << 20;

/// Larger pages that are tried, bytes. Beyond, half a page that is left over at the end of what is used is more
/// than most policies lose.
const PAGES: [u64; 5] = [16 << 20, 8 << 20, 32 << 20, 4 << 20, 64 << 20];

/// Caches that are tried: these shares of the peak.
const CACHES: [u64; 2] = [4, 16];

impl Families {
    /// Those of the runs.
    pub fn of(runs: &[Run]) -> Families {
        let mut families = Families::default();
        for request in runs.iter().flat_map(|run| run.requests.iter()) {
            if request.op == Op::Allocate {
                families.plain |= request.stream.is_none();
                families.ordered |= request.stream.is_some();
            }
        }
        families
    }
}

impl Candidate {
    /// A policy for both families of calls.
    pub const fn of(policy: alloc::Policy) -> Candidate {
        Candidate {
            plain: policy,
            ordered: policy,
            page: PAGE,
            cache_max: None,
        }
    }

    /// The default settings: `auto`.
    pub const DEFAULT: Candidate = Candidate {
        plain: alloc::Policy::Blocks,
        ordered: alloc::Policy::Vmm,
        page: PAGE,
        cache_max: None,
    };

    /// The same with what makes no difference for these calls as in a policy for both families.
    fn plainly(self, families: Families) -> Candidate {
        match families {
            Families { plain: false, .. } => Candidate {
                plain: self.ordered,
                ..self
            },
            Families { ordered: false, .. } => Candidate {
                ordered: self.plain,
                ..self
            },
            _ => self,
        }
    }

    fn replayed(&self) -> Policy {
        if self.plain == self.ordered {
            Policy::Gpushim(self.plain)
        } else {
            Policy::Auto
        }
    }

    /// The value of `GPUSHIM_POLICY`.
    pub fn policy(&self) -> &'static str {
        self.replayed().name()
    }

    /// Whether pages are mapped for either family.
    pub fn is_paged(&self) -> bool {
        self.plain == alloc::Policy::Vmm || self.ordered == alloc::Policy::Vmm
    }

    /// Its replay of a run, on this device otherwise.
    pub fn job<'a>(&self, device: &ReplayDevice, run: Run<'a>) -> Job<'a> {
        Job {
            policy: self.replayed(),
            device: ReplayDevice {
                page: self.page,
                cache_max: self.cache_max,
                ..*device
            },
            run,
        }
    }

    /// The variables that have to be set so that it is in force for these calls.
    pub fn variables(&self, families: Families) -> Vec<(&'static str, String)> {
        let default = Candidate::DEFAULT.plainly(families);
        let mut variables = Vec::new();
        if (self.plain, self.ordered) != (default.plain, default.ordered) {
            variables.push(("GPUSHIM_POLICY", self.policy().to_string()));
        }
        if self.is_paged() && self.page != default.page {
            variables.push(("GPUSHIM_PAGE", size(self.page)));
        }
        if let Some(bytes) = self.cache_max {
            variables.push(("GPUSHIM_CACHE_MAX", size(bytes)));
        }
        variables
    }

    /// What the settings of a recording say, where they are such as can be tried.
    pub(super) fn recorded(
        setting: impl Fn(&str) -> Option<String>,
        families: Families,
    ) -> Option<Candidate> {
        let bytes = |name: &str| setting(name).and_then(|text| gpushim_config::size(&text));
        let of = match setting("GPUSHIM_POLICY")?.parse().ok()? {
            Policy::Auto => Candidate::DEFAULT,
            Policy::Gpushim(policy) => Candidate::of(policy),
            _ => return None,
        };
        let page = bytes("GPUSHIM_PAGE").unwrap_or(PAGE);
        let cache_max = bytes("GPUSHIM_CACHE_MAX").filter(|_| of.plain != alloc::Policy::Vmm);
        let of = of.plainly(families);
        Some(Candidate {
            page: if of.is_paged() { page } else { PAGE },
            cache_max: cache_max.filter(|_| families.plain),
            ..of
        })
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.policy())?;
        if self.is_paged() && self.page != PAGE {
            write!(f, ", pages of {}", size(self.page))?;
        }
        if let Some(bytes) = self.cache_max {
            write!(f, ", cache of {}", size(bytes))?;
        }
        Ok(())
    }
}

/// The settings to try for these calls and a peak of `peak` live bytes: the default first, then those that are likely
/// best, and last those that differ little from earlier ones. Of two that differ little from each other the one with
/// fewer changes comes first.
pub fn candidates(families: Families, peak: u64) -> Vec<Candidate> {
    use alloc::Policy::{Bins, Blocks, Segments, Vmm};
    let mut all = vec![Candidate::DEFAULT];
    all.extend([Vmm, Segments].map(Candidate::of));
    let paged = |page| {
        [Blocks, Vmm].map(|plain| Candidate {
            plain,
            page,
            ..Candidate::of(Vmm)
        })
    };
    all.extend(PAGES.iter().take(1).flat_map(|page| paged(*page)));
    all.extend([Blocks, Bins].map(Candidate::of));
    all.extend(PAGES.iter().skip(1).flat_map(|page| paged(*page)));
    for part in CACHES {
        // A size that one can remember.
        let bytes = (peak / part).checked_next_power_of_two().unwrap_or(peak);
        if families.plain && bytes >= PAGE {
            all.extend([Segments, Blocks, Bins].map(|policy| Candidate {
                cache_max: Some(bytes),
                ..Candidate::of(policy)
            }));
        }
    }
    let mut different: Vec<Candidate> = Vec::new();
    for candidate in all.into_iter().map(|one| one.plainly(families)) {
        // Without pages their size makes no difference.
        let page = if candidate.is_paged() {
            candidate.page
        } else {
            PAGE
        };
        let candidate = Candidate { page, ..candidate };
        if !different.contains(&candidate) {
            different.push(candidate);
        }
    }
    different
}

/// Bytes as a variable takes them, rounded up to a MiB.
pub fn size(bytes: u64) -> String {
    let mib = bytes.div_ceil(1 << 20);
    if mib.is_multiple_of(1024) && mib > 0 {
        format!("{}G", mib / 1024)
    } else {
        format!("{mib}M")
    }
}
