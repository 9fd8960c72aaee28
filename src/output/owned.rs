//! Blocks by who keeps them, where that was recorded.

use std::cmp::Reverse;
use std::fmt;

use rustc_hash::FxHashMap;

use super::escape::shown;
use super::table::{Align, Table, rest};
use super::units::{bytes, count, percent};
use crate::ledger::Block;
use crate::recording::{Names, Owned, Owner, Recording, is_workspace};
use gpushim_trace::{Class, Kept};

/// The beginning of the paths of an optimizer's state.
const STATE: &str = "state of ";

/// Sums up blocks by their owners, those with most bytes first. The parameters of a model are one
/// row, and so are its buffers, its gradients and its optimizer's state. Blocks without an owner
/// are in no row.
pub fn owned<'a>(
    recording: &dyn Recording,
    blocks: impl IntoIterator<Item = &'a Block>,
) -> Vec<Owned> {
    let owners = recording.owners();
    if owners.is_empty() {
        return Vec::new();
    }
    let mut workspaces = Workspaces::of(recording);
    let mut rows = FxHashMap::<Owner, Owned>::default();
    for block in blocks {
        let owner = owners.of_block(block.class.layer(), block.address, block.ticket);
        let workspace = Owner {
            kept: Kept::Announced,
            path: WORKSPACES.to_string(),
            root: String::new(),
        };
        let owner = match owner {
            None
            | Some(Owner {
                kept: Kept::Graph | Kept::Native,
                ..
            }) if workspaces.has(block) => &workspace,
            None => continue,
            Some(owner) => owner,
        };
        let path = of_module(owner);
        let key = Owner {
            path: match path {
                Some(path) => first(path).to_string(),
                None => owner.path.clone(),
            },
            ..owner.clone()
        };
        let row = rows.entry(key).or_insert_with(|| Owned {
            owner: Owner {
                path: path.unwrap_or(&owner.path).to_string(),
                ..owner.clone()
            },
            blocks: 0,
            bytes: 0,
        });
        if let Some(path) = path {
            let common = common(&row.owner.path, path).len();
            row.owner.path.truncate(common);
        }
        row.blocks += 1;
        row.bytes = row.bytes.saturating_add(block.size);
    }
    let mut rows: Vec<Owned> = rows.into_values().collect();
    rows.sort_by(|a, b| (Reverse(a.bytes), &a.owner.path).cmp(&(Reverse(b.bytes), &b.owner.path)));
    rows
}

/// The row of workspaces that PyTorch keeps for cuBLAS and cuSOLVER.
const WORKSPACES: &str = "PyTorch, as workspaces of cuBLAS and cuSOLVER";
/// The least bytes of a workspace.
const LEAST_WORKSPACE: u64 = 1 << 16;

/// Tells which blocks are workspaces of libraries.
pub struct Workspaces<'a> {
    names: Box<dyn Names + 'a>,
    known: FxHashMap<u32, bool>,
}

impl<'a> Workspaces<'a> {
    /// Names stacks by a recording.
    pub fn of(recording: &'a dyn Recording) -> Workspaces<'a> {
        Workspaces {
            names: recording.names(),
            known: FxHashMap::default(),
        }
    }

    /// Returns true if PyTorch made a block for a library to work in.
    pub fn has(&mut self, block: &Block) -> bool {
        let may_be =
            block.class == Class::Tensor && block.size >= LEAST_WORKSPACE && block.stack != 0;
        let names = &mut self.names;
        may_be
            && *self
                .known
                .entry(block.stack)
                .or_insert_with(|| is_workspace(&names.stack(block.stack)))
    }
}

/// The path of the parameter that a block of a model belongs to.
fn of_module(owner: &Owner) -> Option<&str> {
    match owner.kept {
        Kept::Parameter | Kept::Buffer => Some(&owner.path),
        Kept::Gradient => Some(owner.path.trim_end_matches(".grad")),
        Kept::OptimizerState => {
            let path = owner.path.trim_start_matches(STATE);
            Some(path.split_once(": ").map_or(path, |(path, _)| path))
        }
        _ => None,
    }
}

/// The first name of a path.
fn first(path: &str) -> &str {
    path.split(['.', '[']).next().unwrap_or(path)
}

/// The beginning that two paths have in common, in whole steps.
fn common<'p>(one: &'p str, other: &str) -> &'p str {
    let same = one
        .bytes()
        .zip(other.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let ends = |text: &str| matches!(text.as_bytes().get(same), None | Some(b'.' | b'['));
    let at = match ends(one) && ends(other) {
        true => same,
        false => one
            .get(..same)
            .and_then(|text| text.rfind(['.', '[']))
            .unwrap_or(0),
    };
    one.get(..at).unwrap_or_default()
}

/// Says who keeps the blocks of a row.
pub fn row(owner: &Owner) -> String {
    let what = match owner.kept {
        Kept::Parameter => "parameters",
        Kept::Buffer => "buffers",
        Kept::Gradient => "gradients",
        Kept::OptimizerState => "optimizer state",
        _ => return owner.in_words(),
    };
    match owner.path.as_str() {
        "" => what.to_string(),
        path => format!("{what} of `{path}`"),
    }
}

/// Writes a table of the first rows, and the bytes of `whole` that no walk named.
///
/// # Errors
/// Those of the formatter.
pub fn table(f: &mut fmt::Formatter<'_>, rows: &[Owned], whole: u64, top: usize) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    let mut table = Table::new([
        ("kept", Align::Right),
        ("", Align::Right),
        ("blocks", Align::Right),
        ("by", Align::Left),
    ]);
    let mut add = |bytes_of: u64, blocks: Option<u64>, who: &str| {
        table.row([
            bytes(bytes_of),
            percent(bytes_of as f64, whole as f64),
            blocks.map(count).unwrap_or_default(),
            shown(who),
        ]);
    };
    for one in rows.iter().take(top) {
        add(one.bytes, Some(one.blocks), &row(&one.owner));
    }
    let hidden = rows.iter().skip(top);
    if let Some((bytes_left, blocks)) = rest(hidden.map(|one| (one.bytes, one.blocks))) {
        add(bytes_left, Some(blocks), "other names");
    }
    let named = rows
        .iter()
        .fold(0_u64, |sum, one| sum.saturating_add(one.bytes));
    let unnamed = whole.saturating_sub(named);
    if unnamed > 0 {
        add(
            unnamed,
            None,
            "not named: made and freed between two looks at the program's objects",
        );
    }
    write!(f, "\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_paths_have_in_common_ends_with_a_step() {
        for (one, other, expected) in [
            ("model.h[*].weight", "model.h[*].bias", "model.h[*]"),
            ("model.head", "model.heads", "model"),
            ("model", "model.h", "model"),
            ("a.weight", "b.weight", ""),
            ("model.h", "model.h", "model.h"),
        ] {
            assert_eq!(common(one, other), expected);
            assert_eq!(common(other, one), expected);
        }
    }

    #[test]
    fn the_parameter_of_each_kind_of_block() {
        let owner = |kept, path: &str| Owner {
            kept,
            path: path.to_string(),
            root: String::new(),
        };
        let state = owner(Kept::OptimizerState, "state of model.w: exp_avg");
        assert_eq!(of_module(&state), Some("model.w"));
        assert_eq!(
            of_module(&owner(Kept::Gradient, "model.w.grad")),
            Some("model.w")
        );
        assert_eq!(of_module(&owner(Kept::Named, "cache[*]")), None);
        assert_eq!(
            row(&owner(Kept::Parameter, "model")),
            "parameters of `model`"
        );
    }
}
