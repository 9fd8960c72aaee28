//! Situations that the sample program plays: its own names for them, and the commands that answer.

/// One situation of `situations.py`.
#[derive(Debug)]
pub struct Situation {
    /// Name, as the sample program takes it.
    pub name: &'static str,
    /// Description in a few words.
    pub what: &'static str,
    /// Commands that say more of it than the summary of the run.
    pub next: &'static [&'static str],
}

/// All situations; the first one is played if none is named.
pub const ALL: [Situation; 9] = [
    Situation {
        name: "leaky-layer",
        what: "a layer keeps a copy of each of its inputs",
        next: &["gpushim growth", "gpushim report"],
    },
    Situation {
        name: "losses",
        what: "losses are kept in a list, and with each its graph",
        next: &["gpushim growth", "gpushim report"],
    },
    Situation {
        name: "pinned",
        what: "pinned host memory that is never freed",
        next: &["gpushim growth --of host"],
    },
    Situation {
        name: "bank",
        what: "samples that are needed are dropped: memory falls for good",
        next: &["gpushim report"],
    },
    Situation {
        name: "references",
        what: "`del` frees nothing, as a list still refers to the tensors",
        next: &["gpushim phases"],
    },
    Situation {
        name: "clean",
        what: "a training without a fault: where its memory goes",
        next: &["gpushim peak", "gpushim timeline"],
    },
    Situation {
        name: "checkpoint",
        what: "the same, with activations of every other layer freed",
        next: &["gpushim peak"],
    },
    Situation {
        name: "half",
        what: "the same, with activations of half as many bytes",
        next: &["gpushim peak"],
    },
    Situation {
        name: "quarters",
        what: "the same, with four batches of a quarter for one step",
        next: &["gpushim peak"],
    },
];

/// Finds the situation of a name, for the command line.
///
/// # Errors
/// No situation has the name.
pub fn parse(name: &str) -> Result<&'static Situation, String> {
    let found = ALL.iter().find(|one| one.name == name);
    let names = ALL.map(|one| one.name).join(", ");
    found.ok_or_else(|| format!("no such situation; there are {names}"))
}
