//! The lifetime of each block, and the key by which requests are compared.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use crate::requests::{Op, Requests};
use gpushim_alloc::plan::{Family, GRANULE};

/// A block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Bytes, rounded as the pool does.
    pub bytes: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// The request that it comes with.
    pub from: usize,
    /// The request that it goes with; `usize::MAX` if there is none.
    pub to: usize,
}

/// All blocks of one family, in the order of their allocation. Its requests are counted from 0.
#[derive(Debug, Default)]
pub struct Lives {
    pub spans: Vec<Span>,
    /// For each request: the same for requests that are alike. A free is that of the block that was allocated so
    /// many allocations ago.
    pub tokens: Vec<u64>,
}

impl Lives {
    pub fn of(requests: &Requests, family: Family) -> Lives {
        let mut lives = Lives::default();
        let mut numbers: FxHashMap<u32, usize> = FxHashMap::default();
        for request in requests.iter() {
            if request.stream.is_none() != (family == Family::Plain) {
                continue;
            }
            let at = lives.tokens.len();
            match request.op {
                Op::Allocate => {
                    let bytes = rounded(request.bytes);
                    numbers.insert(request.block, lives.spans.len());
                    lives.spans.push(Span {
                        bytes,
                        requested: request.bytes,
                        from: at,
                        to: usize::MAX,
                    });
                    lives.tokens.push(token((bytes, request.stream)));
                }
                Op::Free => {
                    let Some(number) = numbers.remove(&request.block) else {
                        continue;
                    };
                    let age = lives.spans.len() - number;
                    if let Some(span) = lives.spans.get_mut(number) {
                        span.to = at;
                    }
                    lives.tokens.push(token((age, "freed")));
                }
                Op::Done | Op::Trim => {}
            }
        }
        lives
    }

    /// The peak of the requested bytes of the first `blocks` blocks.
    pub fn peak(&self, blocks: usize) -> u64 {
        let spans = self.spans.iter().take(blocks);
        let mut changes: Vec<(usize, bool, u64)> = spans
            .flat_map(|span| {
                [
                    (span.from, true, span.requested),
                    (span.to, false, span.requested),
                ]
            })
            .collect();
        changes.sort_unstable();
        let (mut live, mut peak) = (0_u64, 0);
        for (_, comes, bytes) in changes {
            live = if comes {
                live.saturating_add(bytes)
            } else {
                live.saturating_sub(bytes)
            };
            peak = peak.max(live);
        }
        peak
    }

    /// How many allocations there are before a request.
    pub fn allocations_before(&self, request: usize) -> usize {
        self.spans.partition_point(|span| span.from < request)
    }
}

fn token(of: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Bytes of a request, as plans count them: whole granules.
pub(super) fn rounded(bytes: u64) -> u64 {
    bytes
        .max(1)
        .checked_next_multiple_of(GRANULE)
        .unwrap_or(bytes)
}
