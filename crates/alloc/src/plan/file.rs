//! Plans as text.
//!
//! For example `gpushim-plan 1`, `pool 0 streams steps 3 again 1`, `2097152 0`, `512 2097152`, `1024 -`, each a line of
//! its own. The first line names the format and its version. Each pool begins with its device's ordinal, its family,
//! how many steps follow, and the step that comes after the last one (`-`: none). A step is a size and an
//! offset in bytes, or `-` where the pool chooses. Empty lines and those that begin with `#` mean nothing.

use std::fmt::{self, Write};
use std::io::{self, Read};
use std::sync::Arc;

use super::{Family, GRANULE, Plans, PoolPlan, Step};

/// The first line.
const FORMAT: &str = "gpushim-plan 1";
/// Steps of a file, at most: 64 MiB of text, half a second to read.
pub const MOST: usize = 4_000_000;
/// Places lie below this many bytes: more than any device has.
const HIGHEST: u64 = 1 << 40;

/// Why a file is no plan. Completes "failed to read the plan …: ".
#[derive(Debug)]
pub enum ReadError {
    /// It could not be read.
    Io(io::Error),
    /// It begins otherwise than this version's plans.
    Format,
    /// A line makes no sense: its number, from 1, and what should be there.
    Line(usize, &'static str),
    /// The last pool has fewer steps than it says.
    Short,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(error) => error.fmt(f),
            ReadError::Format => write!(
                f,
                "it does not begin with `{FORMAT}`; make one with `gpushim plan TRACE -o FILE`"
            ),
            ReadError::Line(line, wanted) => write!(f, "line {line} should be {wanted}"),
            ReadError::Short => f.write_str("it ends before its last step"),
        }
    }
}

impl std::error::Error for ReadError {}

const POOL: &str = "`pool DEVICE plain|streams steps N again N|-`";
const STEP: &str = "a size and an offset (or `-`), both multiples of 512, in bytes";

impl Plans {
    /// Reads a file that was opened.
    ///
    /// # Errors
    /// It cannot be read, or is no plan.
    pub fn read(file: impl Read) -> Result<Plans, ReadError> {
        // No plan needs more.
        let most = 32 * MOST as u64;
        let mut text = String::new();
        file.take(most)
            .read_to_string(&mut text)
            .map_err(ReadError::Io)?;
        Plans::parse(&text)
    }

    /// From text.
    ///
    /// # Errors
    /// It is no plan.
    pub fn parse(text: &str) -> Result<Plans, ReadError> {
        let lines = text.lines().enumerate();
        let lines = lines.map(|(at, line)| (at + 1, line.trim()));
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        if lines.next().is_none_or(|(_, line)| line != FORMAT) {
            return Err(ReadError::Format);
        }
        let mut plans = Plans::default();
        let mut room = MOST;
        while let Some((number, line)) = lines.next() {
            let pool = Head::parse(line).ok_or(ReadError::Line(number, POOL))?;
            room = room
                .checked_sub(pool.steps)
                .ok_or(ReadError::Line(number, "fewer steps: at most 4,000,000"))?;
            // Not before they are there: a few bytes must not ask for gigabytes.
            let mut steps = Vec::new();
            for _ in 0..pool.steps {
                let (number, line) = lines.next().ok_or(ReadError::Short)?;
                steps.push(step(line).ok_or(ReadError::Line(number, STEP))?);
            }
            let plan = Arc::new(PoolPlan::new(steps, pool.again));
            plans.pools.insert((pool.device, pool.family), plan);
        }
        Ok(plans)
    }

    /// As text, which [`Plans::parse`] reads.
    pub fn to_text(&self) -> String {
        let mut text = format!("{FORMAT}\n");
        for ((device, family), plan) in &self.pools {
            let again = plan.again().map_or("-".to_string(), |at| at.to_string());
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "pool {device} {} steps {} again {again}",
                family.name(),
                plan.steps().len()
            );
            for step in plan.steps() {
                let _ = match step.offset {
                    Some(offset) => writeln!(text, "{} {offset}", step.bytes),
                    None => writeln!(text, "{} -", step.bytes),
                };
            }
        }
        text
    }
}

/// The line that a pool begins with.
struct Head {
    device: i32,
    family: Family,
    steps: usize,
    again: Option<usize>,
}

impl Head {
    fn parse(line: &str) -> Option<Head> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let ["pool", device, family, "steps", steps, "again", again] = words.as_slice() else {
            return None;
        };
        let families = [Family::Plain, Family::Streams];
        let steps = steps.parse().ok()?;
        let again = match *again {
            "-" => None,
            at => Some(at.parse().ok().filter(|at| *at < steps)?),
        };
        Some(Head {
            device: device.parse().ok().filter(|device| *device >= 0)?,
            family: families.into_iter().find(|of| of.name() == *family)?,
            steps,
            again,
        })
    }
}

fn step(line: &str) -> Option<Step> {
    let (bytes, offset) = line.split_once(' ')?;
    let whole = |text: &str| {
        let number: u64 = text.parse().ok()?;
        (number.is_multiple_of(GRANULE) && number <= HIGHEST).then_some(number)
    };
    let offset = match offset.trim() {
        "-" => None,
        offset => Some(whole(offset)?),
    };
    let bytes = whole(bytes).filter(|bytes| *bytes > 0)?;
    Some(Step { bytes, offset })
}
