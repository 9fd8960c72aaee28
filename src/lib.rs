//! The command `gpushim`: it reads recordings, finds out what they say, and writes it in many forms.
//!
//! Each feature of the command has a folder with what it finds, its sentences and its subcommand. What features share is
//! in rooms of their own below them; [`command`] alone knows every subcommand.

// The rooms that features share.
mod cli;
mod cut;
pub mod iterations;
pub mod ledger;
pub mod output;
pub mod recording;
pub mod requests;
pub mod symbols;
pub mod whole;

// The features, and above them the command.
pub mod command;
pub mod diff;
mod doctor;
pub mod drops;
pub mod events;
pub mod export;
pub mod flamegraph;
pub mod fragmentation;
pub mod growth;
pub mod html;
pub mod leaks;
pub mod metrics;
pub mod oom;
pub mod peak;
pub mod phases;
pub mod plan;
pub mod replay;
pub mod report;
mod run;
pub mod timeline;
pub mod top;
pub mod tune;
