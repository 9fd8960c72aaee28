//! The course of one quantity over the beginnings of passes: flat, even, sparse, or back again.

/// Part of the changes from pass to pass that must be rises in an even course,
const RISES: f64 = 0.8;
/// how near their median must be to their mean,
const NEAR: f64 = 0.25;
/// and how much of the rise may be lost again in between.
const LOST: f64 = 0.35;
/// Changes that can be divided into quarters.
const QUARTERS: usize = 12;
/// The least and the most that one quarter may rise beyond the one before, as a part of the mean.
const QUARTER: (f64, f64) = (0.55, 1.6);
/// Rises of a sparse course at random,
const SPARSE: usize = 4;
/// and of one with even distances.
const REGULAR: usize = 3;
/// Up to this part of all changes, rises are sparse.
const FEW_RISES: f64 = 0.5;
/// Evenness of their spread: rises of the poorer half against those of the other.
const EVENLY: f64 = 0.5;
/// Usual gaps that may have passed since the last of them.
const RECENT: f64 = 2.5;
/// Up to this many changes only the first is set aside.
const FEW: usize = 8;

/// Course of a quantity over the passes of a loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Course {
    /// It does not rise for good.
    Flat,
    /// Each pass adds about the same.
    Even {
        /// The amount that each pass adds.
        each: f64,
        /// Passes that added some, and passes in all.
        rises: (usize, usize),
        /// True if nearly all of them added the same.
        is_regular: bool,
    },
    /// Some passes add some, at even distances or at random.
    Sparse {
        /// The amount that each of them adds.
        each: f64,
        /// Distance between them in passes.
        every: f64,
        /// Passes that added some, and passes in all.
        rises: (usize, usize),
        /// True if the distances are nearly all the same.
        is_regular: bool,
    },
    /// It rises, neither evenly nor to the end.
    Uneven,
}

impl Course {
    /// Returns the amount that each pass adds on average.
    pub fn rate(&self) -> f64 {
        match self {
            Course::Even { each, .. } => *each,
            Course::Sparse { each, every, .. } => each / every,
            Course::Flat | Course::Uneven => 0.0,
        }
    }

    /// True if it rises for good.
    pub fn grows(&self) -> bool {
        matches!(self, Course::Even { .. } | Course::Sparse { .. })
    }
}

/// Returns the index of the first change in the steady part of this many changes.
pub(crate) fn steady(changes: usize) -> usize {
    match changes {
        0..=2 => 0,
        3..=FEW => 1,
        _ => changes / 3,
    }
}

/// Returns the course of a quantity, by its value at the beginning of each pass.
pub fn course(values: &[u64]) -> Course {
    let from = steady(values.len().saturating_sub(1));
    let values = values.get(from..).unwrap_or_default();
    let changes: Vec<i64> = values
        .windows(2)
        .filter_map(|pair| Some(signed(*pair.last()?) - signed(*pair.first()?)))
        .collect();
    let (Some(first), Some(last)) = (values.first(), values.last()) else {
        return Course::Flat;
    };
    let net = (signed(*last) - signed(*first)) as f64;
    if changes.is_empty() || net <= 0.0 {
        return Course::Flat;
    }
    let count = changes.len();
    let rises = changes.iter().filter(|change| **change > 0).count();
    let mean = net / count as f64;
    let usual = median(&changes) as f64;
    let is_lost = fall(values) as f64 > LOST * net;
    if let [first, last] = changes[..]
        && last > 0
        && first >= last
    {
        // The first of two may have made more, which stays.
        return Course::Even {
            each: last as f64,
            rises: (rises, count),
            is_regular: first == last,
        };
    }
    if !is_lost && rises as f64 >= RISES * count as f64 && (usual / mean - 1.0).abs() < NEAR {
        let is_exact = changes
            .iter()
            .filter(|one| **one == median(&changes))
            .count()
            * 2
            > count;
        return Course::Even {
            each: if is_exact { usual } else { mean },
            rises: (rises, count),
            is_regular: alike(&changes) as f64 >= RISES * count as f64,
        };
    }
    if let Some(sparse) = sparse(&changes, net, is_lost) {
        return sparse;
    }
    match count >= QUARTERS && rises as f64 > FEW_RISES * count as f64 {
        true => by_quarters(values, net, (rises, count)),
        false if is_lost => Course::Flat,
        false => Course::Uneven,
    }
}

