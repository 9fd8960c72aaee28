//! Evidence of the kernel's out-of-memory killer: the kernel counts its kills in each group of
//! processes.

use std::fs;
use std::path::Path;

/// The folder of the control groups.
const ROOT: &str = "/sys/fs/cgroup";

/// Processes of this process's group that it has killed so far; `None` if the kernel does not say.
pub fn kills() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    counted(Path::new(ROOT), &groups)
}

/// Reads the counter of the groups that the kernel lists: `0::/job` of version 2, `4:memory:/job`
/// of version 1.
fn counted(root: &Path, groups: &str) -> Option<u64> {
    let of_line = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let is_memory = controllers.split(',').any(|one| one == "memory");
        let (root, file) = match controllers {
            "" => (root.to_path_buf(), "memory.events"),
            _ if is_memory => (root.join("memory"), "memory.oom_control"),
            _ => return None,
        };
        // In a container the root is often the group itself.
        let own = root.join(path.trim_start_matches('/'));
        [own, root].iter().find_map(|group| {
            let text = fs::read_to_string(group.join(file)).ok()?;
            let mut words = text
                .lines()
                .filter_map(|line| line.strip_prefix("oom_kill "));
            words.next()?.trim().parse::<u64>().ok()
        })
    };
    groups.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_of_the_own_group_or_of_the_root() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        assert_eq!(counted(root, "0::/job\n"), None);
        put("memory.events", "low 0\noom 3\noom_kill 2\n");
        assert_eq!(counted(root, "0::/job\n"), Some(2));
        put("job/memory.events", "oom 3\noom_kill 5\noom_group_kill 0\n");
        assert_eq!(counted(root, "0::/job\n"), Some(5));
        put("memory/a/memory.oom_control", "under_oom 0\noom_kill 7\n");
        let first = "3:cpuset:/\n4:memory:/a\n0::/\n";
        assert_eq!(counted(root, first), Some(7));
        assert_eq!(counted(root, "4:cpu,memory:/gone\n"), None);
    }
}
