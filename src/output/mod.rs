//! Shared by the output of all features: [`answer`] is what a subcommand answers and its subject, [`envelope`] its JSON, [`table`] aligns,
//! [`units`] are numbers as people read them, [`style`] and [`wrap`] fit text to a terminal, and [`escape`] makes text from files safe to show.

pub mod answer;
pub mod envelope;
pub mod escape;
pub mod holder;
pub mod owned;
pub mod style;
pub mod table;
pub mod units;
pub mod wrap;
