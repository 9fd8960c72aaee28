//! Advice against the cause of a failed request, with the size of the change.

use super::cause::{Cause, Place};
use super::figures::Situation;
use super::fits::Fits;
use super::words::Sentences;
use crate::output::units::bytes;

impl Sentences<'_> {
    /// Returns advice against the cause, the best first.
    pub fn advice(&self) -> Vec<String> {
        let causes = self.explanation.causes.iter();
        causes
            .filter_map(|cause| match *cause {
                Cause::Full { short } => Some(self.make_smaller(short)),
                Cause::Growth { per_iteration, .. } => Some(self.free(per_iteration)),
                cause => advice(cause, self.situation, &self.explanation.fits),
            })
            .collect()
    }

    /// Says what to make smaller, by how many bytes.
    fn make_smaller(&self, short: u64) -> String {
        let mut known = self.held_by.iter();
        let holder = known.find(|holder| holder.who.function.is_some());
        let or_free = holder.map_or(String::new(), |holder| {
            format!(
                ", or free some of the {} of {}",
                bytes(holder.bytes),
                holder.who.in_a_sentence()
            )
        });
        format!(
            "Ask for {} less, as with a smaller batch{or_free}.",
            bytes(short)
        )
    }

    /// Says what each iteration has to free.
    fn free(&self, per_iteration: u64) -> String {
        let whose = self.left_by.map_or(String::new(), |site| {
            format!(" of {}", site.in_a_sentence())
        });
        format!(
            "Free in each iteration the {}{whose} that it leaves behind: more memory only delays it.",
            bytes(per_iteration)
        )
    }
}

/// Returns advice against the cause, the best first.
fn advice(cause: Cause, situation: &Situation, fits: &Fits) -> Option<String> {
    let fits_in = |name: &str| fits.others().any(|policy| policy.name() == name);
    let is_vmm = situation.policy.as_deref() == Some("vmm");
    Some(match cause {
        Cause::TooLarge { most, .. } => format!(
            "Ask for at most {} at once: a smaller batch, or parts of it.",
            bytes(most)
        ),
        Cause::FrameworkLimit { .. } => {
            "Raise the fraction, or call set_per_process_memory_fraction(1.0).".to_string()
        }
        Cause::Waiting { .. } => {
            "Synchronise before the request, or destroy graphs that are not needed.".to_string()
        }
        Cause::CachedElsewhere { place, .. } => match place {
            Place::Framework => {
                "Call torch.cuda.empty_cache() before; with GPUSHIM_TAKEOVER=torch both would use one pool."
            }
            Place::Pool => {
                "Let graphs share one pool (torch.cuda.graph_pool_handle()), or drop pools that are not needed."
            }
            Place::Stream => "Allocate on one stream: all blocks then come from one cache.",
        }
        .to_string(),
        Cause::Fragmentation {
            of_framework,
            cached,
            ..
        } => match of_framework {
            true if fits_in("torch-expandable") => {
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True avoids it.".to_string()
            }
            true if fits_in("vmm") => "GPUSHIM_TAKEOVER=torch avoids it.".to_string(),
            false if !is_vmm && fits_in("vmm") => "GPUSHIM_POLICY=vmm avoids it.".to_string(),
            _ => format!(
                "Allocate what lives long before what lives short: blocks that live on lie between the {} that are \
                 free, and `gpushim fragmentation` names them.",
                bytes(cached)
            ),
        },
        Cause::OurLimit { limit, .. } => {
            match fits.more().map(|more| limit.saturating_add(more)) {
                Some(enough) => format!(
                    "GPUSHIM_LIMIT={}M is enough up to this request.",
                    enough.div_ceil(1 << 20)
                ),
                None => "Raise GPUSHIM_LIMIT, or let the run use less.".to_string(),
            }
        }
        Cause::Peers { bytes: peers } => format!(
            "Let the processes of the limit use less than the {} that they hold, or raise GPUSHIM_LIMIT for all.",
            bytes(peers)
        ),
        Cause::OtherProcesses { bytes: others } => format!(
            "End what else runs on the device and holds {}: nvidia-smi and `gpushim top` name it.",
            bytes(others)
        ),
        Cause::Growth { .. }
        | Cause::Full { .. }
        | Cause::DriverRefused { .. }
        | Cause::Unknown => return None,
    })
}
