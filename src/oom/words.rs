//! Causes in sentences, and their evidence.

use super::cause::{Cause, Place};
use super::explain::{Evidence, Explanation};
use super::figures::Situation;
use super::find::Shortage;
use super::search::Without;
use crate::output::holder::Holder;
use crate::output::units::{bytes, count, span};
use crate::recording::CallSite;

/// The sentences about a request.
pub(super) struct Sentences<'a> {
    pub shortage: &'a Shortage,
    pub situation: &'a Situation,
    pub explanation: &'a Explanation,
    /// The call site of most blocks that iterations left behind.
    pub left_by: Option<&'a CallSite>,
    /// The call site of the request.
    pub asker: Option<&'a CallSite>,
    /// The stacks that held memory, those with most bytes first.
    pub held_by: &'a [Holder],
}

impl Sentences<'_> {
    /// Returns the request and its cause, with its moment.
    pub fn verdict(&self, iteration: Option<usize>) -> String {
        let mut text = format!("Out of memory at {}", span(self.shortage.ns));
        if let Some(iteration) = iteration {
            text.push_str(&format!(", in iteration {iteration}"));
        }
        let asking = self.asker.map(CallSite::in_a_sentence);
        format!(
            "{text}: {}. {}",
            asked(asking, self.shortage),
            self.because()
        )
    }

    /// Returns the causes, a sentence each.
    pub fn because(&self) -> String {
        let causes = self.explanation.causes.iter();
        let mut sentences: Vec<String> = causes.map(|cause| self.sentence(*cause)).collect();
        if sentences.len() > 1 {
            sentences.push("Without only one of these it does not fit.".to_string());
        }
        if self.shortage.met_later {
            sentences.push("Memory was then given back, and it was met.".to_string());
        }
        sentences.join(" ")
    }

    /// Describes the memory of the device and the allocator, and the way in which the cause was
    /// found; a line each.
    pub fn evidence(&self) -> Vec<String> {
        let mut lines = evidence(self.situation);
        lines.extend(tried(self.explanation));
        lines.extend(instead(self.explanation));
        lines
    }

    fn sentence(&self, cause: Cause) -> String {
        match (cause, self.left_by) {
            (
                Cause::Growth {
                    kept,
                    per_iteration,
                },
                Some(site),
            ) => format!(
                "{} had left {} behind, {} in each iteration: without that it fits.",
                site.in_a_sentence(),
                bytes(kept),
                bytes(per_iteration)
            ),
            _ => sentence(cause, self.situation),
        }
    }
}

/// Names the request: `load train.py:8` asked for 2.0 GiB of gpu 0.
pub(super) fn asked(asking: Option<String>, shortage: &Shortage) -> String {
    let asking = asking.unwrap_or_else(|| match shortage.by_framework {
        true => "the framework".to_string(),
        false => "the program".to_string(),
    });
    let device = shortage.device;
    let of = device.map_or(String::new(), |device| format!(" of gpu {device}"));
    format!("{asking} asked for {}{of}", bytes(shortage.size))
}

/// Names other conditions without which the request would have succeeded, in one sentence.
fn instead(explanation: &Explanation) -> Option<String> {
    let names: Vec<&str> = explanation.instead.iter().map(|one| name(*one)).collect();
    let (last, rest) = names.split_last()?;
    Some(match rest {
        [] => format!("it would have fitted without {last}, too"),
        rest => format!(
            "it would have fitted without {} or {last}, too",
            rest.join(", ")
        ),
    })
}

/// Returns a noun for a list of causes.
pub(super) fn name(cause: Cause) -> &'static str {
    match cause {
        Cause::Growth { .. } => "the blocks that iterations left behind",
        Cause::FrameworkLimit { .. } => "PyTorch's own limit",
        Cause::Waiting { .. } => "freed blocks that wait",
        Cause::CachedElsewhere { place, .. } => match place {
            Place::Pool => "pools of graphs or of the program",
            Place::Stream => "a cache for each stream",
            Place::Framework => "the framework's cache",
        },
        Cause::Fragmentation { .. } => "fragmentation",
        Cause::OurLimit { .. } => "GPUSHIM_LIMIT",
        Cause::Peers { .. } => "other processes under the limit",
        Cause::OtherProcesses { .. } => "other processes",
        Cause::TooLarge { .. } => "a request of this size",
        Cause::DriverRefused { .. } | Cause::Full { .. } | Cause::Unknown => "this process",
    }
}

/// Describes the memory of the device and the allocator, one line each.
fn evidence(situation: &Situation) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(limit) = situation.limit {
        lines.push(format!(
            "GPUSHIM_LIMIT {}, of which {} were held",
            bytes(limit),
            bytes(situation.of_limit())
        ));
    }
    for peer in &situation.peers {
        lines.push(format!(
            "of the same limit, {} held {}: {}",
            peer.who,
            bytes(peer.held),
            peer.name
        ));
    }
    if let Some(free) = situation.free {
        let of = situation
            .total
            .map_or(String::new(), |total| format!(" of {}", bytes(total)));
        lines.push(format!("the device had {} free{of}", bytes(free)));
    }
    if let Some(cache) = situation.cache {
        let whose = whose(situation.by_framework);
        let largest = cache.largest_free.map_or(String::new(), |largest| {
            format!(", the largest piece {}", bytes(largest))
        });
        let mut line = format!(
            "{whose} held {}: {} handed out, {} free{largest}",
            bytes(cache.reserved),
            bytes(cache.allocated),
            bytes(cache.cached())
        );
        if cache.waiting > 0 {
            line.push_str(&format!(
                "; {} were freed and waited for streams, captures or graphs",
                bytes(cache.waiting)
            ));
        }
        lines.push(line);
    }
    if situation.in_framework > 0 {
        lines.push(format!(
            "the framework had {} cached",
            bytes(situation.in_framework)
        ));
    }
    if let Some(others) = situation.others().filter(|others| *others > 0) {
        lines.push(format!(
            "other processes and the driver held {}",
            bytes(others)
        ));
    }
    lines
}

