//! Shared by the output of all features: [`answer`] is what a subcommand answers and its subject, [`envelope`] its JSON, [`table`] aligns,
//! [`units`] are numbers as people read them, and [`escape`] makes text from files safe to show.

pub mod answer;
pub mod envelope;
pub mod escape;
pub mod holder;
pub mod table;
pub mod units;
