//! Numbers as people read them.

use chrono::DateTime;

/// Bytes in the largest binary unit in which they are at least 1.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would print as 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A count with a comma after each thousand.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time span with its unit.
pub fn span(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        1_000_000_000..60_000_000_000 => format!("{:.2} s", ns as f64 / 1e9),
        60_000_000_000..3_600_000_000_000 => {
            format!("{} min {} s", ns / 60_000_000_000, ns / 1_000_000_000 % 60)
        }
        _ => format!(
            "{} h {} min",
            ns / 3_600_000_000_000,
            ns / 60_000_000_000 % 60
        ),
    }
}

/// A share of a whole in percent; `-` of nothing.
pub fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 {
        format!("{:.1} %", 100.0 * part / whole)
    } else {
        "-".to_string()
    }
}

/// A moment, ns since 1970, in UTC to the second.
pub fn moment(wall_ns: u64) -> String {
    let seconds = (wall_ns / 1_000_000_000).cast_signed();
    let moment = DateTime::from_timestamp(seconds, 0).unwrap_or_default();
    moment.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_the_fitting_unit() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536 << 10, "1.5 MiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            (80 << 30, "80.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn counts_and_spans() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(21_222), "21,222");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(span(999), "999 ns");
        assert_eq!(span(33_000), "33.0 µs");
        assert_eq!(span(226_400_000), "226.4 ms");
        assert_eq!(span(12_300_000_000), "12.30 s");
        assert_eq!(span(61_000_000_000), "1 min 1 s");
        assert_eq!(span(7_260_000_000_000), "2 h 1 min");
        assert_eq!(percent(1.0, 4.0), "25.0 %");
        assert_eq!(percent(1.0, 0.0), "-");
    }

    #[test]
    fn moments_are_those_of_date() {
        assert_eq!(moment(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(
            moment(951_782_400 * 1_000_000_000),
            "2000-02-29 00:00:00 UTC"
        );
        assert_eq!(
            moment(1_795_219_128 * 1_000_000_000),
            "2026-11-20 23:58:48 UTC"
        );
        assert_eq!(
            moment(4_107_542_400 * 1_000_000_000),
            "2100-03-01 00:00:00 UTC"
        );
        assert!(moment(u64::MAX).starts_with("2554-"));
    }
}
