//! Files that have their names only once they are whole.
//!
//! Data is written into a new file with a random name in the same folder, which other users cannot read, and which gets
//! its final name when it is complete. A link or a file that another user planted under a predictable name is never
//! opened.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use tempfile::{Builder, NamedTempFile};

/// The users that may read a written file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// The user who writes it: the file contains data of the recording.
    Owner,
    /// Everybody.
    All,
}

/// Writes a file that gets its name when it is complete. An existing file of that name is replaced, also a link or a
/// pipe, which another user may have planted; only a device is written to as it is, and what is in `/dev` or `/proc`.
///
/// # Errors
/// Errors of `write` and of the file system; an existing file of that name is then unchanged.
pub fn write_whole<E: From<io::Error>>(
    path: &Path,
    readers: Readers,
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    if is_as_it_is(path) {
        let mut out = BufWriter::new(OpenOptions::new().write(true).open(path)?);
        write(&mut out)?;
        return Ok(out.flush()?);
    }
    let mut out = BufWriter::new(unfinished(path)?);
    write(&mut out)?;
    let file = out.into_inner().map_err(|error| error.into_error())?;
    Ok(persist(file, path, readers)?)
}

/// A new file beside a path, to be given that name by [`persist`]. It is removed if it is not.
///
/// # Errors
/// What the file system said.
pub fn unfinished(path: &Path) -> io::Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    Builder::new()
        .prefix(".gpushim-")
        .suffix(".unfinished")
        .tempfile_in(folder)
        // The error would begin with the random name.
        .map_err(|error| error.kind().into())
}

/// Gives a file the name that it is to have.
///
/// # Errors
/// What the file system said, and if a trace was truncated while it was read: what is in the file may be wrong.
pub fn persist(file: NamedTempFile, path: &Path, readers: Readers) -> io::Result<()> {
    if gpushim_trace::lost::any() {
        return Err(io::Error::other("a trace was truncated while it was read"));
    }
    if readers == Readers::All {
        file.as_file()
            .set_permissions(Permissions::from_mode(0o644))?;
    }
    let persisted: Result<File, _> = file.persist(path);
    persisted.map(drop).map_err(|error| error.error)
}

fn is_as_it_is(path: &Path) -> bool {
    let is_of_system = path.starts_with("/dev") && !path.starts_with("/dev/shm");
    is_of_system
        || path.starts_with("/proc")
        || std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_char_device())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_not_followed_and_nothing_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let (victim, link) = (folder.path().join("victim"), folder.path().join("link"));
        std::fs::write(&victim, "kept").expect("written");
        std::os::unix::fs::symlink(&victim, &link).expect("linked");
        let mode = |path: &Path| {
            let meta = std::fs::symlink_metadata(path).expect("there");
            (meta.is_file(), meta.permissions().mode() & 0o777)
        };
        write_whole(&link, Readers::Owner, |out| out.write_all(b"new")).expect("written");
        assert_eq!(std::fs::read(&victim).expect("read"), b"kept");
        assert_eq!(std::fs::read(&link).expect("read"), b"new");
        assert_eq!(mode(&link), (true, 0o600));
        write_whole(&link, Readers::All, |out| out.write_all(b"other")).expect("written");
        assert_eq!(mode(&link), (true, 0o644));
        let failed = write_whole(&link, Readers::Owner, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("no more"))
        });
        assert!(failed.is_err());
        assert_eq!(std::fs::read(&link).expect("read"), b"other");
        let names = std::fs::read_dir(folder.path()).expect("read").count();
        assert_eq!(names, 2, "nothing unfinished is left");
        let null = Path::new("/dev/null");
        write_whole(null, Readers::Owner, |out| out.write_all(b"x")).expect("written");
        assert!(!mode(null).0, "a device stays one");
    }
}
