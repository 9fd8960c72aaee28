//! A log in blocks of whole lines.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use memchr::memrchr;

use crate::packed::Packed;

/// Bytes at which a line is too long.
pub(super) const LINE_MAX: usize = 4096;
/// Number of bytes of one read. The memory made of them stays below the size that the C library
/// maps anew each time.
const BLOCK: usize = 64 << 10;

/// A file read from its beginning, independent of other readers' positions.
struct From0(Arc<File>, u64);

impl Read for From0 {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read_at(buffer, self.1)?;
        self.1 += count as u64;
        Ok(count)
    }
}

/// Reads a log from its beginning.
pub(super) struct Blocks {
    input: Box<dyn Read + Send>,
    /// The beginning of a line whose end is not read yet.
    rest: Vec<u8>,
    has_ended: bool,
}

impl Blocks {
    /// Reads a file, plain or gzip.
    pub(super) fn new(file: Arc<File>, is_gzip: bool) -> Blocks {
        let length = file.metadata().map_or(0, |meta| meta.len());
        let plain = From0(file, 0);
        let input: Box<dyn Read + Send> = if is_gzip {
            let plain = io::BufReader::with_capacity(BLOCK, plain);
            Box::new(Packed::new(MultiGzDecoder::new(plain), length))
        } else {
            Box::new(plain)
        };
        Blocks {
            input,
            rest: Vec::new(),
            has_ended: false,
        }
    }
}

impl Iterator for Blocks {
    /// Whole lines, or the error that ends the reading. At the end of the log, and before an error,
    /// the last line may lack its line break. A line that is too long is cut off, and still too
    /// long.
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<io::Result<Vec<u8>>> {
        let mut block = std::mem::take(&mut self.rest);
        while !self.has_ended {
            // Of an overlong line, only enough is kept to show that it is too long.
            let begin = block.len().min(LINE_MAX);
            block.resize(begin + BLOCK, 0);
            let read = self.input.read(block.get_mut(begin..).unwrap_or_default());
            block.truncate(begin + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => self.has_ended = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.has_ended = true;
                    return Some(Err(error));
                }
                Ok(_) => {
                    let new = block.get(begin..).unwrap_or_default();
                    if let Some(end) = memrchr(b'\n', new) {
                        self.rest = block.split_off(begin + end + 1);
                        return Some(Ok(block));
                    }
                }
            }
        }
        (!block.is_empty()).then_some(Ok(block))
    }
}