/// Finds rises with unchanged passes in between: at even distances, or few and spread over the run.
fn sparse(changes: &[i64], net: f64, is_lost: bool) -> Option<Course> {
    let count = changes.len();
    let is_rise = |at: &usize| changes.get(*at).is_some_and(|one| *one > 0);
    let places: Vec<usize> = (0..count).filter(is_rise).collect();
    let (first, last) = (places.first()?, places.last()?);
    let rises = (places.len(), count);
    if is_lost || places.len() < REGULAR {
        return None;
    }
    let gaps: Vec<i64> = places
        .windows(2)
        .filter_map(|pair| Some((pair.last()? - pair.first()?) as i64))
        .collect();
    let usual = median(&gaps);
    let same = gaps.iter().filter(|gap| **gap == usual).count();
    let is_regular = usual > 1 && same * 5 >= gaps.len() * 4;
    let every = match same == gaps.len() {
        true => usual as f64,
        false => (last - first) as f64 / gaps.len() as f64,
    };
    let all: Vec<i64> = places
        .iter()
        .filter_map(|place| changes.get(*place).copied())
        .collect();
    let is_alike = alike(&all) * 5 >= all.len() * 3;
    let is_recent = (count - last) as f64 <= RECENT * every;
    let half = count / 2;
    let early = places.iter().filter(|place| **place < half).count();
    let late = places.len() - early;
    let is_spread = places.len() >= SPARSE
        && places.len() as f64 <= FEW_RISES * count as f64
        && early.min(late) as f64 >= EVENLY * early.max(late) as f64;
    (is_alike && is_recent && (is_regular || is_spread)).then(|| Course::Sparse {
        each: net / places.len() as f64,
        every,
        rises,
        is_regular,
    })
}

/// Returns the number of values near their median.
fn alike(values: &[i64]) -> usize {
    let usual = median(values);
    let is_near = |one: &&i64| one.abs_diff(usual).saturating_mul(20) <= usual.unsigned_abs();
    values.iter().filter(is_near).count()
}

/// Judges by the usual value of each quarter, because single values jump.
fn by_quarters(values: &[u64], net: f64, rises: (usize, usize)) -> Course {
    let quarter = values.len() / 4;
    let usual: Vec<i64> = values
        .chunks(quarter.max(1))
        .take(4)
        .map(|part| median(&part.iter().map(|value| signed(*value)).collect::<Vec<_>>()))
        .collect();
    let steps: Vec<f64> = usual
        .windows(2)
        .filter_map(|pair| Some((pair.last()? - pair.first()?) as f64))
        .collect();
    let mean = steps.iter().sum::<f64>() / steps.len().max(1) as f64;
    let (least, most) = QUARTER;
    let is_even = mean > 0.0
        && steps
            .iter()
            .all(|step| *step >= least * mean && *step <= most * mean);
    // Jumps that exceed the whole rise prove nothing.
    if is_even && fall(values) as f64 <= net.max(3.0 * mean) {
        return Course::Even {
            each: mean / quarter.max(1) as f64,
            rises,
            is_regular: false,
        };
    }
    Course::Uneven
}

/// Returns the deepest fall from any value to a later one.
fn fall(values: &[u64]) -> u64 {
    let mut highest = 0_u64;
    let mut deepest = 0;
    for value in values {
        highest = highest.max(*value);
        deepest = highest.saturating_sub(*value).max(deepest);
    }
    deepest
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Returns the median, the lower of two.
pub(crate) fn median(values: &[i64]) -> i64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let middle = sorted.len().saturating_sub(1) / 2;
    sorted.get(middle).copied().unwrap_or(0)
}
