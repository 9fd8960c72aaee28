use super::*;
use crate::output::answer::Shown;
use crate::timeline::find::During;

fn report(name: &str) -> TimelineReport {
    let curve = |name, columns: &[u64], least: u64| Curve {
        name,
        columns: columns
            .iter()
            .map(|most| Some((least.min(*most), *most)))
            .collect(),
        peak: columns.iter().copied().max().unwrap_or(0),
        peak_ns: 1_000,
    };
    let mib = 1 << 20;
    TimelineReport {
        trace: name.to_string(),
        one_moment: false,
        run: Run {
            end_ns: 2_000_000_000,
            devices: vec![Curves {
                device: Some(0),
                curves: vec![
                    curve("tensors", &[0, 7 * mib, 14 * mib, 7 * mib], 7 * mib),
                    curve("reserved by the framework", &[28 * mib; 4], 28 * mib),
                ],
            }],
            phases: vec![During {
                name: name.to_string(),
                depth: 0,
                ns: 1_000_000_000,
                columns: vec![0.0, 1.0, 0.5, 0.0],
            }],
            is_complete: true,
        },
    }
}

#[test]
fn a_plot_in_characters() {
    insta::assert_snapshot!(Shown(&report("train"), 10), @"
    train

    gpu 0: █ tensors, ▓ at times, ░ reserved by the framework
      28.0 MiB ┤░░░░
      24.0 MiB ┤░░░░
               ┤░░░░
               ┤░░░░
               ┤░░░░
      16.0 MiB ┤░░░░
               ┤░░░░
               ┤░░▓░
               ┤░░▓░
       8.0 MiB ┤░░▓░
               ┤░░▓░
               ┤░███
               ┤░███
               ┤░███
             0 └────
              2.00 s
         train   █▒

                                   most      at
    tensors                    14.0 MiB  1.0 µs
    reserved by the framework  28.0 MiB  1.0 µs
    ");
}
