//! The lines of a log, from its beginning.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;

use crate::packed::{Packed, ReadAt};

/// Bytes at which a line is too long.
pub(super) const LINE_MAX: usize = 4096;
/// Number of bytes of one read.
const BLOCK: usize = 64 << 10;

/// Reads a log line by line.
pub(super) struct Lines {
    input: Box<dyn BufRead + Send>,
    line: Vec<u8>,
}

impl Lines {
    /// Reads a file, plain or gzip.
    pub(super) fn new(file: Arc<File>, is_gzip: bool) -> Lines {
        let length = file.metadata().map_or(0, |meta| meta.len());
        let plain = BufReader::with_capacity(BLOCK, ReadAt::new(file, 0));
        let input: Box<dyn BufRead + Send> = if is_gzip {
            let unpacked = Packed::new(MultiGzDecoder::new(plain), length);
            Box::new(BufReader::with_capacity(BLOCK, unpacked))
        } else {
            Box::new(plain)
        };
        Lines {
            input,
            line: Vec::new(),
        }
    }

    /// Returns the next line without its line break; `None` at the end. A line that is too long is
    /// cut off, and still too long.
    ///
    /// # Errors
    /// An error of the file; nothing can be read after it.
    pub(super) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let mut input = self.input.by_ref().take(LINE_MAX as u64);
        if input.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        match self.line.last() {
            Some(b'\n') => drop(self.line.pop()),
            _ if self.line.len() == LINE_MAX => drop(self.input.skip_until(b'\n')?),
            _ => {}
        }
        Ok(Some(&self.line))
    }
}
