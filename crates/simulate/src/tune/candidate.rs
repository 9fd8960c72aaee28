//! Settings to try: policies with their parameters.

use std::fmt;

use super::search::{Job, Run};
use crate::replay::{Policy, ReplayDevice};
use gpushim_alloc as alloc;
use gpushim_analysis::requests::Op;

/// Families of calls by which the runs allocate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    /// `cudaMalloc` and the related calls.
    pub plain: bool,
    /// `cudaMallocAsync` and the related calls, and a framework's tensors under takeover.
    pub ordered: bool,
}

/// Settings that the runs could have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Policy for both families of calls.
    pub policy: alloc::Policy,
    /// Value of `GPUSHIM_PAGE`, bytes.
    pub page: u64,
    /// Value of `GPUSHIM_CACHE_MAX`, bytes.
    pub cache_max: Option<u64>,
}

/// Default of `GPUSHIM_PAGE`, bytes.
pub const PAGE: u64 = 2 << 20;

/// Larger pages to try, bytes. With still larger pages, the half page that is unused on average
/// wastes more than most policies.
const PAGES: [u64; 5] = [16 << 20, 8 << 20, 32 << 20, 4 << 20, 64 << 20];

/// Caches to try, as divisors of the peak.
const CACHES: [u64; 2] = [4, 16];

impl Families {
    /// Returns the families of the allocations in some runs.
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
    /// Returns a policy with its default parameters.
    pub const fn of(policy: alloc::Policy) -> Candidate {
        Candidate {
            policy,
            page: PAGE,
            cache_max: None,
        }
    }

    /// The default settings: `auto`.
    pub const DEFAULT: Candidate = Candidate::of(alloc::Policy::Vmm);

    /// True if the policy maps pages.
    pub fn is_paged(&self) -> bool {
        self.policy == alloc::Policy::Vmm
    }

    /// Returns the replay of a run with these settings. All other parameters are those of `device`.
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

    /// Returns the variables that put the settings in force. Defaults are left out.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let default = Candidate::DEFAULT;
        let mut variables = Vec::new();
        if self.policy != default.policy {
            variables.push(("GPUSHIM_POLICY", self.policy.name().to_string()));
        }
        if self.is_paged() && self.page != default.page {
            variables.push(("GPUSHIM_PAGE", size(self.page)));
        }
        if let Some(bytes) = self.cache_max {
            variables.push(("GPUSHIM_CACHE_MAX", size(bytes)));
        }
        variables
    }

    /// Returns the settings of a recording; `None` if its policy is unknown or is not gpushim's.
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
        f.write_str(self.policy.name())?;
        if self.is_paged() && self.page != PAGE {
            write!(f, ", pages of {}", size(self.page))?;
        }
        if let Some(bytes) = self.cache_max {
            write!(f, ", cache of {}", size(bytes))?;
        }
        Ok(())
    }
}

/// Returns the settings to try for these families of calls and a peak of `peak` live bytes, in this
/// order:
///
/// 1. The default settings.
/// 2. Settings that are likely to be good.
/// 3. Settings that differ little from earlier ones.
///
/// Of two similar candidates the one with fewer changes comes first.
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
        // A power of two is easy to remember.
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

/// Formats bytes as the value of a variable, rounded up to a MiB.
pub fn size(bytes: u64) -> String {
    let mib = bytes.div_ceil(1 << 20);
    if mib.is_multiple_of(1024) && mib > 0 {
        format!("{}G", mib / 1024)
    } else {
        format!("{mib}M")
    }
}
