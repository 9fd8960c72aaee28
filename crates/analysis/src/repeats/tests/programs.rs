//! Programs with loops of different shapes, and the memory that they keep.

use super::run::Run;

/// The function and the line that leaks.
const LEAK: (u64, u64) = (90, 7);
/// Lines of `main`, which calls all others.
const MAIN: u64 = 1;

/// The loops that a program consists of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    /// Steps of layers, forward and backward.
    Training,
    /// Epochs of steps, and an evaluation after each few.
    Epochs,
    /// A model called again and again, layer by layer.
    Inference,
    /// Requests, each with a cache that grows from token to token.
    Generation,
    /// Trials, each with a model of its own and a loop of steps.
    Trials,
}

/// The memory that one pass keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Leak {
    /// One more block in each pass.
    Kept,
    /// One block that is made anew, and larger.
    Anew,
    /// A block in every third pass.
    EveryThird,
}

/// Memory that a run may keep without a leak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Clean {
    Nothing,
    /// Weights are loaded one by one, each by the same line.
    Loading,
    /// A workspace for each of many sizes.
    CacheByKey,
    /// The first passes make what stays.
    WarmUp,
    /// Batches are sorted by length, and the last output is kept.
    Sorted,
    /// Garbage is collected now and then.
    LateCollection,
    /// The newest few are kept.
    Window,
    /// A ring is filled and then overwritten.
    Ring,
}

impl Shape {
    pub(super) const ALL: [Shape; 5] = [
        Shape::Training,
        Shape::Epochs,
        Shape::Inference,
        Shape::Generation,
        Shape::Trials,
    ];
}

impl Leak {
    pub(super) const ALL: [Leak; 3] = [Leak::Kept, Leak::Anew, Leak::EveryThird];
}

impl Clean {
    pub(super) const ALL: [Clean; 8] = [
        Clean::Nothing,
        Clean::Loading,
        Clean::CacheByKey,
        Clean::WarmUp,
        Clean::Sorted,
        Clean::LateCollection,
        Clean::Window,
        Clean::Ring,
    ];
}

/// The leak that was planted.
#[derive(Debug)]
pub(super) struct Planted {
    pub(super) rate: f64,
    pub(super) passes: u64,
    pub(super) line: (u64, u64),
}

/// Work at the end of a pass, given its number.
type Keep<'a> = &'a mut dyn FnMut(&mut Run, u64);

