//! Finds values that are unlike the others, where ranks may have roles, such as the stages of a
//! pipeline.
//!
//! Values near each other form a group, and a large group is a role. A rank without a role is an
//! outlier if almost all others have one.

/// Largest gap within a group, as a share of the lower value.
const NEAR: f64 = 0.05;
/// Smallest share of the ranks in a role. A role has at least two ranks.
const ROLE: f64 = 0.03;
/// Number of ranks from which a role has at least three: in a large job two faults may look alike
/// by chance.
const MANY: usize = 16;
/// Smallest share of the ranks in roles. Below it no value counts as an outlier.
const MOST: f64 = 0.75;

/// A value outside of all roles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alone {
    /// Index among the given values.
    pub index: usize,
    pub value: f64,
    /// Middle value of the nearest role.
    pub usual: f64,
}

impl Alone {
    /// Difference from the usual value, as a share of it.
    pub fn share(&self) -> f64 {
        self.apart() / self.usual.max(f64::MIN_POSITIVE)
    }

    /// Difference from the usual value.
    pub fn apart(&self) -> f64 {
        (self.value - self.usual).abs()
    }
}

/// Returns the values outside of all roles. Values nearer than `least` to each other always form
/// one group.
pub fn alone(values: &[f64], least: f64) -> Vec<Alone> {
    // Of two different values neither is the usual one.
    if values.len() < 3 {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..values.len()).collect();
    let value = |index: usize| values.get(index).copied().unwrap_or(0.0);
    order.sort_by(|a, b| value(*a).total_cmp(&value(*b)));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for index in order {
        let before = groups.last().and_then(|group| group.last()).copied();
        let near = |before| value(index) - value(before) <= least.max(NEAR * value(before));
        match before.filter(|before| near(*before)) {
            Some(_) => {
                if let Some(group) = groups.last_mut() {
                    group.push(index);
                }
            }
            None => groups.push(vec![index]),
        }
    }
    let fewest = if values.len() < MANY { 2 } else { 3 };
    let role = ((values.len() as f64 * ROLE).ceil() as usize).max(fewest);
    let (roles, others): (Vec<_>, Vec<_>) =
        groups.into_iter().partition(|group| group.len() >= role);
    let in_roles: usize = roles.iter().map(Vec::len).sum();
    if (in_roles as f64) < MOST * values.len() as f64 && in_roles + 1 < values.len() {
        return Vec::new();
    }
    let middles: Vec<f64> = roles
        .iter()
        .filter_map(|role| role.get(role.len() / 2))
        .map(|index| value(*index))
        .collect();
    let of = |index: usize| {
        let off = |middle: &&f64| (**middle - value(index)).abs();
        let usual = middles
            .iter()
            .min_by(|a, b| off(a).total_cmp(&off(b)))
            .copied()?;
        Some(Alone {
            index,
            value: value(index),
            usual,
        })
    };
    others.into_iter().flatten().filter_map(of).collect()
}

/// Returns the upper median; 0 for no values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: &[f64]) -> Vec<usize> {
        let mut found: Vec<usize> = alone(values, 1.0).iter().map(|one| one.index).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn one_of_many() {
        assert_eq!(found(&[100.0, 101.0, 200.0, 99.0]), [2]);
        assert_eq!(found(&[100.0, 101.0, 200.0]), [2]);
        assert_eq!(found(&[100.0, 101.0, 50.0, 99.0]), [2]);
        assert_eq!(found(&[100.0, 103.0, 104.0, 107.0]), [0_usize; 0]);
        assert_eq!(found(&[1.0, 5.0]), [0_usize; 0]);
        let one = alone(&[100.0, 100.0, 150.0], 1.0)[0];
        assert_eq!((one.usual, one.share()), (100.0, 0.5));
    }

    #[test]
    fn roles_are_not_alone() {
        // Two stages; each rank a stage of its own; many stages of many ranks, and one rank in none
        // of them.
        assert_eq!(found(&[100.0, 100.0, 200.0, 200.0]), [0_usize; 0]);
        assert_eq!(found(&[100.0, 120.0, 144.0, 173.0]), [0_usize; 0]);
        let mut stages: Vec<f64> = (0..512)
            .map(|rank| 100.0 * f64::from(1 + rank / 64))
            .collect();
        assert_eq!(found(&stages), [0_usize; 0]);
        stages[300] = 555.0;
        assert_eq!(found(&stages), [300]);
        assert_eq!(
            found(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 5.0, 5.0]),
            [0_usize; 0]
        );
        let mut pair = vec![100.0; 40];
        (pair[7], pair[30]) = (200.0, 203.0);
        assert_eq!(found(&pair), [7, 30]);
        // Ten of 512 ranks are no role, twenty are one.
        let some = |many: usize| -> Vec<f64> {
            (0..512)
                .map(|rank| if rank < many { 150.0 } else { 100.0 })
                .collect()
        };
        assert_eq!(found(&some(10)).len(), 10);
        assert_eq!(found(&some(20)).len(), 0);
    }
}
