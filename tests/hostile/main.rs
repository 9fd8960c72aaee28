//! Files made to hurt who reads them: each is made here, and the command reads it within bounds on
//! memory and time. docs/hostile-input.md has the bounds.

mod bounded;
mod elf;
mod escapes;
mod files;
mod outputs;
mod pickles;
mod spools;
mod stacks;
mod truncated;
