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
    /// For both families of calls.
    pub policy: alloc::Policy,
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
    /// A policy with its parameters by default.
    pub const fn of(policy: alloc::Policy) -> Candidate {
        Candidate {
            policy,
            page: PAGE,
            cache_max: None,
        }
    }

    /// The default settings: `auto`.
    pub const DEFAULT: Candidate = Candidate::of(alloc::Policy::Vmm);

    /// The value of `GPUSHIM_POLICY`.
    pub fn policy(&self) -> &'static str {
        self.policy.name()
    }

    /// Whether pages are mapped.
    pub fn is_paged(&self) -> bool {
        self.policy == alloc::Policy::Vmm
    }

    /// Its replay of a run, on this device otherwise.
    pub fn job<'a>(&self, device: &ReplayDevice, run: Run<'a>) -> Job<'a> {
        Job {
            policy: Policy::Gpushim(self.policy),
            device: ReplayDevice {
                page: self.page,
                cache_max: self.cache_max,
                ..*device
            },
            run,
        }
    }

    /// The variables that have to be set so that it is in force.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let default = Candidate::DEFAULT;
        let mut variables = Vec::new();
        if self.policy != default.policy {
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
            Policy::Gpushim(policy) => Candidate::of(policy),
            _ => return None,
        };
        let page = bytes("GPUSHIM_PAGE").unwrap_or(PAGE);
        let cache_max = bytes("GPUSHIM_CACHE_MAX").filter(|_| !of.is_paged());
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
    let whole = Candidate::of(alloc::Policy::Blocks);
    let mut all = vec![Candidate::DEFAULT];
    let paged = |page: &u64| Candidate {
        page: *page,
        ..Candidate::DEFAULT
    };
    all.extend(PAGES.iter().take(1).map(paged));
    all.push(whole);
    all.extend(PAGES.iter().skip(1).map(paged));
    for part in CACHES {
        // A size that one can remember.
        let bytes = (peak / part).checked_next_power_of_two().unwrap_or(peak);
        if families.plain && bytes >= PAGE {
            all.push(Candidate {
                cache_max: Some(bytes),
                ..whole
            });
        }
    }
    all
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
