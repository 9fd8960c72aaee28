//! What a file is, by its first bytes.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Result, anyhow};
use flate2::read::MultiGzDecoder;

use super::Recording;
use super::csv::{Dialect, LineLog};
use super::packed::Packed;
use super::pickle::Pickle;
use super::requests::REQUESTS;
use super::rmm::RMM;
use super::snapshot::Snapshot;
use gpushim_trace::Trace;
use gpushim_trace::regular::open_regular;

/// Bytes of the beginning that are looked at.
const HEAD: usize = 4096;
/// Bytes of a snapshot beyond which it is not taken into memory.
const SNAPSHOT_MAX: u64 = 2 << 30;

/// Opens what a recording can be made of, by its content: a trace of ours, a PyTorch memory snapshot, a
/// log of RMM, a list of requests; of the last three also gzip.
///
/// # Errors
/// The file cannot be read, or is of no known kind; completes "failed to …".
pub fn open(path: &Path) -> Result<Box<dyn Recording>> {
    match foreign(path)? {
        Some(recording) => Ok(recording),
        None => Ok(Box::new(Trace::open(path)?)),
    }
}

/// What is not ours; `None` for all that [`Trace::open`] had better speak of.
fn foreign(path: &Path) -> Result<Option<Box<dyn Recording>>> {
    let Ok((file, _)) = open_regular(path) else {
        return Ok(None);
    };
    let mut head = vec![0; HEAD];
    let read = file.read_at(&mut head, 0).unwrap_or(0);
    head.truncate(read);
    let is_gzip = head.starts_with(&[0x1f, 0x8b]);
    if is_gzip {
        head.clear();
        // Damage further on is not known yet; what comes before it is enough here.
        let _ = MultiGzDecoder::new(&file)
            .take(HEAD as u64)
            .read_to_end(&mut head);
    }
    if Pickle::is_one(&head) {
        return Ok(Some(Box::new(snapshot(path, file, is_gzip)?)));
    }
    if let Some(dialect) = dialect(&head) {
        return Ok(Some(Box::new(LineLog::new(path, file, is_gzip, dialect))));
    }
    if is_gzip {
        return Err(anyhow!(
            "read {}: what is compressed there is neither a PyTorch memory snapshot nor a log of RMM nor a \
             list of requests",
            path.display()
        ));
    }
    Ok(None)
}

/// The sort of log whose header is the first line.
fn dialect(head: &[u8]) -> Option<&'static Dialect> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    [&RMM, &REQUESTS]
        .into_iter()
        .find(|dialect| dialect.is_header(line))
}

fn snapshot(path: &Path, mut file: File, is_gzip: bool) -> Result<Snapshot> {
    let place = path.display();
    let length = file.rewind().and_then(|()| file.metadata());
    let length = length.map_err(|error| anyhow!("read {place}: {error}"))?;
    let mut bytes = Vec::new();
    let (mut plain, mut packed);
    let input: &mut dyn Read = if is_gzip {
        packed = Packed::new(MultiGzDecoder::new(file), length.len());
        &mut packed
    } else {
        plain = file;
        &mut plain
    };
    let read = input.take(SNAPSHOT_MAX).read_to_end(&mut bytes);
    if bytes.len() as u64 >= SNAPSHOT_MAX {
        return Err(anyhow!(
            "read {place}: a snapshot of 2 GiB or more is not taken into memory; record fewer entries \
             (max_entries)"
        ));
    }
    let damaged = read.err();
    let snapshot = Snapshot::of(path, &bytes).map_err(|why| anyhow!("read {place}: {why}"))?;
    Ok(match damaged {
        Some(error) => snapshot.with_problem(format!(
            "it cannot be read beyond byte {} of what is compressed: {error}",
            bytes.len()
        )),
        None => snapshot,
    })
}
