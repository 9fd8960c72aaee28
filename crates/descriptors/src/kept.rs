//! A descriptor that stays open between two uses, and its proof.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::identity::Identity;

/// A descriptor that is proven before each use. No other code knows its number.
#[derive(Debug)]
pub struct KeptDescriptor {
    // Never dropped: the number may be the program's by then.
    file: ManuallyDrop<File>,
    identity: Identity,
}

impl KeptDescriptor {
    /// Keeps a descriptor that was just opened.
    ///
    /// # Errors
    /// The kernel does not say which file it is.
    pub fn keep(descriptor: OwnedFd) -> io::Result<KeptDescriptor> {
        let file = File::from(descriptor);
        Ok(KeptDescriptor {
            identity: Identity::of(&file.metadata()?),
            file: ManuallyDrop::new(file),
        })
    }

    /// Returns the descriptor, for calls that follow at once.
    ///
    /// # Errors
    /// The program has closed it. The number may be another file's by now.
    pub fn prove(&self) -> io::Result<BorrowedFd<'_>> {
        match self.file.metadata() {
            Ok(now) if Identity::of(&now) == self.identity => Ok(self.file.as_fd()),
            _ => Err(io::Error::other("the program closed the descriptor")),
        }
    }

    /// Closes the descriptor in this process, if the program has not, at a drop or in a forked
    /// child. Takes no lock.
    pub fn close(&self) {
        if let Ok(proven) = self.prove() {
            // SAFETY: the number is this file's, as was just proven, and no later proof of it
            // succeeds.
            drop(unsafe { OwnedFd::from_raw_fd(proven.as_raw_fd()) });
        }
    }
}

impl Drop for KeptDescriptor {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    /// Gives the number of a descriptor to another file.
    fn replace(kept: &KeptDescriptor, by: &impl AsRawFd) {
        // SAFETY: both are open; what had the number is closed, which is what is tested.
        let number = unsafe { libc::dup2(by.as_raw_fd(), kept.file.as_raw_fd()) };
        assert_eq!(number, kept.file.as_raw_fd());
    }

    #[test]
    fn a_descriptor_is_proven_until_it_is_closed() {
        let (one, mut other) = UnixStream::pair().expect("a pair");
        let kept = KeptDescriptor::keep(one.into()).expect("a descriptor");
        let number = kept.prove().expect("it is ours").as_raw_fd();
        let copy = kept.prove().expect("ours").try_clone_to_owned();
        UnixStream::from(copy.expect("a copy"))
            .write_all(b"!")
            .expect("written");
        kept.close();
        assert!(kept.prove().is_err());
        let mut all = Vec::new();
        other.read_to_end(&mut all).expect("the end of the pair");
        assert_eq!(all, b"!", "descriptor {number} was not closed");
    }

    #[test]
    fn a_number_that_is_another_files_is_neither_used_nor_closed() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let (theirs, mut end) = UnixStream::pair().expect("a pair of the program's");
        let kept = KeptDescriptor::keep(one.into()).expect("a descriptor");
        replace(&kept, &theirs);
        let number = kept.file.as_raw_fd();
        assert!(kept.prove().is_err());
        kept.close();
        drop(kept);
        drop(theirs);
        // SAFETY: the copy that `replace` made, which has no other owner.
        let mut theirs = UnixStream::from(unsafe { OwnedFd::from_raw_fd(number) });
        theirs.write_all(b"!").expect("it is still open");
        end.read_exact(&mut [0]).expect("and still connected");
    }
}
