//! Identity of a file that a path named when it was created. Later the path, and a descriptor too,
//! may name another file.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Device and inode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Returns the identity of a file.
    pub fn of(meta: &Metadata) -> Identity {
        Identity {
            device: meta.dev(),
            inode: meta.ino(),
        }
    }

    /// True if a file is this one, and a regular one.
    pub fn is(self, meta: &Metadata) -> bool {
        meta.is_file() && Identity::of(meta) == self
    }

    /// Opens the file by its path, with [`open`].
    ///
    /// # Errors
    /// The file system's, and an error if another file is there now.
    pub fn open(self, path: &Path) -> io::Result<File> {
        let file = open(path)?;
        if !self.is(&file.metadata()?) {
            return Err(io::Error::other("another file has its place"));
        }
        Ok(file)
    }
}

/// Opens a file for reading and writing, through no link and without waiting for anything.
///
/// # Errors
/// The file system's.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
}

/// Creates a file that did not exist, through no link, for this user alone.
///
/// # Errors
/// The file system's.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
        .open(path)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn another_file_at_the_path_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let file = File::create(&path).unwrap();
        let identity = Identity::of(&file.metadata().unwrap());
        assert!(identity.open(&path).is_ok());
        std::fs::rename(&path, dir.path().join("b")).unwrap();
        assert_eq!(
            identity.open(&path).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        std::fs::write(&path, "").unwrap();
        assert!(identity.open(&path).is_err(), "another file");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(dir.path().join("b"), &path).unwrap();
        assert!(identity.open(&path).is_err(), "a link, even to the file");
    }
}
