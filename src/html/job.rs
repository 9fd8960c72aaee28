//! Page of a job: the outliers, a map of all ranks over time, and the tables of the text.
//!
//! As in the page of recordings, names from files are embedded in base64 only, and become text of
//! elements. The page's policy allows no script but its own, and no requests.

use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::page::STYLE;
use crate::error::Result;
use crate::fleet::{Fleet, RankRow, summary::OverTime};
use crate::output::table::Table;

const PAGE: &str = include_str!("assets/job.html");
/// In the order in which they need each other.
const SCRIPTS: [&str; 5] = [
    include_str!("assets/format.js"),
    include_str!("assets/dom.js"),
    include_str!("assets/theme.js"),
    include_str!("assets/axis.js"),
    include_str!("assets/job.js"),
];

#[derive(Serialize)]
struct Job<'a> {
    #[serde(flatten)]
    fleet: &'a Fleet,
    verdict: String,
    tables: [Table; 4],
    /// Live bytes of each rank over time.
    over_time: Vec<&'a OverTime>,
    /// Name of each rank's own page, if it lies beside this one.
    pages: Vec<Option<String>>,
}

/// Writes the page of some jobs. `folder` is where it will lie, with the pages of single ranks.
///
/// # Errors
/// Errors of `out`.
pub fn write_page(jobs: &[Fleet], folder: Option<&Path>, out: &mut dyn Write) -> Result<()> {
    let jobs: Vec<Job<'_>> = jobs.iter().map(|one| job(one, folder)).collect();
    let data = STANDARD.encode(serde_json::to_vec(&jobs)?);
    let nonce = format!("{:016x}", RandomState::new().hash_one(data.len()));
    let page = PAGE
        .replace("{{nonce}}", &nonce)
        .replace("{{style}}", STYLE)
        .replace("{{script}}", &SCRIPTS.concat())
        .replace("{{data}}", &data);
    Ok(out.write_all(page.as_bytes())?)
}

fn job<'a>(fleet: &'a Fleet, folder: Option<&Path>) -> Job<'a> {
    let page = |row: &RankRow| {
        let name = default_path(Path::new(&row.file), 1);
        let is_there = folder?.join(&name).is_file();
        is_there.then(|| name.display().to_string())
    };
    let summaries = fleet.members.iter().map(|member| &member.summary);
    Job {
        verdict: fleet.verdict(),
        tables: fleet.tables(usize::MAX),
        over_time: summaries.map(|summary| &summary.over_time).collect(),
        pages: fleet.ranks.iter().map(page).collect(),
        fleet,
    }
}

/// Returns the name of a page: that of the trace, in the current directory; of several, a name of
/// its own.
pub fn default_path(trace: &Path, count: usize) -> PathBuf {
    let name = trace.file_name().filter(|_| count == 1);
    Path::new(name.unwrap_or("gpushim".as_ref())).with_extension("html")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{Gathered, Member, Place};

    #[test]
    fn names_from_files_are_no_markup_and_pages_of_ranks_are_linked() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("0.html"), "").expect("written");
        let member = |rank: u32| {
            let mut member = Member {
                place: Place::of(format!("traces/{rank}.trace").into()),
                summary: Default::default(),
            };
            member.summary.process.rank = Some(rank);
            member.summary.process.host = "<script>alert(1)</script>{{data}}".to_string();
            member
        };
        let gathered = Gathered {
            members: vec![member(0), member(1)],
            unreadable: Vec::new(),
        };
        let jobs = Fleet::all(gathered, None);
        let mut page = Vec::new();
        write_page(&jobs, Some(folder.path()), &mut page).expect("written");
        let page = String::from_utf8(page).expect("text");
        assert!(!page.contains("alert(1)"), "{page}");
        assert!(!page.contains("{{"), "every place is filled");
        let pages = |folder| job(&jobs[0], folder).pages;
        assert_eq!(
            pages(Some(folder.path())),
            [Some("0.html".to_string()), None]
        );
        assert_eq!(pages(None), [None, None]);
    }
}
