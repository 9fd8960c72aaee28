//! Page of a job: the outliers, and a map of all ranks over time.
//!
//! As in the page of `gpushim html`, names from files are embedded in base64 only, and become text
//! of elements. The page's policy allows no script but its own, and no requests.

use std::hash::{BuildHasher, RandomState};
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::job::{Fleet, RankRow};
use super::outlier::Outlier;
use super::text;
use crate::error::Result;

const PAGE: &str = include_str!("assets/fleet.html");
const STYLE: &str = include_str!("assets/fleet.css");
const SCRIPT: &str = include_str!("assets/fleet.js");
/// Number of columns of the map.
const COLUMNS: usize = 240;

#[derive(Serialize)]
struct Job<'a> {
    verdict: String,
    /// Duration of a column, ns.
    column_ns: u64,
    rows: Vec<Row<'a>>,
    outliers: Vec<Said<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    host: &'a str,
    peak: u64,
    reserved: u64,
    iterations: Option<u64>,
    outlier: Vec<&'static str>,
    /// MiB live in each column; -1 before the start of the rank and after its end.
    live: Vec<i64>,
}

#[derive(Serialize)]
struct Said<'a> {
    kind: &'static str,
    ranks: String,
    members: &'a [usize],
    text: &'a str,
    place: Option<&'a str>,
    sure: bool,
    why: &'a str,
    next: Option<&'a str>,
}

/// Writes the page of some jobs.
///
/// # Errors
/// Errors of `out`.
pub fn write(fleets: &[Fleet], out: &mut dyn Write) -> Result<()> {
    let jobs: Vec<Job<'_>> = fleets.iter().map(job).collect();
    let data = STANDARD.encode(serde_json::to_vec(&jobs)?);
    let nonce = format!("{:016x}", RandomState::new().hash_one(data.len()));
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        out.write_all(before.as_bytes())?;
        let (name, after) = after.split_once("}}").unwrap_or(("", after));
        let text = match name {
            "nonce" => &nonce,
            "style" => STYLE,
            "script" => SCRIPT,
            "data" => &data,
            _ => "",
        };
        out.write_all(text.as_bytes())?;
        rest = after;
    }
    Ok(out.write_all(rest.as_bytes())?)
}

fn job(fleet: &Fleet) -> Job<'_> {
    let end = |row: &RankRow| {
        let columns = row.over_time.live_kib.len() as u64;
        row.started_ns
            .saturating_add(row.over_time.column_ns.saturating_mul(columns))
    };
    let end_ns = fleet.ranks.iter().map(end).max().unwrap_or(0);
    let column_ns = end_ns / COLUMNS as u64 + 1;
    let row = |row: &'_ RankRow| -> Vec<i64> {
        let over = &row.over_time;
        let at = |column: usize| {
            let middle = column_ns * column as u64 + column_ns / 2;
            let since = middle.checked_sub(row.started_ns)?;
            let index = usize::try_from(since.checked_div(over.column_ns)?).ok()?;
            over.live_kib.get(index).map(|kib| (kib >> 10) as i64)
        };
        (0..COLUMNS)
            .map(|column| at(column).unwrap_or(-1))
            .collect()
    };
    Job {
        verdict: fleet.verdict(),
        column_ns,
        rows: fleet
            .ranks
            .iter()
            .map(|one| Row {
                name: &one.name,
                host: &one.host,
                peak: one.peak,
                reserved: one.reserved,
                iterations: one.iterations,
                outlier: one.outlier.iter().map(|kind| kind.name()).collect(),
                live: row(one),
            })
            .collect(),
        outliers: fleet.outliers.iter().map(said).collect(),
    }
}

fn said(one: &Outlier) -> Said<'_> {
    let place = one.site.as_ref().map(|site| site.short.as_str());
    Said {
        kind: one.kind.name(),
        ranks: text::ranks(&one.ranks),
        members: &one.members,
        text: &one.text,
        place: place.filter(|place| !place.is_empty()),
        sure: one.sure,
        why: &one.why,
        next: one.next.as_deref(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::gather::Gathered;

    #[test]
    fn names_from_files_are_no_markup() {
        let mut fleets = Fleet::all(Gathered::default(), Some("x"));
        assert!(fleets.is_empty());
        let mut gathered = Gathered::default();
        let mut member = crate::fleet::gather::Member {
            place: Default::default(),
            summary: Default::default(),
        };
        member.summary.process.host = "<script>alert(1)</script>{{data}}".to_string();
        gathered.members.push(member);
        fleets = Fleet::all(gathered, Some("x"));
        let mut page = Vec::new();
        write(&fleets, &mut page).expect("written");
        let page = String::from_utf8(page).expect("text");
        assert!(!page.contains("alert(1)"), "{page}");
        assert!(!page.contains("{{"), "every place is filled");
    }
}
