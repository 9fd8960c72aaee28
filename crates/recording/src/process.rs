//! The process of a recording, decoded from the texts of its file.

use std::collections::BTreeMap;

/// The fact that a process writes when it ends by `exit`.
const ENDED: &str = "ended";
/// The fact that `gpushim run` adds to the trace of its program at the end.
pub const ENDED_BY: &str = "ended.by";

/// A process, as far as its recording describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Number of the process on its host.
    pub pid: Option<u32>,
    /// Namespace of that number, as the kernel names it.
    pub pid_namespace: Option<String>,
    /// Name of the host that it ran on.
    pub host: Option<String>,
    /// Wall clock at its first event, ns since 1970.
    pub started_wall_ns: Option<u64>,
    /// Rank that the launcher gave it.
    pub rank: Option<String>,
    /// Number of ranks of the job.
    pub world: Option<u32>,
    /// Name of the job by the launcher.
    pub job: Option<String>,
    /// Command line with its arguments.
    pub argv: Option<String>,
    /// GPUs of the process by ordinal.
    pub gpus: BTreeMap<u8, Gpu>,
    /// Variables `GPUSHIM_*` by name.
    pub variables: BTreeMap<String, String>,
    /// True if the owners of blocks were recorded.
    pub has_owners: bool,
    /// Manner of its end by its own note.
    pub ended: Option<String>,
    /// Manner of its end by its parent.
    pub ended_by: Option<String>,
}

/// A GPU: of the fact `NVIDIA H100 80GB HBM3, 85017755648 bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Name of the GPU's model.
    pub name: String,
    /// Size of its memory, bytes.
    pub bytes: u64,
}

impl Process {
    /// Decodes the facts of a trace. Of several facts with one key, the first counts.
    pub fn of(facts: &[(String, String)]) -> Process {
        let mut process = Process::default();
        for (key, value) in facts.iter().rev() {
            let text = Some(value.clone());
            match key.as_str() {
                "pid" => process.pid = value.parse().ok(),
                "pid-namespace" => process.pid_namespace = text,
                "host" => process.host = text,
                "started" => process.started_wall_ns = value.parse().ok(),
                "rank" => process.rank = text,
                "world" => process.world = value.parse().ok(),
                "job" => process.job = text,
                "argv" => process.argv = text,
                "owners" => process.has_owners = true,
                ENDED => process.ended = text,
                ENDED_BY => process.ended_by = text,
                _ if key.starts_with("GPUSHIM_") => {
                    process.variables.insert(key.clone(), value.clone());
                }
                _ => {
                    let gpu = Gpu::ordinal(key).zip(Gpu::parse(value));
                    process.gpus.extend(gpu);
                }
            }
        }
        process
    }

    /// Returns the rank as a number.
    pub fn rank_number(&self) -> Option<u64> {
        self.rank.as_ref()?.parse().ok()
    }
}

impl Gpu {
    /// Parses the value of the fact; `None` if it is of another form.
    pub fn parse(fact: &str) -> Option<Gpu> {
        let (name, bytes) = fact.strip_suffix(" bytes")?.rsplit_once(", ")?;
        Some(Gpu {
            name: name.to_string(),
            bytes: bytes.parse().ok()?,
        })
    }

    /// Returns the ordinal in the key of a fact; `None` if it is not the fact of a GPU.
    pub fn ordinal(key: &str) -> Option<u8> {
        key.strip_prefix("gpu.")?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fact_of_a_gpu() {
        let parsed = Gpu::parse("A, B, 4096 bytes");
        let name = "A, B".to_string();
        assert_eq!(parsed, Some(Gpu { name, bytes: 4096 }));
        for other in ["", "A", "A, 1", "A 1 bytes", "A, x bytes", "A, -1 bytes"] {
            assert_eq!(Gpu::parse(other), None, "{other}");
        }
        assert_eq!(Gpu::ordinal("gpu.0"), Some(0));
        assert_eq!(Gpu::ordinal("host"), None);
    }

    #[test]
    fn the_first_fact_of_a_key_counts() {
        let facts = [
            ("rank", "3"),
            ("rank", "4"),
            ("pid", "x"),
            ("GPUSHIM_LIMIT", "1G"),
        ];
        let facts = facts.map(|(key, value)| (key.to_string(), value.to_string()));
        let process = Process::of(&facts);
        assert_eq!((process.rank_number(), process.pid), (Some(3), None));
        assert_eq!(process.variables["GPUSHIM_LIMIT"], "1G");
        assert!(!process.has_owners);
    }
}
