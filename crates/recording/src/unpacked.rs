//! Recordings that are read from a copy: standard input, and compressed traces.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, stdin};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::copied::{MOST, copied, most, plain};
use super::packed::Form;
use super::{Coverage, Decorator, Recording, beside};
use crate::error::{Error, Result, failed};
use gpushim_trace::{Trace, attached};

/// A recording, opened in place or from a copy, which is deleted with it.
pub struct Opened<T> {
    inner: T,
    as_recording: fn(&T) -> &dyn Recording,
    copy: Option<Copy>,
}

/// A copy of a recording in a folder of its own.
struct Copy {
    /// The path of the original.
    path: PathBuf,
    problems: Vec<String>,
    folder: TempDir,
}

/// Opens a recording on standard input.
///
/// # Errors
/// It is a terminal, or too long, or cannot be read, or there is no room for the copy; or an error
/// of `open`.
pub(super) fn standard_input(
    open: impl Fn(&Path) -> Result<Box<dyn Recording>>,
) -> Result<Box<dyn Recording>> {
    if stdin().is_terminal() {
        return Err(failed!(
            "read standard input: it is a terminal; pass a recording, as in `gpushim report - < FILE`"
        ));
    }
    let copy = Copy::of(Path::new("-"), stdin().lock(), MOST)?;
    let inner = copy.opened(open)?;
    Ok(Box::new(Opened {
        inner,
        as_recording: Box::as_ref,
        copy: Some(copy),
    }))
}

impl Opened<Trace> {
    /// Opens a trace in place.
    ///
    /// # Errors
    /// An error of [`Trace::open`].
    pub(super) fn in_place(path: &Path) -> Result<Opened<Trace>> {
        Ok(Opened {
            inner: Trace::open(path)?,
            as_recording: |trace| trace,
            copy: None,
        })
    }

    /// Opens a compressed trace, with its companions.
    ///
    /// # Errors
    /// It unpacks to more than any trace has, or there is no room for the copy; or an error of
    /// [`Trace::open`].
    pub(super) fn unpacked(path: &Path, file: &File, form: Form) -> Result<Opened<Trace>> {
        let copy = Copy::of_trace(path, file, form)?;
        let inner = copy.opened(|path| Ok(Trace::open(path)?))?;
        Ok(Opened {
            inner,
            as_recording: |trace| trace,
            copy: Some(copy),
        })
    }
}

impl<T> Opened<T> {
    /// Returns the damaged or missing parts, each as a sentence that names the place.
    pub fn problems(&self) -> Vec<String> {
        let problems = (self.as_recording)(&self.inner).problems();
        match &self.copy {
            Some(copy) => copy.problems(problems),
            None => problems,
        }
    }
}

impl<T> Deref for Opened<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl Copy {
    /// Copies the input; `most` is the limit of bytes other than zeros.
    fn of(path: &Path, input: impl Read, most: u64) -> Result<Copy> {
        let no_copy = |error| {
            failed!(
                "read {}: a copy in {} failed: {error}",
                path.display(),
                std::env::temp_dir().display()
            )
        };
        let mut copy = Copy {
            path: path.to_path_buf(),
            problems: Vec::new(),
            folder: TempDir::with_prefix(".gpushim-").map_err(no_copy)?,
        };
        let mut file = File::create_new(copy.place()).map_err(no_copy)?;
        let problem = copied(input, &mut file, most)
            .map_err(|error| failed!("read {}: {error}", path.display()))?;
        copy.problems.extend(problem);
        Ok(copy)
    }

    /// Copies a compressed trace, with the data attached to it, or with what lies beside it.
    fn of_trace(path: &Path, file: &File, form: Form) -> Result<Copy> {
        let no_copy = |error| failed!("read {}: {error}", path.display());
        let content = form.content(file).map_err(no_copy)?;
        let mut copy = Copy::of(path, content, most(file))?;
        let problems = beside::bring(path, &copy.place());
        if form == Form::Zstd && copy.problems.is_empty() {
            // Behind the end of a damaged trace they would be taken for a part of it.
            append_attached(file, &copy.place()).map_err(no_copy)?;
        }
        copy.problems.extend(problems);
        Ok(copy)
    }

    /// Returns the path of the copy.
    fn place(&self) -> PathBuf {
        self.folder.path().join("copy")
    }

    /// Opens the copy with `open`. An error names the original in place of the copy.
    fn opened<T>(&self, open: impl Fn(&Path) -> Result<T>) -> Result<T> {
        open(&self.place()).map_err(|error| Error::new(self.of_original(&error.to_string())))
    }

    /// Returns its problems: the ones of the opened copy, with the original's name, and the copy's
    /// own.
    fn problems(&self, of_opened: Vec<String>) -> Vec<String> {
        let of_opened = of_opened.iter().map(|text| self.of_original(text));
        of_opened.chain(self.problems.clone()).collect()
    }

    fn of_original(&self, text: &str) -> String {
        let place = self.place().display().to_string();
        let companions = format!("{}.", plain(&self.path).display());
        text.replace(&format!("{place}."), &companions)
            .replace(&place, &self.path.display().to_string())
    }
}

/// Appends the data attached to a file to another one.
fn append_attached(mut file: &File, to: &Path) -> io::Result<()> {
    let begin = attached::begin(file, file.metadata()?.len());
    file.seek(SeekFrom::Start(begin))?;
    io::copy(&mut file, &mut File::options().append(true).open(to)?).map(drop)
}

impl<T: Send + Sync> Decorator for Opened<T> {
    fn inner(&self) -> &dyn Recording {
        (self.as_recording)(&self.inner)
    }

    fn path(&self) -> &Path {
        match &self.copy {
            Some(copy) => &copy.path,
            None => Decorator::inner(self).path(),
        }
    }

