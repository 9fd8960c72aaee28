//! Programs that a library cannot be preloaded into, for runs that require a limit.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::elf;
use crate::error::{Result, failed};
use gpushim_config::Config;

/// Most bytes of a file that are read for its program headers.
const HEADS: u64 = 64 << 10;

/// Refuses a program that would run without the limit that is required.
///
/// # Errors
/// There is no limit, or the program cannot be preloaded; completes "failed to …".
pub fn refuse_without_limit(program: &Path, config: &Config) -> Result<()> {
    if !config.limit_required {
        return Ok(());
    }
    let why = match find(program) {
        _ if !config.enabled => Some("GPUSHIM=off takes it away"),
        _ if config.limit.is_none() => Some("GPUSHIM_LIMIT sets none"),
        Some(path) => obstacle(&path),
        None => None,
    };
    match why {
        None => Ok(()),
        Some(why) => Err(failed!(
            "run {} under a limit, which GPUSHIM_LIMIT_REQUIRED demands: {why}",
            program.display()
        )),
    }
}

/// Returns the file of a program, as execvp(3) finds it.
fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return Some(program.to_path_buf());
    }
    let folders = std::env::var_os("PATH")?;
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(program));
    paths.find(|path| path.is_file())
}

/// Returns the reason why a file cannot be preloaded. `None`: it can, or it is a script.
fn obstacle(path: &Path) -> Option<&'static str> {
    let file = File::open(path).ok()?;
    let meta = file.metadata().ok()?;
    let gains_rights = meta.mode() & (libc::S_ISUID | libc::S_ISGID) != 0;
    let mut head = Vec::new();
    file.take(HEADS).read_to_end(&mut head).ok()?;
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    if gains_rights {
        return Some("it gets the rights of another user, so that the kernel ignores LD_PRELOAD");
    }
    match elf::has_loader(&head) {
        Some(true) => None,
        Some(false) => Some("it is linked statically, so that nothing can be preloaded into it"),
        None => Some("it is no 64-bit program of this machine"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn programs_without_a_loader_are_recognised() {
        let own = std::env::current_exe().expect("this program");
        assert_eq!(obstacle(&own), None);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("program");
        let write = |bytes: &[u8]| std::fs::write(&path, bytes).expect("written");
        let bytes = std::fs::read(&own).expect("read");
        let mut of_32_bits = bytes.clone();
        of_32_bits[4] = 1;
        write(&of_32_bits);
        assert!(obstacle(&path).is_some_and(|why| why.contains("64-bit")));
        let mut without_headers = bytes.clone();
        without_headers[56..58].fill(0);
        write(&without_headers);
        assert!(obstacle(&path).is_some_and(|why| why.contains("statically")));
        write(&bytes);
        let mode = std::fs::Permissions::from_mode(0o4755);
        std::fs::set_permissions(&path, mode).expect("changed");
        assert!(obstacle(&path).is_some_and(|why| why.contains("rights")));
        std::fs::write(&path, "#!/bin/sh\n").expect("written");
        assert_eq!(obstacle(&path), None, "its interpreter is preloaded");
    }
}
