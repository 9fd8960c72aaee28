//! Files that the command writes: their owner, their readers, and files planted at their names.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use crate::bounded::gpushim;
use crate::stacks::traced;

const LIMIT: Duration = Duration::from_secs(60);

fn mode(path: &Path) -> u32 {
    let meta = std::fs::symlink_metadata(path).expect("written");
    assert!(meta.is_file(), "{}", path.display());
    meta.permissions().mode() & 0o777
}

#[test]
fn what_is_derived_is_the_owners_and_no_link_is_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    traced(&at("a.trace"), &at("gone.so"), b"", &[&[0x1010, 0x1020]]);
    let victim = at("victim");
    std::fs::write(&victim, "kept").expect("written");
    // Predictable names, of the complete file and of the unfinished one.
    for name in ["out", "out.part"] {
        symlink(&victim, at(name)).expect("linked");
    }
    let written: [(&[&str], &str, u32); 5] = [
        (&["html", "-o", "out"], "out", 0o600),
        (&["export", "--to", "json", "-o", "out"], "out", 0o600),
        (&["export", "--to", "perfetto", "-o", "out"], "out", 0o600),
        // For a collector that is another user.
        (&["metrics", "-o", "out"], "out", 0o644),
        (&["pack"], "a.trace", 0o600),
    ];
    for (args, out, expected) in written {
        if out == "out" {
            let _ = std::fs::remove_file(at(out));
            symlink(&victim, at(out)).expect("linked");
        }
        let args = [args, &["a.trace"]].concat();
        let ran = gpushim(folder.path(), &args, 4096, LIMIT);
        assert!(matches!(ran.code, Some(0 | 1)), "{args:?}: {}", ran.text());
        assert_eq!(mode(&at(out)), expected, "{args:?}");
        let kept = std::fs::read_to_string(&victim).expect("there");
        assert_eq!(kept, "kept", "{args:?}");
    }
    let args = ["export", "--to", "parquet", "-o", "lake", "a.trace"];
    let ran = gpushim(folder.path(), &args, 4096, LIMIT);
    assert_eq!(ran.code, Some(0), "{}", ran.text());
    let written = below(&at("lake"));
    assert_eq!(written.len(), 5, "{written:?}");
    for path in written {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    let left = std::fs::read_dir(folder.path()).expect("read");
    let left = left.filter(|entry| {
        let name = entry.as_ref().expect("read").file_name();
        name.to_string_lossy().contains("unfinished")
    });
    assert_eq!(left.count(), 0, "nothing unfinished is left");
}

#[test]
fn a_long_name_in_another_script() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("{}.trace", "漢".repeat(80));
    traced(&folder.path().join(&name), Path::new("/gone"), b"", &[]);
    let args = ["export", "--to", "parquet", "-o", "lake", &name];
    let ran = gpushim(folder.path(), &args, 4096, LIMIT);
    assert_eq!(ran.code, Some(0), "{}", ran.text());
}

/// The files below a folder.
fn below(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).expect("read").flatten();
    let paths = entries.map(|entry| entry.path());
    let within = |path: std::path::PathBuf| match path.is_dir() {
        true => below(&path),
        false => vec![path],
    };
    paths.flat_map(within).collect()
}
