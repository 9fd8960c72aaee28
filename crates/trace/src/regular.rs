//! Files that another user may have put in place: opened without waiting, and only if regular.
//!
//! A path from a file, an argument or a shared folder is not trusted. It may name a pipe, which
//! blocks the process that opens it. It may name a device, where opening alone has effects. So the
//! path is checked, opened without waiting, and the opened file is checked again: the path may have
//! changed in between.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens a regular file for reading. Links are followed.
///
/// # Errors
/// The error of the file system; [`io::ErrorKind::InvalidInput`] if it is no regular file.
pub fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    open(path, std::fs::metadata(path)?, 0)
}

/// Opens a regular file for reading if the path itself is one: a link is refused.
///
/// # Errors
/// The errors of [`open_regular`].
pub fn open_regular_itself(path: &Path) -> io::Result<(File, Metadata)> {
    open(path, std::fs::symlink_metadata(path)?, libc::O_NOFOLLOW)
}

/// Opens a regular file that lies beside another and is trusted with it, such as the symbols of a
/// trace. It must belong to the other's owner or to this process's user. Another user, in a shared
/// folder, must not be able to choose the content of a trace.
///
/// # Errors
/// The errors of [`open_regular`]; [`io::ErrorKind::PermissionDenied`] for a file of another user.
pub fn open_companion(path: &Path, of: &Path) -> io::Result<(File, Metadata)> {
    let (file, meta) = open_regular(path)?;
    let owner = std::fs::metadata(of).map(|meta| meta.uid()).ok();
    // SAFETY: it takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    if is_believed(meta.uid(), owner, user) {
        return Ok((file, meta));
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "it belongs neither to the owner of the trace nor to you: not used",
    ))
}

/// True if the owner of a companion is the owner of its file, or this user.
fn is_believed(companion: u32, owner: Option<u32>, user: u32) -> bool {
    companion == user || owner == Some(companion)
}

/// Returns the content of a regular file of at most `most` bytes.
///
/// ```
/// use std::io::ErrorKind;
/// use gpushim_trace::regular::read_regular;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("run.trace");
/// std::fs::write(&path, "a trace")?;
/// assert_eq!(read_regular(&path, 100)?, b"a trace");
/// let refused = read_regular(&path, 3).map_err(|error| error.kind());
/// assert_eq!(refused, Err(ErrorKind::FileTooLarge));
/// let device = read_regular("/dev/null".as_ref(), 100).map_err(|error| error.kind());
/// assert_eq!(device, Err(ErrorKind::InvalidInput));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The errors of [`open_regular`]; [`io::ErrorKind::FileTooLarge`] if it is larger.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (file, meta) = open_regular(path)?;
    read_at_most(file, &meta, most)
}

/// Returns the content of an open file of at most `most` bytes.
///
/// # Errors
/// The error of the file system; [`io::ErrorKind::FileTooLarge`] if it is larger.
pub fn read_at_most(file: File, meta: &Metadata, most: u64) -> io::Result<Vec<u8>> {
    if meta.len() > most {
        return Err(too_large(most));
    }
    let mut content = Vec::new();
    // It may grow while it is read.
    file.take(most.saturating_add(1))
        .read_to_end(&mut content)?;
    if content.len() as u64 > most {
        return Err(too_large(most));
    }
    Ok(content)
}

fn too_large(most: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("it has more than {most} bytes"),
    )
}

fn open(path: &Path, before: Metadata, flags: i32) -> io::Result<(File, Metadata)> {
    only_regular(&before)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC | flags)
        .open(path)?;
    let meta = file.metadata()?;
    only_regular(&meta)?;
    Ok((file, meta))
}

fn only_regular(meta: &Metadata) -> io::Result<()> {
    if meta.is_file() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "it is not a regular file",
    ))
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn companions_of_others() {
        let (me, owner, other) = (1000, Some(1001), 1002);
        assert!(is_believed(1000, owner, me) && is_believed(1001, owner, me));
        assert!(!is_believed(other, owner, me) && !is_believed(other, None, me));
        // Root believes no more than others do.
        assert!(!is_believed(other, owner, 0));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("written");
        assert!(open_companion(&file, &folder.path().join("none")).is_ok());
    }

    #[test]
    fn pipes_devices_folders_and_links() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        let name = CString::new(pipe.as_os_str().as_bytes()).expect("no zero in it");
        // SAFETY: the name is a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let kind = |path: &Path| open_regular(path).map_err(|error| error.kind()).err();
        assert_eq!(kind(&pipe), Some(io::ErrorKind::InvalidInput));
        assert_eq!(kind(folder.path()), Some(io::ErrorKind::InvalidInput));
        let null = Path::new("/dev/null");
        assert_eq!(kind(null), Some(io::ErrorKind::InvalidInput));
        assert_eq!(
            kind(&folder.path().join("none")),
            Some(io::ErrorKind::NotFound)
        );
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "12345").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        assert!(open_regular(&link).is_ok());
        assert!(open_regular_itself(&link).is_err());
        assert!(open_regular_itself(&file).is_ok());
        assert_eq!(read_regular(&file, 5).expect("read"), b"12345");
        let error = read_regular(&file, 4).expect_err("too large");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
