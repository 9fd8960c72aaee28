//! Bytes that are reserved for the requests of a recording: as they were, and with changes.

use crate::ledger::Focus;
use crate::output::units::bytes;
use crate::recording::Recording;
use crate::replay::{Policy, ReplayDevice, run};
use crate::requests::Requests;
use gpushim_alloc as alloc;
use gpushim_trace::{Kind, Layer, Record};

/// Requests beyond which nothing is replayed here: each replay takes about a microsecond for each.
const MOST: usize = 1 << 19;
/// Part of the unused memory (1/`HELPS`) that a setting must save: a replay is no measurement.
const HELPS: u64 = 4;

/// The requests of a device, to be served again.
pub struct Replays {
    pub(super) requests: Requests,
    layer: Layer,
    /// The allocator that served them, if known.
    policy: Option<Policy>,
    /// False if CUDA graphs have pools of their own and the recording does not name their blocks.
    are_pools_known: bool,
    /// Bytes that the allocator reserves for them at most; if it is unknown, the recorded bytes.
    pub reserved: u64,
}

impl Replays {
    /// Reads the requests of a device; `None` if the recording lacks the beginning of the run, or
    /// is long.
    pub fn of(recording: &dyn Recording, focus: Focus, device: u8) -> Option<Replays> {
        let variables = recording.process().variables;
        let takeover = variables.get("GPUSHIM_TAKEOVER");
        // Tensors that the shim's pools serve are not served by PyTorch's rules.
        let is_taken_over =
            focus.layer == Layer::Tensor && takeover.is_some_and(|names| names.contains("torch"));
        if recording.coverage().wrapped || recording.is_one_moment() || is_taken_over {
            return None;
        }
        let focus = Focus {
            device: Some(device),
            ..focus
        };
        let requests = Requests::of(recording, focus).remove(&device)?;
        if requests.len() > MOST || !requests.has_history() {
            return None;
        }
        let policy = match focus.layer {
            Layer::Tensor => Some(Policy::Torch),
            _ => variables
                .get("GPUSHIM_POLICY")
                .and_then(|name| name.parse().ok()),
        };
        let reserved = match policy {
            Some(policy) => reserved(policy, &requests),
            None => requests.recorded_reserved()?,
        };
        let is_capture = |record: Record| record.event.kind == Kind::CaptureBegin;
        let are_pools_known = focus.layer != Layer::Tensor
            || recording.caching().is_some()
            || !recording.events().any(is_capture);
        Some(Replays {
            requests,
            layer: focus.layer,
            policy,
            are_pools_known,
            reserved,
        })
    }

    /// Returns the bytes that the same allocator reserves for changed requests.
    pub(super) fn with(&self, changed: &Requests) -> u64 {
        self.policy
            .map_or(self.reserved, |policy| reserved(policy, changed))
    }

    /// Returns the settings that would have reserved less, with the bytes, in a sentence; `unused`
    /// bytes were reserved and not used.
    pub fn advice(&self, unused: u64) -> Option<String> {
        if !self.are_pools_known {
            return None;
        }
        let vmm = Policy::Gpushim(alloc::Policy::Vmm);
        let candidates = match self.layer {
            Layer::Tensor => vec![
                (
                    Policy::TorchExpandable,
                    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                ),
                (vmm, "GPUSHIM_TAKEOVER=torch"),
            ],
            _ => vec![(vmm, "GPUSHIM_POLICY=vmm")],
        };
        let tried = candidates
            .into_iter()
            .filter(|(one, _)| Some(*one) != self.policy);
        let tried = tried.filter_map(|(policy, setting)| {
            let would = reserved(policy, &self.requests);
            let saves = self.reserved.checked_sub(would)?;
            (saves > 0 && saves >= unused / HELPS).then(|| {
                format!(
                    "{setting} would have reserved {}, {} less",
                    bytes(would),
                    bytes(saves)
                )
            })
        });
        let helps: Vec<String> = tried.collect();
        (!helps.is_empty()).then(|| format!("{} (by replay)", helps.join("; ")))
    }
}

fn reserved(policy: Policy, requests: &Requests) -> u64 {
    let mut allocator = policy.build(&ReplayDevice::default(), requests);
    run(requests, &mut *allocator).peak_reserved
}
