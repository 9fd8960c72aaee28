//! What the command does with recordings: it reads them, finds out what they say, and writes it in many forms.

pub mod analysis;
pub mod export;
pub mod recording;
pub mod replay;
pub mod report;
pub mod symbols;
pub mod tune;
pub mod whole;
