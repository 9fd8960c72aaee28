//! Facts about the process with which every trace begins.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

mod mask;

/// Choice of the facts about its process that a trace contains (`GPUSHIM_TRACE_FACTS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Facts {
    /// Command line, executable, working directory and host.
    All,
    /// Facts of [`Facts::All`], but likely secrets in the command line are replaced by `***`.
    #[default]
    Masked,
    /// None of the facts of [`Facts::All`].
    None,
}

/// Returns keys and values, in the order in which they are written.
pub fn facts(wall_ns: u64, rank: Option<u32>, wanted: Facts) -> Vec<(&'static str, String)> {
    let (host, kernel) = host_and_kernel();
    let mut facts = Vec::new();
    if wanted != Facts::None {
        facts.extend([
            ("argv", argv(wanted)),
            ("exe", link("/proc/self/exe")),
            ("cwd", link("/proc/self/cwd")),
            ("host", host),
        ]);
    }
    facts.extend([
        ("pid", std::process::id().to_string()),
        // A process id is valid only in its namespace. Processes may share a host's name, but not
        // their numbers.
        ("pid-namespace", link("/proc/self/ns/pid")),
        ("kernel", kernel),
        ("started", wall_ns.to_string()),
        ("writer", env!("CARGO_PKG_VERSION").to_string()),
    ]);
    if let Some(rank) = rank {
        facts.push(("rank", rank.to_string()));
    }
    facts
}

/// Returns the command line as it could be typed into a shell.
fn argv(wanted: Facts) -> String {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let line = line.strip_suffix(b"\0").unwrap_or(&line);
    let words = line.split(|byte| *byte == 0);
    let mut words: Vec<String> = words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    if wanted == Facts::Masked {
        mask::mask(&mut words);
    }
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

/// Returns a word, in single quotes if a shell would change it.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "-_=./:,+@%^".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn link(path: &str) -> String {
    std::fs::read_link(Path::new(path))
        .map(|target| String::from_utf8_lossy(target.as_os_str().as_bytes()).into_owned())
        .unwrap_or_default()
}

/// Returns the node name, and the kernel name with its release.
fn host_and_kernel() -> (String, String) {
    // SAFETY: utsname is plain arrays of characters, for which zeros are valid.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local utsname.
    if unsafe { libc::uname(&mut names) } != 0 {
        return (String::new(), String::new());
    }
    let text = |field: &[libc::c_char]| {
        // SAFETY: c_char has the size and alignment of u8, and the slice is borrowed for as long.
        let bytes = unsafe { std::slice::from_raw_parts(field.as_ptr().cast::<u8>(), field.len()) };
        CStr::from_bytes_until_nul(bytes)
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    (
        text(&names.nodename),
        format!("{} {}", text(&names.sysname), text(&names.release)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("train.py"), "train.py");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    #[cfg_attr(miri, ignore = "no /proc under Miri")]
    fn the_facts_are_this_process() {
        let facts = facts(5, Some(3), Facts::Masked);
        let get = |key| {
            facts
                .iter()
                .find(|(name, _)| *name == key)
                .map(|(_, value)| value.clone())
        };
        assert_eq!(get("pid"), Some(std::process::id().to_string()));
        assert_eq!(get("rank").as_deref(), Some("3"));
        assert_eq!(get("started").as_deref(), Some("5"));
        let exe = std::env::current_exe().unwrap();
        assert_eq!(get("exe").as_deref(), exe.to_str());
        assert!(
            get("argv")
                .unwrap()
                .contains(exe.file_name().unwrap().to_str().unwrap())
        );
        assert!(!get("host").unwrap().is_empty());
        assert!(get("kernel").unwrap().starts_with("Linux "));
    }

    #[test]
    #[cfg_attr(miri, ignore = "no /proc under Miri")]
    fn none_of_it_is_told_if_so_wanted() {
        let keys: Vec<_> = facts(5, None, Facts::None)
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        assert_eq!(
            keys,
            ["pid", "pid-namespace", "kernel", "started", "writer"]
        );
    }
}
