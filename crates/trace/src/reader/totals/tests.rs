//! Totals that are damaged or of another version.

use proptest::prelude::*;

use super::*;

const ROWS: usize = totals::LAYERS * totals::DEVICES;

fn parse(words: &[u64], part: Part) -> Option<Totals> {
    let content: Vec<_> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    read(&Bytes::copy(&content), part)
}

/// Stripes of `words` words each; the words of row r are r, 10 r, 100 r, 1000 r.
fn stripes(count: usize, words: usize) -> Vec<u64> {
    let mut stripe = vec![u64::MAX; totals::ROWS_AT / 8];
    stripe.extend((0..ROWS as u64).flat_map(|row| [1, 10, 100, 1000].map(|times| times * row)));
    stripe.resize(words, u64::MAX);
    stripe.repeat(count)
}

#[test]
fn stripes_are_added_up_by_layer_and_device() {
    for stride in [totals::STRIPE_BYTES, 2048] {
        let words = stripes(3, stride / 8);
        let part = Part {
            offset: 0,
            length: words.len() as u64 * 8,
            stride: stride as u64,
        };
        let totals = parse(&words, part).unwrap();
        let managed = totals.device(Layer::Managed, 1);
        let row = 2 * 9 + 1;
        let expected = Sums {
            allocations: 3 * row,
            allocated: 30 * row,
            frees: 300 * row,
            freed: 3000 * row,
        };
        assert_eq!(managed, expected);
        assert_eq!((managed.live(), managed.live_bytes()), (0, 0));
        assert_eq!(
            totals.device(Layer::Host, 255),
            totals.device(Layer::Host, 8)
        );
        // Rows 0 to 8.
        assert_eq!(totals.layer(Layer::Tensor).allocations, 3 * 36);
        // One word less is not enough.
        assert_eq!(
            parse(
                &words[..2 * stride / 8 + totals::ROWS_AT / 8 + ROWS * 4 - 1],
                part
            ),
            None
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    #[cfg_attr(miri, ignore = "no unsafe code, and long")]
    fn any_bytes_are_survived(
        words in prop::collection::vec(any::<u64>(), 0..600),
        offset in 0..500_u64,
        length in prop_oneof![0..5000_u64, any::<u64>().prop_map(|length| length >> 16)],
        stride in prop_oneof![Just(totals::STRIPE_BYTES as u64), 1..3000_u64, any::<u64>().prop_map(|stride| stride | 1)],
    ) {
        if let Some(totals) = parse(&words, Part { offset: offset & !7, length, stride }) {
            totals.layer(Layer::Mapping).live_bytes();
            totals.device(Layer::Tensor, 9).live();
        }
    }
}
