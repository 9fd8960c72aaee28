//! When memory falls suddenly, by how much, why, whose blocks went, and whether it comes back.
//!
//! `falls` finds each fall, `swing` the highs and lows that bound it, `gather` puts those together that are alike;
//! [`Drops`] is what comes of it, and [`DropsReport`] says it in sentences.

pub(crate) mod command;
mod fall;
mod falls;
mod find;
mod gather;
mod swing;
mod text;

pub use fall::{Cause, Drop, Fallen};
pub use find::Drops;
pub use text::DropsReport;