pub(super) fn whose(by_framework: bool) -> &'static str {
    if by_framework {
        "the framework"
    } else {
        "gpushim's pool"
    }
}

fn sentence(cause: Cause, situation: &Situation) -> String {
    match cause {
        Cause::TooLarge { most, by_limit } => format!(
            "The request is larger than {}, {}: it cannot be met.",
            if by_limit {
                "GPUSHIM_LIMIT"
            } else {
                "the whole device"
            },
            bytes(most)
        ),
        Cause::Growth {
            kept,
            per_iteration,
        } => format!(
            "Iterations had left {} behind, {} each: without that it fits.",
            bytes(kept),
            bytes(per_iteration)
        ),
        Cause::FrameworkLimit { free, reserved } => {
            let free = free.map_or(String::new(), |free| {
                format!(" while {} were free", bytes(free))
            });
            let below = if situation.asked_below == Some(false) {
                "no request to the driver failed"
            } else {
                "the device had room"
            };
            format!(
                "PyTorch refused it itself at {} reserved{free}: {below}. That is what \
                 torch.cuda.set_per_process_memory_fraction does.",
                bytes(reserved)
            )
        }
        Cause::Waiting { bytes: waiting } => format!(
            "{} that the program had freed waited for streams, captures or graphs: without that it fits.",
            bytes(waiting)
        ),
        Cause::CachedElsewhere {
            bytes: there,
            place,
        } => {
            let place = match place {
                Place::Pool => {
                    "in other pools of the framework (of CUDA graphs, or torch.cuda.MemPool)"
                }
                Place::Stream => {
                    "in the framework's cache, in pieces that belong to other streams or pools"
                }
                Place::Framework => "in the framework's cache, which this request could not use",
            };
            match there {
                0 => format!("Free memory lay {place}: without that it fits."),
                _ => format!("{} were free {place}.", bytes(there)),
            }
        }
        Cause::Fragmentation {
            cached,
            largest,
            of_framework,
        } => {
            let largest = largest.map_or(String::new(), |largest| {
                format!(", none larger than {}", bytes(largest))
            });
            let free = match situation.room(Without::NONE) {
                0 => String::new(),
                room => format!(" and {} could still be got from the driver", bytes(room)),
            };
            let of = if of_framework {
                "framework's cache"
            } else {
                "pool"
            };
            format!(
                "Fragmentation of the {of}: {} were free in pieces{largest}{free}.",
                bytes(cached)
            )
        }
        Cause::OurLimit { limit, held } => format!(
            "GPUSHIM_LIMIT is {}, of which {} were held: without the limit it would have fitted.",
            bytes(limit),
            bytes(held)
        ),
        Cause::Peers { bytes: peers } => format!(
            "Other processes held {} of the {} that GPUSHIM_LIMIT allows to all: without them it would have fitted.",
            bytes(peers),
            bytes(situation.limit.unwrap_or(0))
        ),
        Cause::OtherProcesses { bytes: others } => format!(
            "Other processes held {} of the device (with what the driver needs): without them it would have fitted.",
            bytes(others)
        ),
        Cause::DriverRefused { free } => format!(
            "The driver refused it although it had {} free.",
            bytes(free)
        ),
        Cause::Full { short } => format!(
            "This process itself used the memory: what was free and cached is {} less than the request.",
            bytes(short)
        ),
        Cause::Unknown => "The recording does not say how much memory was free.".to_string(),
    }
}

/// Names the tries, in one sentence; nothing if there were none.
fn tried(explanation: &Explanation) -> Option<String> {
    let fits = &explanation.fits;
    if let Some(why) = fits.untold {
        return Some(format!(
            "the causes are by these figures, not by a replay: {why}"
        ));
    }
    if explanation.by == Evidence::Figures {
        return None;
    }
    let with_it: Vec<_> = (fits.tries.iter())
        .filter(|one| one.memory == fits.memory)
        .collect();
    let recorded = with_it.first()?;
    let names = |fit: bool| {
        let of = with_it.iter().filter(|one| one.fits == fit);
        let names: Vec<&str> = of.map(|one| one.policy.name()).collect();
        Some(names.join(", ")).filter(|names| !names.is_empty())
    };
    let (met, refused) = (names(true), names(false));
    let met = met.map(|names| format!("{names} would have met it"));
    let refused = refused.map(|names| format!("{names} would not have met it"));
    let both: Vec<String> = met.into_iter().chain(refused).collect();
    let mut text = format!(
        "replayed up to this request with the same {}: {}",
        bytes(fits.memory),
        both.join(", ")
    );
    if let Some(more) = fits.more() {
        let policy = recorded.policy.name();
        text.push_str(&format!("; with {} more {policy} would have", bytes(more)));
    }
    Some(text)
}

/// Describes the blocks that pin free memory, in one sentence.
pub(super) fn pinned(pins: usize, free: u64, by: Option<&CallSite>) -> String {
    let by = by.map_or(String::new(), |site| {
        format!(", the first of them by {}", site.in_a_sentence())
    });
    format!(
        "{} segments are nearly empty and pin {} of free memory{by}.",
        count(pins as u64),
        bytes(free)
    )
}
