//! The rank of a process by the name of its file: snapshots themselves lack it.

use std::path::Path;

/// Endings of snapshots that people write.
const SNAPSHOTS: [&str; 4] = [".pickle", ".pickle.gz", ".pkl", ".pkl.gz"];

/// Returns true if a file is named like a snapshot.
pub fn is_snapshot(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    SNAPSHOTS.iter().any(|ending| name.ends_with(ending))
}

/// Returns the rank in the name of a file: 3 of `rank3.pickle`, `rank_3_step100.pickle` and
/// `snapshot-rank-3.pickle.gz`.
pub fn rank_by_name(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let (_, after) = name.rsplit_once("rank")?;
    let after = after.strip_prefix(['_', '-', '.', '=']).unwrap_or(after);
    let end = after.find(|letter: char| !letter.is_ascii_digit());
    after.get(..end.unwrap_or(after.len()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_ranks() {
        for (name, rank) in [
            ("rank0.pickle", Some(0)),
            ("dumps/rank_12_memory_snapshot.pickle", Some(12)),
            ("snapshot-rank-3.pickle.gz", Some(3)),
            ("Rank7.pkl", Some(7)),
            ("ranking.pickle", None),
            ("frank.pickle", None),
            ("step100.pickle", None),
            ("rank99999999999.pickle", None),
        ] {
            assert_eq!(rank_by_name(Path::new(name)), rank, "{name}");
            assert!(is_snapshot(Path::new(name)));
        }
        assert!(!is_snapshot(Path::new("rank0.trace")));
    }
}
