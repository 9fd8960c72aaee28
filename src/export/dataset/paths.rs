//! Path of a process's file in a table: `TABLE/job=…/host=…/rank=…/NAME-IDENTITY.parquet`.

use std::path::{Path, PathBuf};

use crate::fleet::summary::Process;
use gpushim_trace::fnv;

/// Value of a folder for unknown values. Every reader of partitioned folders takes it for null.
const UNKNOWN: &str = "__HIVE_DEFAULT_PARTITION__";
/// Bytes of a value in a path; file systems take 255, of which keys, numbers and endings need some.
const MOST: usize = 180;

/// Identity of a process among all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Folder in a table: `job=…/host=…/rank=…`.
    partition: PathBuf,
    name: String,
}

impl Identity {
    /// Identity of a process that was recorded in a file.
    ///
    /// Two processes have different names, and one process has the same name each time. The name
    /// has a hash of the host, the number and the start of the process. If these are not known, it
    /// has a hash of the path of the file.
    pub fn of(process: &Process, job: Option<&str>, file: &Path) -> Identity {
        let job = job.or(process.job.as_deref()).unwrap_or_default();
        let rank = process.rank.map(|rank| rank.to_string());
        let rank = rank.unwrap_or_default();
        let partition = [("job", job), ("host", &process.host), ("rank", &rank)];
        let partition = partition.map(|(key, value)| match value {
            "" => format!("{key}={UNKNOWN}"),
            value => format!("{key}={}", escaped(value)),
        });
        let what = match (process.pid, process.started_wall_ns) {
            (Some(pid), started) if started > 0 => format!("{}/{pid}/{started}", process.host),
            _ => {
                let whole = file.canonicalize();
                let whole = whole.unwrap_or_else(|_| file.to_path_buf());
                whole.to_string_lossy().into_owned()
            }
        };
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let ends = [".summary", ".gz", ".trace"];
        let stem = ends
            .iter()
            .fold(&*name, |name, end| name.strip_suffix(end).unwrap_or(name));
        Identity {
            partition: partition.iter().collect(),
            name: format!("{}-{:016x}", escaped(stem), fnv(what.as_bytes())),
        }
    }

    /// The name of the file without `.parquet`: the column `trace`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Path of the process's file in a table.
    pub fn path(&self, folder: &Path, table: &str) -> PathBuf {
        let within = folder.join(table).join(&self.partition);
        within.join(format!("{}.parquet", self.name))
    }
}

/// Value as the name of a folder.
///
/// ASCII letters, digits, `-`, `_` and inner dots are kept. Other ASCII and control characters,
/// which readers of partitioned folders may interpret, are written as `%XX`. Characters beyond
/// ASCII are kept, because Spark would read each byte of an escape as a character. A value that is
/// too long is cut, and a hash of the whole value follows.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for letter in value.chars() {
        let is_plain = letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        let is_inner_dot = letter == '.' && !text.is_empty();
        if is_plain || is_inner_dot || !(letter.is_ascii() || letter.is_control()) {
            text.push(letter);
        } else {
            let mut bytes = [0; 4];
            for byte in letter.encode_utf8(&mut bytes).bytes() {
                text.push_str(&format!("%{byte:02X}"));
            }
        }
        if text.len() >= MOST {
            return format!("{text}-{:016x}", fnv(value.as_bytes()));
        }
    }
    text
}

/// The hash FNV-1a of 64 bits: the names of files must be the same in each version of the command.
fn fnv(bytes: &[u8]) -> u64 {
    fnv::sum(bytes.iter().copied().map(u64::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(job: &str, host: &str, rank: Option<u32>, pid: u32) -> Process {
        Process {
            job: Some(job.to_string()),
            host: host.to_string(),
            rank,
            pid: Some(pid),
            started_wall_ns: 7,
            ..Process::default()
        }
    }

    #[test]
    fn values_are_safe_in_a_path_and_two_processes_never_collide() {
        let of = |process: &Process, file: &str| {
            Identity::of(process, None, Path::new(file)).path(Path::new("lake"), "events")
        };
        let path = of(&process("a/../b=c", "node 7", Some(3), 11), "x/run.trace");
        let path = path.to_string_lossy();
        let begin = "lake/events/job=a%2F..%2Fb%3Dc/host=node%207/rank=3/run-";
        assert!(path.starts_with(begin), "{path}");
        let unknown = of(&Process::default(), "run.trace");
        let nothing = format!("lake/events/job={UNKNOWN}/host={UNKNOWN}/rank={UNKNOWN}");
        assert!(unknown.starts_with(nothing), "{}", unknown.display());
        // The same process from a compressed trace, or a summary that is left of it, elsewhere.
        let one = process("1", "a", Some(0), 11);
        assert_eq!(of(&one, "x/run.trace"), of(&one, "y/run.trace.gz"));
        assert_eq!(of(&one, "x/run.trace"), of(&one, "run.trace.summary"));
        let paths = [
            of(&one, "run.trace"),
            of(&process("1", "a", Some(0), 12), "run.trace"),
            of(&process("1", "b", Some(0), 11), "run.trace"),
            of(&process("2", "a", Some(0), 11), "run.trace"),
            of(&Process::default(), "x/log.csv"),
            of(&Process::default(), "y/log.csv"),
        ];
        for (at, path) in paths.iter().enumerate() {
            assert!(!paths[..at].contains(path), "{}", path.display());
        }
        // Long values that begin alike stay apart, and files can be made of them.
        let long = |end: &str| {
            of(
                &process(&format!("{}{end}", "漢".repeat(90)), "a", None, 1),
                "t",
            )
        };
        assert_ne!(long("a"), long("b"));
        let parts = long("a");
        assert!(parts.iter().all(|part| part.len() <= 255));
    }
}
