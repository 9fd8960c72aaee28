//! The log of RMM's `logging_resource_adaptor`: `Thread,Time,Action,Pointer,Size,Stream`, with the
//! time of day in µs. Format: RMM's documentation, and its `logging_resource_adaptor.hpp`.

use super::csv::{Action, Dialect};
use gpushim_trace::Class;

const DAY_NS: u64 = 24 * 3600 * 1_000_000_000;

pub(super) static RMM: Dialect = Dialect {
    format: "RMM log",
    columns: ["Action", "Pointer", "Size", "Stream", "Thread", "Time"],
    actions: &[
        ("allocate", Action::Alloc),
        ("alloc", Action::Alloc),
        ("free", Action::Free),
        ("deallocate", Action::Free),
        ("allocate failure", Action::Failure),
    ],
    time,
    wraps: Some(DAY_NS),
    without_stream: Class::PoolAsync,
};

/// Parses `15:30:00.123456`; until RMM 0.15 `15:30:00:123456`.
fn time(text: &str) -> Option<u64> {
    let (clock, fraction) = match text.rfind(['.', ':']) {
        Some(at) if text.matches(':').count() + text.matches('.').count() == 3 => {
            (text.get(..at)?, text.get(at + 1..)?)
        }
        _ => (text, "0"),
    };
    let mut parts = clock.split(':');
    let mut part = |limit: u64| {
        let number: u64 = parts.next()?.parse().ok()?;
        (number < limit).then_some(number)
    };
    let (hours, minutes, seconds) = (part(24)?, part(60)?, part(61)?);
    if parts.next().is_some() || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let scale = 10_u64.pow(9 - u32::try_from(fraction.len()).ok()?);
    let ns = fraction.parse::<u64>().ok()?.checked_mul(scale)?;
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day() {
        assert_eq!(time("00:00:01.000002"), Some(1_000_002_000));
        assert_eq!(time("01:02:03:000004"), Some(3_723_000_004_000));
        assert_eq!(time("23:59:59"), Some(DAY_NS - 1_000_000_000));
        for bad in [
            "",
            "1",
            "24:00:00.0",
            "1:2:3.",
            "1:2:3.1234567890",
            "a:b:c.d",
            "1:2:3:4:5",
        ] {
            assert_eq!(time(bad), None, "{bad}");
        }
    }
}
