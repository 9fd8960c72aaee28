//! What the features share to say what they found: [`finding`] is the trait and its subject, [`table`] aligns,
//! [`units`] are numbers as people read them, and [`escape`] makes text from files safe to show.

pub mod escape;
pub mod finding;
pub mod table;
pub mod units;
