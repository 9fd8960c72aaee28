//! Selection of the ledger that a process joins.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::file::Shared;

/// Folder of the ledgers that gpushim finds by itself: memory that a reboot clears.
const FOLDER: &str = "/dev/shm";
/// Mount point of the kernel's control groups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Processes that share a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Processes of the same container: of the control group that contains it.
    Container,
    /// Processes of the same user in the job of this name.
    Job(String),
    /// Processes of the same user.
    User,
    /// Processes that name this file.
    File(PathBuf),
}

impl Scope {
    /// Returns the path of the ledger.
    ///
    /// # Errors
    /// The container cannot be identified; completes "failed to …".
    pub fn path(&self) -> Result<PathBuf, Error> {
        let user = rustix::process::geteuid().as_raw();
        let name = match self {
            Scope::File(path) => return Ok(path.clone()),
            Scope::User => format!("user-{user}"),
            Scope::Job(job) => format!("job-{user}-{}", as_name(job)),
            Scope::Container => format!("container-{}", container()?),
        };
        Ok(Path::new(FOLDER).join(format!("gpushim-ledger-{name}")))
    }

    pub(crate) fn open(&self) -> Result<Shared, Error> {
        // All users of a container share its limit.
        let mode = match self {
            Scope::Container => 0o666,
            _ => 0o600,
        };
        let is_found = !matches!(self, Scope::File(_));
        Shared::open(&self.path()?, mode, is_found)
    }
}

/// Returns a text as a part of a file's name. Texts with other characters than letters, digits and
/// `-` get a number that tells them apart.
fn as_name(text: &str) -> String {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || one == '-';
    let kept: String = text.chars().filter(|one| is_plain(*one)).take(64).collect();
    if kept == text {
        return kept;
    }
    // FNV-1a, 64 bits.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{kept}_{hash:016x}")
}

/// Identifies the container of this process: by the inode of its control group, which is unique on
/// the machine, also where each container sees its own group as the root.
fn container() -> Result<String, Error> {
    let groups = fs::read_to_string("/proc/self/cgroup")
        .map_err(|error| Error::of_system("read /proc/self/cgroup", &error))?;
    let group = group_of(&groups).ok_or_else(|| {
        Error::new("find the control group of this process: /proc/self/cgroup names none")
    })?;
    let folder = Path::new(CGROUPS).join(group.trim_start_matches('/'));
    // Where the group is not mounted, its path tells containers apart, if they share /dev/shm.
    Ok(match fs::metadata(&folder) {
        Ok(meta) => format!("{}", meta.ino()),
        Err(_) => as_name(group),
    })
}

/// Returns the control group of a container, from the lines of `/proc/self/cgroup`: the path up to
/// the part that names a container, or the whole path.
fn group_of(groups: &str) -> Option<&str> {
    let path_of = |line: &'_ str| line.splitn(3, ':').nth(2).map(str::len);
    // The line of version 2, or else that of the memory controller.
    let unified = groups.lines().find(|line| line.starts_with("0::"));
    let memory = |line: &&str| {
        line.split(':')
            .nth(1)
            .is_some_and(|of| of.split(',').any(|one| one == "memory"))
    };
    let line = unified
        .filter(|line| *line != "0::/")
        .or_else(|| groups.lines().find(memory))
        .or(unified)?;
    let path = line.get(line.len() - path_of(line)?..)?;
    let mut end = 0;
    for part in path.split('/') {
        end += part.len() + 1;
        if is_container(part) {
            return path.get(..end - 1);
        }
    }
    Some(path)
}

/// True for the part of a control group's path that a container runtime made: an id of 64
/// hexadecimal digits, with or without a prefix and `.scope`.
fn is_container(part: &str) -> bool {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let id = part.rsplit(['-', ':']).next().unwrap_or(part);
    id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_a_container_is_found() {
        let id = "a".repeat(64);
        let docker = format!("/system.slice/docker-{id}.scope");
        let kubernetes = format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope");
        let cases = [
            (format!("0::{docker}\n"), docker.clone()),
            (format!("0::{docker}/init\n"), docker),
            (format!("0::{kubernetes}/a/b\n"), kubernetes),
            (
                format!("12:memory:/docker/{id}/x\n11:cpu,cpuacct:/other\n0::/\n"),
                format!("/docker/{id}"),
            ),
            ("0::/\n".to_string(), "/".to_string()),
            (
                "0::/user.slice/user-1000.slice/session-2.scope\n".to_string(),
                "/user.slice/user-1000.slice/session-2.scope".to_string(),
            ),
        ];
        for (lines, group) in cases {
            assert_eq!(group_of(&lines), Some(group.as_str()), "{lines}");
        }
        assert_eq!(group_of(""), None);
    }

    #[test]
    fn names_differ_where_jobs_do() {
        assert_eq!(as_name("4711"), "4711");
        let names = ["a/b", "a.b", "ab", "../../etc"].map(as_name);
        for (at, name) in names.iter().enumerate() {
            assert!(!name.contains(['/', '.']), "{name}");
            assert!(
                names.iter().skip(at + 1).all(|other| other != name),
                "{name}"
            );
        }
        let job = Scope::Job("7".to_string()).path().expect("a path");
        assert!(job.starts_with(FOLDER));
    }
}