impl Run {
    /// Runs passes that leak memory.
    pub(super) fn leaking(&mut self, shape: Shape, leak: Leak, passes: u64, size: u64) -> Planted {
        let mut before = None;
        let keep: Keep<'_> = &mut |run, pass| {
            let calls = [(MAIN, 40), LEAK];
            match leak {
                Leak::Kept => {
                    run.make(&calls, size);
                }
                Leak::Anew => {
                    let larger = run.make(&calls, size * (pass + 1));
                    run.end_all(before.replace(larger));
                }
                Leak::EveryThird if pass % 3 == 2 => {
                    run.make(&calls, size);
                }
                Leak::EveryThird => {}
            }
        };
        self.passes(shape, passes, 0, keep);
        Planted {
            rate: size as f64,
            passes: if leak == Leak::EveryThird {
                passes / 3
            } else {
                passes
            },
            line: LEAK,
        }
    }

    /// Runs passes that leave nothing for good.
    pub(super) fn clean(&mut self, shape: Shape, clean: Clean, passes: u64) {
        if clean == Clean::Loading {
            for layer in 0..24 {
                let read = self.make(&[(MAIN, 5), (60, 1)], 1 << 20);
                self.make(&[(MAIN, 5), (60, 2)], (1 << 20) + layer % 3 * 4096);
                self.end(read);
            }
        }
        let mut held = std::collections::VecDeque::new();
        let keep: Keep<'_> = &mut |run, pass| {
            let calls = [(MAIN, 41), (70, 3)];
            match clean {
                Clean::Nothing | Clean::Loading => {}
                Clean::CacheByKey => {
                    // Each key comes for the first time, or is there already.
                    if pass < passes / 2 || pass.is_multiple_of(4) {
                        run.make(&calls, 4096 * (pass + 3));
                    }
                }
                Clean::WarmUp => {
                    if pass < 3 {
                        run.make(&calls, 1 << 22);
                    }
                }
                Clean::Sorted => {
                    let output = run.make(&calls, 65536 * (pass + 1));
                    run.end_all(held.drain(..));
                    held.push_back(output);
                }
                Clean::LateCollection => {
                    held.push_back(run.make(&calls, 1 << 20));
                    if pass % 5 == 4 {
                        run.end_all(held.drain(..));
                    }
                }
                Clean::Window | Clean::Ring => {
                    let most = if clean == Clean::Window {
                        3
                    } else {
                        passes as usize / 4
                    };
                    held.push_back(run.make(&calls, 1 << 20));
                    if held.len() > most {
                        run.end_all(held.pop_front());
                    }
                }
            }
        };
        let grows = if clean == Clean::Sorted { 65536 } else { 0 };
        self.passes(shape, passes, grows, keep);
    }

    /// The passes of a shape. Each makes larger blocks by `grows`.
    fn passes(&mut self, shape: Shape, passes: u64, grows: u64, keep: Keep<'_>) {
        let layers = 3 + self.random(4);
        for layer in 0..layers {
            self.make(&[(MAIN, 2), (50, 4)], (1 << 20) + layer * 512);
        }
        let mut state = Vec::new();
        for pass in 0..passes {
            let more = grows * pass;
            match shape {
                Shape::Training => self.step(20, layers, more, &mut state),
                Shape::Epochs => {
                    self.step(20, layers, more, &mut state);
                    if pass % 5 == 4 {
                        for _ in 0..3 {
                            self.forward(&[(MAIN, 30)], layers, more)
                                .into_iter()
                                .for_each(|one| self.end(one));
                        }
                    }
                }
                Shape::Inference => {
                    let made = self.forward(&[(MAIN, 20)], layers, more);
                    self.end_all(made);
                }
                Shape::Generation => self.request(pass, layers, more),
                Shape::Trials => {
                    let model: Vec<usize> = (0..layers)
                        .map(|_| self.make(&[(MAIN, 20), (51, 2)], 1 << 19))
                        .collect();
                    let mut state = Vec::new();
                    for _ in 0..8 {
                        self.step(21, layers, more, &mut state);
                    }
                    self.end_all(model);
                    self.end_all(state);
                }
            }
            keep(self, pass);
        }
    }

    fn forward(&mut self, calls: &[(u64, u64)], layers: u64, more: u64) -> Vec<usize> {
        let calls = |line: u64| [calls, &[(52, 9), (53, line)]].concat();
        let mut made = Vec::new();
        for layer in 0..layers {
            made.push(self.make(&calls(1), (1 << 18) + layer * 1024 + more));
            let part = self.make(&calls(2), 1 << 16);
            self.end(part);
        }
        made
    }

    fn step(&mut self, line: u64, layers: u64, more: u64, state: &mut Vec<usize>) {
        let batch = self.make(&[(MAIN, line), (54, 1)], (1 << 16) + more);
        let made = self.forward(&[(MAIN, line), (54, 2)], layers, more);
        let gradients: Vec<usize> = (0..layers)
            .map(|_| self.make(&[(MAIN, line), (54, 3), (55, 6)], 1 << 20))
            .collect();
        self.end_all(made);
        if state.is_empty() {
            state
                .extend((0..layers).map(|_| self.make(&[(MAIN, line), (54, 4), (56, 2)], 1 << 21)));
        }
        self.end_all(gradients);
        self.end(batch);
    }

    fn request(&mut self, pass: u64, layers: u64, more: u64) {
        let mut cache: Vec<Option<usize>> = vec![None; layers as usize];
        for token in 0..6 + pass % 3 {
            for place in &mut cache {
                let calls = [(MAIN, 20), (57, 3), (58, 5)];
                let joined = self.make(&calls, 4096 * (token + 1) + more);
                self.end_all(place.replace(joined));
            }
            let logits = self.make(&[(MAIN, 20), (57, 4)], (1 << 15) + more);
            self.end(logits);
        }
        self.end_all(cache.into_iter().flatten());
    }
}
