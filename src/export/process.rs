//! The process of a recording.

use crate::recording::Recording;

/// A process, as far as the recording names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub pid: u32,
    pub rank: Option<String>,
    pub host: String,
    /// Its command line, or else the name of the file.
    pub title: String,
    /// Wall clock at the start of the recording, ns since 1970, 0 if unknown.
    pub wall_ns: u64,
}

impl Process {
    /// Process of a recording. Without a known process number it gets its place in the list, from 1
    /// on.
    pub(crate) fn of(recording: &dyn Recording, place: usize) -> Process {
        let its = recording.process();
        let file = recording.path().file_name().unwrap_or_default();
        let title = its.argv.filter(|argv| !argv.is_empty());
        Process {
            pid: its
                .pid
                .unwrap_or(u32::try_from(place + 1).unwrap_or(u32::MAX)),
            rank: its.rank.filter(|rank| !rank.is_empty()),
            host: its.host.unwrap_or_default(),
            title: title.unwrap_or_else(|| file.to_string_lossy().into_owned()),
            wall_ns: recording.wall_ns(),
        }
    }

    /// The title, with the rank where there is one.
    pub(crate) fn label(&self) -> String {
        match &self.rank {
            Some(rank) => format!("rank {rank}: {}", self.title),
            None => self.title.clone(),
        }
    }
}

/// The processes of recordings, and the wall clock at which their common time begins.
///
/// The wall clock is the earliest known start of a recording.
pub(crate) fn processes(recordings: &[Box<dyn Recording>]) -> (Vec<Process>, u64) {
    let processes: Vec<Process> = recordings
        .iter()
        .enumerate()
        .map(|(place, recording)| Process::of(&**recording, place))
        .collect();
    let walls = processes.iter().map(|process| process.wall_ns);
    let begin = walls.filter(|wall| *wall > 0).min().unwrap_or(0);
    (processes, begin)
}