    fn problems(&self) -> Vec<String> {
        self.problems()
    }

    /// A file that cannot be unpacked to its end is damaged, wherever its content ends.
    fn coverage(&self) -> Coverage {
        let coverage = Decorator::inner(self).coverage();
        let is_cut = (self.copy.as_ref()).is_some_and(|copy| !copy.problems.is_empty());
        Coverage {
            damaged: coverage.damaged || is_cut,
            ..coverage
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;
    use gpushim_trace::spool::{SpoolOptions, Spooler};
    use gpushim_trace::{Class, Event, Kind, Writer, WriterOptions};

    /// Compresses a file beside itself, and removes it.
    fn pack(path: &Path) -> PathBuf {
        let packed = PathBuf::from(format!("{}.gz", path.display()));
        let out = File::create(&packed).unwrap();
        let mut out = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
        out.write_all(&std::fs::read(path).unwrap()).unwrap();
        out.finish().unwrap();
        std::fs::remove_file(path).unwrap();
        packed
    }

    #[test]
    fn a_compressed_trace_has_its_spool() {
        const EVENTS: u64 = 20_000;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.trace");
        let options = WriterOptions {
            bytes: 64 << 10,
            ..WriterOptions::default()
        };
        let writer = Writer::create(&path, &options).unwrap();
        let spooler = Spooler::start(&writer, SpoolOptions::new()).unwrap();
        for address in 1..=EVENTS {
            let event = Event {
                address,
                size: 1,
                device: 0,
                ..Event::new(Kind::Alloc, Class::Device)
            };
            writer.record(&event);
            if address.is_multiple_of(256) {
                // Even on a slow machine, no event is overwritten before it was read.
                spooler.flush(Duration::from_secs(60)).unwrap();
            }
        }
        spooler.stop(Duration::from_secs(60));
        drop(writer);
        let readable = |path: &Path| {
            let opened = crate::open(path).unwrap();
            assert_eq!(opened.path(), path);
            assert_eq!(opened.problems(), [] as [&str; 0]);
            assert_eq!(opened.events().count() as u64, opened.coverage().readable);
            opened.coverage().readable
        };
        let all = readable(&path);
        let ring = options.bytes / 64;
        assert!(all > ring, "there is a spool: {all} of {EVENTS}");
        let inside = std::fs::read(&path).unwrap();
        let packed = pack(&path);
        assert_eq!(readable(&packed), all, "the spool in it");
        std::fs::remove_file(&packed).unwrap();
        // As an earlier form has it: the spool is a file beside the trace.
        let (trace, frames) = inside.split_at(options.file_bytes() as usize);
        std::fs::write(&path, trace).unwrap();
        let beside = folder.path().join("run.trace.spool");
        std::fs::write(&beside, frames).unwrap();
        assert_eq!(readable(&path), all, "the spool beside it");
        let packed = pack(&path);
        assert_eq!(readable(&packed), all, "beside what is compressed");
        let spool = pack(&beside);
        assert_eq!(readable(&packed), all, "the compressed spool beside it");
        std::fs::remove_file(&spool).unwrap();
        assert!(readable(&packed) <= ring, "without a spool");
        let trace = crate::open_trace(&packed).unwrap();
        assert_eq!(trace.recorded(), EVENTS);
        // The problem of a companion names the existing file.
        std::fs::write(&spool, b"no gzip").unwrap();
        let trace = crate::open_trace(&packed).unwrap();
        let problems = trace.problems().join("; ");
        assert!(
            problems.contains(&spool.display().to_string()),
            "{problems}"
        );
        assert!(!problems.contains("/copy"), "{problems}");
    }

    /// Opens a file; its events, facts and problems.
    fn opened(path: &Path) -> Option<(String, Vec<String>)> {
        let opened = crate::open(path).ok()?;
        let events: Vec<_> = opened.events().collect();
        let said = format!("{events:?} {:?}", opened.facts());
        Some((said, opened.problems()))
    }

    #[test]
    fn a_damaged_packed_trace_is_never_taken_for_a_whole_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.trace");
        let options = WriterOptions {
            bytes: 4096,
            ..WriterOptions::default()
        };
        let writer = Writer::create(&path, &options).unwrap();
        (0..50).for_each(|_| writer.record(&Event::new(Kind::Mark, Class::Unknown)));
        drop(writer);
        let mut packer = zstd::bulk::Compressor::new(3).unwrap();
        packer.include_checksum(true).unwrap();
        let plain = std::fs::read(&path).unwrap();
        let pieces = plain.chunks(64 << 10);
        let pieces = pieces.flat_map(|piece| packer.compress(piece).unwrap());
        let mut packed: Vec<u8> = pieces.collect();
        let end = packed.len();
        packed.extend(attached::encode(attached::Attached::Symbols, b"gpushim symbols 1").unwrap());
        std::fs::write(&path, &packed).unwrap();
        let whole = opened(&path);
        assert!(
            whole
                .as_ref()
                .is_some_and(|(_, problems)| problems.is_empty())
        );
        for at in (0..packed.len()).step_by(3) {
            let mut damaged = packed.clone();
            damaged[at] ^= 1 << (at % 8);
            for content in [&damaged[..], &packed[..at]] {
                std::fs::write(&path, content).unwrap();
                let now = opened(&path);
                let is_said = now
                    .as_ref()
                    .is_none_or(|(_, problems)| !problems.is_empty());
                // Some bits of a frame mean nothing, and what is attached is none of the events.
                assert!(is_said || now == whole, "{at}");
            }
            let is_cut = packed[..at].len() < end;
            let is_said = opened(&path).is_none_or(|(_, problems)| !problems.is_empty());
            assert!(is_said || !is_cut, "{at}");
        }
    }
}
