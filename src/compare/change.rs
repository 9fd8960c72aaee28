//! Comparison of the figures of two runs.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::figures::Figure;
use crate::recording::Function;

/// Figure of a run, and of the run before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Change {
    /// The name of a phase, or a function with its place.
    pub name: String,
    /// The function, of a call site that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<Function>,
    /// The values, bytes; `None` in a run that has no such phase or function.
    pub values: [Option<u64>; 2],
}

impl Change {
    /// Makes a change without a function.
    pub fn of(name: impl Into<String>, values: [Option<u64>; 2]) -> Change {
        Change {
            name: name.into(),
            function: None,
            values,
        }
    }

    /// Increase from the first run to the second, bytes; `None` if one run has no value.
    pub fn added(&self) -> Option<i128> {
        let [before, after] = self.values;
        Some(i128::from(after?) - i128::from(before?))
    }

    /// Difference of the two values; a missing value counts as 0.
    pub fn weight(&self) -> u64 {
        let [before, after] = self.values.map(Option::unwrap_or_default);
        before.abs_diff(after)
    }

    /// Increase of the value; a missing value counts as 0.
    pub fn gained(&self) -> u64 {
        let [before, after] = self.values.map(Option::unwrap_or_default);
        after.saturating_sub(before)
    }

    /// Returns true if both runs have the figure, and the second has more than is [`allowed`].
    pub fn rose(&self, whole: u64, part: f64) -> bool {
        let [Some(before), Some(after)] = self.values else {
            return false;
        };
        after > allowed(before, whole, part)
    }
}

/// Returns the highest value that is no regression: `part` of `whole` more than `before`.
pub fn allowed(before: u64, whole: u64, part: f64) -> u64 {
    before.saturating_add((whole as f64 * part) as u64)
}

/// Pairs figures by name, in the order of the first occurrence of each name. Figures of one run with
/// the same name are added up.
pub fn changes(before: &[Figure], after: &[Figure]) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    let mut places = FxHashMap::<&str, usize>::default();
    for (side, figures) in [before, after].into_iter().enumerate() {
        for figure in figures {
            let place = *places.entry(&figure.name).or_insert_with(|| {
                all.push(Change::of(&figure.name, [None; 2]));
                all.len() - 1
            });
            let Some(change) = all.get_mut(place) else {
                continue;
            };
            if let Some(value) = change.values.get_mut(side) {
                *value = Some(value.unwrap_or(0).saturating_add(figure.bytes));
            }
            if figure.function.is_some() {
                change.function.clone_from(&figure.function);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(all: &[(&str, u64)]) -> Vec<Figure> {
        let of = |(name, bytes): &(&str, u64)| Figure::of(*name, *bytes);
        all.iter().map(of).collect()
    }

    #[test]
    fn figures_are_paired_by_name_and_added_up() {
        let before = figures(&[("a", 1), ("b", 2), ("a", 4)]);
        let after = figures(&[("c", 8), ("b", 1)]);
        let expected = [
            Change::of("a", [Some(5), None]),
            Change::of("b", [Some(2), Some(1)]),
            Change::of("c", [None, Some(8)]),
        ];
        assert_eq!(changes(&before, &after), expected);
        assert_eq!(expected.each_ref().map(Change::weight), [5, 1, 8]);
        assert_eq!(expected.each_ref().map(Change::gained), [0, 0, 8]);
        let added = expected.each_ref().map(Change::added);
        assert_eq!(added, [None, Some(-1), None]);
    }

    #[test]
    fn a_part_of_the_whole_is_allowed() {
        assert_eq!(allowed(1000, 1000, 0.01), 1010);
        assert_eq!(allowed(50, 1000, 0.01), 60);
        assert_eq!(allowed(u64::MAX, 1000, 0.01), u64::MAX);
        let rose = |values| Change::of("a", values).rose(1000, 0.01);
        assert!(rose([Some(50), Some(61)]));
        assert!(!rose([Some(50), Some(60)]));
        // A figure that one run lacks is neither more nor less.
        assert!(!rose([None, Some(800)]));
        assert!(!rose([Some(800), None]));
    }
}
