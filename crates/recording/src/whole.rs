//! Files that get their names only when they are complete.
//!
//! Data is written into a new file in the same folder, which other users cannot read. Until it is
//! complete the file has no name, and the kernel frees it if the process is killed. Where the file
//! system cannot make such files, the file has a random name. A link or a file that another user
//! planted under a predictable name is never opened.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::{Builder, TempPath};

/// The users that may read a written file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// The user who writes it: the file contains data of the recording.
    Owner,
    /// All users of the machine.
    All,
}

/// Writes a file that gets its name when it is complete.
///
/// An existing file of that name is replaced, also a link or a pipe. Another user may have planted
/// these. Only character devices, and files in `/dev` (except `/dev/shm`) or `/proc`, are written
/// in place.
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
    let unfinished = Unfinished::beside(path)?;
    let mut out = BufWriter::new(unfinished.file());
    write(&mut out)?;
    out.flush()?;
    drop(out);
    Ok(unfinished.persist(path, readers)?)
}

/// Returns the folder that a file is in, `.` for a name alone.
pub fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or(Path::new("."))
}

/// A new file beside the path whose name it is to have. It is gone if it does not get that name.
#[derive(Debug)]
pub struct Unfinished {
    file: File,
    folder: PathBuf,
    /// The name that it has meanwhile where the file system has no files without names.
    named: Option<TempPath>,
}

impl Unfinished {
    /// A new, empty file in the folder of a path.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn beside(path: &Path) -> io::Result<Unfinished> {
        let folder = folder_of(path).to_path_buf();
        if let Some(file) = nameless(&folder) {
            let named = None;
            return Ok(Unfinished {
                file,
                folder,
                named,
            });
        }
        // The error would begin with the random name.
        let file = names().tempfile_in(&folder);
        let (file, named) = file.map_err(|error| error.kind())?.into_parts();
        Ok(Unfinished {
            file,
            folder,
            named: Some(named),
        })
    }

    /// The file, to be read and written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its final name.
    ///
    /// # Errors
    /// Errors of the file system, and an error if a trace was truncated while it was read: the
    /// content of the file may then be wrong.
    pub fn persist(self, path: &Path, readers: Readers) -> io::Result<()> {
        if gpushim_trace::lost::any() {
            return Err(io::Error::other("a trace was truncated while it was read"));
        }
        if readers == Readers::All {
            self.file.set_permissions(Permissions::from_mode(0o644))?;
        }
        // Only a rename replaces a file, so that a file without a name gets a random one first.
        let named = match self.named {
            Some(named) => named,
            None => names()
                .make_in(&self.folder, |name| link(&self.file, name))
                .map_err(|error| io::Error::from(error.kind()))?
                .into_temp_path(),
        };
        named.persist(path).map_err(|error| error.error)
    }
}

/// Random names for unfinished files, which no other user can guess.
fn names() -> Builder<'static, 'static> {
    let mut names = Builder::new();
    names.prefix(".gpushim-").suffix(".unfinished");
    names
}

/// A new file without a name, for [`link`] to name. `None` if the file system or a missing `/proc`
/// forbids it.
fn nameless(folder: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let file = options.custom_flags(libc::O_TMPFILE).open(folder).ok()?;
    by_descriptor(&file).exists().then_some(file)
}

fn by_descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Gives a file without a name this one, which no other file may have.
fn link(file: &File, name: &Path) -> io::Result<()> {
    let terminated = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes());
    let (from, to) = (terminated(&by_descriptor(file))?, terminated(name)?);
    let (at, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: both names are terminated strings that outlive the call.
    match unsafe { libc::linkat(at, from.as_ptr(), at, to.as_ptr(), follow) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
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

    #[test]
    fn an_unfinished_file_has_no_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let entries = || std::fs::read_dir(folder.path()).expect("read").count();
        let unfinished = Unfinished::beside(&folder.path().join("x")).expect("created");
        // Killed here, the process leaves nothing. Old file systems cannot do that.
        let is_nameless = unfinished.named.is_none();
        assert_eq!(entries(), usize::from(!is_nameless));
        unfinished.file().write_all(b"new").expect("written");
        let path = folder.path().join("x");
        unfinished.persist(&path, Readers::Owner).expect("named");
        assert_eq!(std::fs::read(&path).expect("read"), b"new");
        assert_eq!(entries(), 1);
    }
}
