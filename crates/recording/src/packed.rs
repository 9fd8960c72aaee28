//! Forms of compressed files, limits on the unpacked bytes in proportion to the file, and reading of
//! files at offsets.

use std::borrow::Borrow;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;

use flate2::read::MultiGzDecoder;

use gpushim_trace::attached;

/// Form in which a file holds its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Bytes as they were written.
    Plain,
    /// Compressed by gzip, as users do it.
    Gzip,
    /// Frames of zstd, as `gpushim pack` makes them of a trace.
    Zstd,
}

impl Form {
    /// Returns the form of a file that begins with these bytes.
    pub(super) fn of(begin: &[u8]) -> Form {
        match begin {
            [0x1f, 0x8b, ..] => Form::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Form::Zstd,
            _ => Form::Plain,
        }
    }

    /// Reads the content of a file from its beginning, without the data attached to it.
    pub(super) fn content(self, mut file: &File) -> io::Result<Box<dyn Read + '_>> {
        file.rewind()?;
        Ok(match self {
            Form::Plain => Box::new(file),
            Form::Gzip => Box::new(MultiGzDecoder::new(file)),
            Form::Zstd => {
                let end = attached::begin(file, file.metadata()?.len());
                Box::new(zstd::Decoder::new(file.take(end))?)
            }
        })
    }
}

/// Unpacked bytes for each byte of the file. Snapshots and logs have 10 to 110, most if a few
/// stacks repeat. Gzip can reach 1,032, which is the ratio of bombs.
const RATIO: u64 = 112;
/// Unpacked bytes that any file may have.
const LEAST: u64 = 2 << 20;

/// A file read from an offset on, independent of other readers' positions.
#[derive(Debug)]
pub(super) struct ReadAt<F> {
    file: F,
    at: u64,
}

impl<F> ReadAt<F> {
    pub(super) fn new(file: F, at: u64) -> ReadAt<F> {
        ReadAt { file, at }
    }
}

impl<F: Borrow<File>> Read for ReadAt<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.borrow().read_at(buffer, self.at)?;
        self.at = self.at.saturating_add(count as u64);
        Ok(count)
    }
}

/// Ends with an error if there are more unpacked bytes than a file of its length may have.
#[derive(Debug)]
pub(super) struct Packed<R> {
    inner: R,
    left: u64,
}

impl<R> Packed<R> {
    /// Reads the unpacked content of a file of `file_bytes` bytes.
    pub(super) fn new(inner: R, file_bytes: u64) -> Packed<R> {
        Packed {
            inner,
            left: file_bytes.saturating_mul(RATIO).saturating_add(LEAST),
        }
    }
}

impl<R: Read> Read for Packed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::other(format!(
                "it is more than {RATIO} times as large as the compressed file; if you trust it, unpack it \
                 first"
            )));
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let end = buffer.len().min(most);
        let read = self.inner.read(buffer.get_mut(..end).unwrap_or_default())?;
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_file_can_hold_is_not_read() {
        let mut content = Vec::new();
        let error = Packed::new(io::repeat(0), 10).read_to_end(&mut content);
        assert!(error.is_err());
        assert_eq!(content.len() as u64, LEAST + 10 * RATIO);
        let mut content = Vec::new();
        let read = Packed::new(io::repeat(0).take(LEAST + 10), 10).read_to_end(&mut content);
        assert_eq!(read.expect("within it"), content.len());
    }
}
