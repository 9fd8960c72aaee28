//! The process of a recording, decoded from the texts of its file.

use std::collections::BTreeMap;

use serde::Serialize;

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
    /// Path of the ledger by which it shared its limit with other processes.
    pub ledger: Option<String>,
    /// Bytes of its contexts and code that the ledger counts, by device, when a request was refused
    /// last.
    pub rest_of_limit: BTreeMap<u8, u64>,
    /// Other processes with the same ledger when a request was refused last, by device.
    pub peers: BTreeMap<u8, Vec<Peer>>,
    /// Manner of its end by its own note.
    pub ended: Option<String>,
    /// Manner of its end by its parent.
    pub ended_by: Option<String>,
}

/// A process that shares a limit: of the fact `limit.peers.0`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Peer {
    /// Bytes of the device that it held.
    pub held: u64,
    /// Its process id and, if it has one, its rank.
    pub who: String,
    /// Its command line, shortened.
    pub name: String,
}

impl Peer {
    fn parse(line: &str) -> Option<Peer> {
        let mut words = line.splitn(4, ' ');
        let held = words.next()?.parse().ok()?;
        let pid = words.next()?;
        let who = match words.next()? {
            "-" => format!("process {pid}"),
            rank => format!("process {pid}, rank {rank}"),
        };
        let name = words.next().unwrap_or_default().to_string();
        Some(Peer { held, who, name })
    }
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
                "limit.ledger" => process.ledger = text,
                ENDED => process.ended = text,
                ENDED_BY => process.ended_by = text,
                _ if key.starts_with("GPUSHIM_") => {
                    process.variables.insert(key.clone(), value.clone());
                }
                // The last fact of these counts, which comes first here.
                _ if key.starts_with("limit.rest.") => {
                    let rest = device_of(key).zip(value.parse().ok());
                    rest.map(|(device, rest)| *process.rest_of_limit.entry(device).or_insert(rest));
                }
                _ if key.starts_with("limit.peers.") => {
                    let peers = || value.lines().filter_map(Peer::parse).collect();
                    device_of(key).map(|device| process.peers.entry(device).or_insert_with(peers));
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

/// Ordinal of a device at the end of a fact's key.
fn device_of(key: &str) -> Option<u8> {
    key.rsplit('.').next()?.parse().ok()
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
            ("limit.rest.0", "5"),
            ("limit.peers.0", "5 1 - x"),
            ("limit.rest.0", "8"),
            ("limit.peers.0", "9 12 3 train.py --x\n7 13 - serve"),
        ];
        let facts = facts.map(|(key, value)| (key.to_string(), value.to_string()));
        let process = Process::of(&facts);
        assert_eq!((process.rank_number(), process.pid), (Some(3), None));
        assert_eq!(process.variables["GPUSHIM_LIMIT"], "1G");
        assert!(!process.has_owners);
        assert_eq!(process.rest_of_limit[&0], 8);
        let peers = process.peers[&0].iter();
        let peers: Vec<_> = peers.map(|one| (one.held, &*one.who, &*one.name)).collect();
        let first = (9, "process 12, rank 3", "train.py --x");
        assert_eq!(peers, [first, (7, "process 13", "serve")]);
    }
}
