//! What lowers a peak, by what most of it is for.

use super::composition::{Category, Part};

/// Of a smaller part of the peak nothing is said: another one is not much smaller.
const LEAST_SHARE: f64 = 1.0 / 3.0;

/// What would make the largest part of a peak of `whole` bytes smaller, as a sentence without its end; `None` if no part
/// stands out, or nothing is known of it.
pub fn to_lower(parts: Option<&[Part]>, whole: u64) -> Option<&'static str> {
    let largest = parts?.iter().max_by_key(|part| part.bytes)?;
    if largest.share(whole) < LEAST_SHARE {
        return None;
    }
    match largest.category {
        Category::Activations => Some(
            "activations are kept for the backward pass: compute them again there (`torch.utils.checkpoint`), make them in \
             bfloat16 (`torch.autocast`), or take smaller batches and accumulate gradients",
        ),
        Category::Parameters => Some(
            "most are parameters: load them in bfloat16, or shard them over devices (`FullyShardedDataParallel`)",
        ),
        Category::Gradients => Some(
            "most are gradients: free them right after the step (`zero_grad(set_to_none=True)`), or shard them over devices \
             (`FullyShardedDataParallel`)",
        ),
        Category::OptimizerState => Some(
            "most is the optimizer's state: take an optimizer with less of it (SGD, Adafactor, 8-bit Adam), or shard it over \
             devices (`ZeroRedundancyOptimizer`)",
        ),
        Category::Temporary => Some(
            "most is temporary: the operations in the list below need it while they run; do them in parts",
        ),
        Category::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(category: Category, bytes: u64) -> Part {
        Part {
            category,
            bytes,
            blocks: 1,
        }
    }

    #[test]
    fn the_largest_part_that_stands_out_has_its_cure() {
        let parts = [
            part(Category::Parameters, 40),
            part(Category::Activations, 60),
        ];
        let told = to_lower(Some(&parts), 100).unwrap();
        assert!(told.contains("torch.utils.checkpoint"), "{told}");
        let parts = [
            part(Category::Parameters, 60),
            part(Category::Activations, 40),
        ];
        let told = to_lower(Some(&parts), 100).unwrap();
        assert!(told.contains("parameters"), "{told}");
        // Of a peak of which most is not known.
        assert_eq!(to_lower(Some(&parts), 1000), None);
        assert_eq!(to_lower(Some(&[part(Category::Unknown, 100)]), 100), None);
        assert_eq!(to_lower(None, 100), None);
    }
}
