//! `gpushim demo`: sample trainings with a fault, on a simulated driver instead of a GPU.

pub mod command;
mod files;
mod situation;
