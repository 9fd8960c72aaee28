//! Addresses of the sockets. Each has an abstract name, which belongs to a network namespace, and a
//! file in a folder of the user, which containers may share.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::SocketAddrUnix;
use rustix::process::geteuid;

use crate::socket;
use crate::token::Random;

/// Age from which the socket of an ended process is removed. A younger socket may not listen yet.
const AGE: Duration = Duration::from_secs(10);

/// Beginning of each abstract name and file name.
const PREFIX: &str = "gpushim-ipc-";

fn file_name(name: &Random) -> String {
    format!("{PREFIX}{:032x}", u128::from_be_bytes(*name))
}

/// Parses a file name. `None`: it is not a socket's.
fn name_of(file_name: &str) -> Option<Random> {
    let number = u128::from_str_radix(file_name.strip_prefix(PREFIX)?, 16).ok()?;
    let name = number.to_be_bytes();
    (self::file_name(&name) == file_name).then_some(name)
}

/// Abstract address of a name.
pub fn in_network(name: &Random) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(
        file_name(name).as_bytes(),
    )?)
}

/// Names of all sockets in this network namespace, of all users.
pub fn all_in_network() -> Vec<Random> {
    let table = fs::read("/proc/net/unix").unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    table.lines().filter_map(listener).collect()
}

/// Parses a line of `/proc/net/unix` (proc_pid_net(5)). Returns the name if the socket listens,
/// since the server's end of each connection has the same name.
fn listener(line: &str) -> Option<Random> {
    /// `__SO_ACCEPTCON`, in hexadecimal.
    const LISTENS: &str = "00010000";
    let mut columns = line.split_ascii_whitespace();
    let flags = columns.nth(3)?;
    // `@` stands for the zero byte of an abstract address.
    let name = columns.nth(3)?.strip_prefix('@')?;
    (flags == LISTENS).then(|| name_of(name))?
}

/// Names of all sockets in a folder.
pub fn all_in(folder: &Path) -> Vec<Random> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .filter_map(|file| name_of(file.file_name().to_str()?))
        .collect()
}

/// Path of the socket with this name.
pub fn path(folder: &Path, name: &Random) -> PathBuf {
    folder.join(file_name(name))
}

/// Folder of this user's sockets. It need not exist.
pub fn of_user() -> PathBuf {
    PathBuf::from(format!("/tmp/gpushim-{}", geteuid().as_raw()))
}

/// True if a folder exists and only this user can enter it. In a folder for all users, another user
/// may have made it.
pub fn is_private(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|found| {
        found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0
    })
}

/// Makes the folder if need be. False: it is not this user's alone.
pub fn make(folder: &Path) -> bool {
    // Fails if the folder exists.
    let _ = DirBuilder::new().mode(0o700).create(folder);
    is_private(folder)
}

/// Removes sockets that no process listens on: their processes were killed.
pub fn tidy(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_old = entry.metadata().is_ok_and(|found| {
            let age = found.modified().ok().and_then(|then| then.elapsed().ok());
            found.file_type().is_socket() && age.is_some_and(|age| age > AGE)
        });
        let refuses = || {
            let address = SocketAddrUnix::new(entry.path());
            let tried = address.map(|address| socket::connect_at_once(&address));
            matches!(tried, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused)
        };
        if is_old && refuses() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Makes a folder that only this user can enter.
    pub(crate) fn private() -> tempfile::TempDir {
        let mode = fs::Permissions::from_mode(0o700);
        let made = tempfile::Builder::new().permissions(mode).tempdir();
        made.expect("a folder")
    }

    #[test]
    fn only_a_folder_of_this_user_alone_is_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("own");
        assert!(!is_private(&own), "it is not there");
        assert!(make(&own) && make(&own));
        let linked = folder.path().join("linked");
        symlink(&own, &linked).expect("a link");
        assert!(!make(&linked), "a link may lead anywhere");
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).expect("permissions");
        assert!(!make(&own), "others can enter it");
    }
}
