//! Pipes where files should be, and files of other users.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use crate::bounded::{READERS, gpushim};
use crate::stacks::traced;

const LIMIT: Duration = Duration::from_secs(30);

/// Makes a pipe without a writer.
pub fn pipe(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).expect("no zero in it");
    // SAFETY: the name is a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o666) }, 0);
}

#[test]
fn a_pipe_as_a_recording() {
    let folder = tempfile::tempdir().expect("a folder");
    pipe(&folder.path().join("pipe.trace"));
    for reader in READERS {
        let args = [reader, &["pipe.trace"]].concat();
        let ran = gpushim(folder.path(), &args, 1024, LIMIT);
        if reader != ["metrics"] {
            assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.text());
        }
        assert!(
            ran.text().contains("it is not a regular file"),
            "{args:?}: {}",
            ran.text()
        );
    }
    let two = ["diff", "pipe.trace", "pipe.trace"];
    assert_eq!(gpushim(folder.path(), &two, 1024, LIMIT).code, Some(2));
}

#[test]
fn pipes_beside_a_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let module = folder.path().join("module.so");
    traced(&folder.path().join("a.trace"), &module, b"", &[&[0x1010]]);
    for beside in ["a.trace.symbols", "a.trace.spool", "module.so"] {
        pipe(&folder.path().join(beside));
    }
    for reader in READERS {
        let args = [reader, &["a.trace"]].concat();
        let ran = gpushim(folder.path(), &args, 1024, LIMIT);
        assert_ne!(ran.code, None, "{args:?}");
    }
}

#[test]
fn names_that_another_user_put_beside_a_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("a.trace");
    let module = folder.path().join("gone.so");
    traced(&trace, &module, b"", &[&[0x1010]]);
    let symbols = folder.path().join("a.trace.symbols");
    let text = format!(
        "gpushim symbols 1\nmodule\t\t{}\nf\t\tforged\t\t\nend",
        module.display()
    );
    let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    std::fs::write(&symbols, format!("{text}\t{sum:016x}\n")).expect("written");
    let are_read = || {
        let ran = gpushim(folder.path(), &["peak", "a.trace"], 1024, LIMIT);
        ran.text().contains("forged")
    };
    assert!(are_read(), "one's own are read");
    let large = std::fs::OpenOptions::new().write(true).open(&symbols);
    let large = large.expect("opened");
    let length = large.metadata().expect("there").len();
    large.set_len((256 << 20) + 1).expect("made longer");
    assert!(!are_read(), "more than a file of names can be");
    large.set_len(length).expect("made shorter");
    // Only root can give files away; the rule itself has a test of its own.
    if std::fs::metadata(&trace).expect("there").uid() == 0 {
        std::os::unix::fs::chown(&symbols, Some(65_534), None).expect("given away");
        assert!(!are_read(), "another user's are not");
        std::os::unix::fs::chown(&trace, Some(65_534), None).expect("given away");
        assert!(are_read(), "but those of the trace's owner");
    }
}
