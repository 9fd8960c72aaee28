use super::*;

#[test]
fn a_change_must_be_worth_it() {
    let best = |peak_reserved, driver_ns| Cost {
        peak_reserved,
        driver_ns,
        ..Cost::default()
    };
    let than = Baseline {
        than: Than::Recorded,
        peak_reserved: Some(1000),
        own_time: true,
        driver_ns: Some(100),
    };
    let is_worth = |best, limit| is_worth_it(best, &than, limit, 1000);
    assert!(is_worth(best(970, 100), None));
    assert!(!is_worth(best(971, 100), None));
    assert!(is_worth(best(971, 70), None), "3 % of the run");
    assert!(!is_worth(best(1001, 0), None), "more than there was");
    assert!(is_worth(best(999, 100), Some(999)), "else it does not fit");
    let unknown = Baseline {
        peak_reserved: None,
        ..than
    };
    assert!(is_worth_it(best(1, 1), &unknown, None, 0));
}
