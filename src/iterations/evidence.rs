//! How sure it is that what repeats is an iteration of the run, and not a part of one: the layers of one forward pass,
//! the parameters of one optimizer step.
//!
//! With Python stacks the calls tell. All that repeats is done by one function, the innermost that all stacks between
//! the first and the last repetition have in common. If it was called by a module's forward pass, an optimizer step or a
//! backward pass, the repetitions are inside that call. So they are if each is one and the same call of that function
//! while it makes others, too. Without stacks what is live tells: a pass gives back most of what it takes.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::kept::Kept;
use super::{By, LEAST};
use crate::ledger::Focus;
use crate::output::units::count;
use crate::recording::{Frame, Names};
use crate::symbols::{Kind, Symbol, base};
use gpushim_trace::{Effect, Kind as EventKind, Record};

/// Different stacks that are looked at.
const STACKS: usize = 4096;
/// Repetitions whose stacks are kept apart.
const APART: usize = 64;
/// Of a repetition's rise, how much may stay where no stack tells more.
const STAYS: f64 = 0.5;
/// Of all allocations, how many are of calls that a whole iteration makes.
const WHOLE: f64 = 0.5;
/// The fewest repetitions in which one kind of blocks that stays can be told from the others.
const MANY: usize = 9;
/// The most kinds of allocations of a run in which that is not told.
const FEW_KINDS: usize = 4;
/// The most rises that say nothing when only half of them fall back.
const FEW_RISES: usize = 4;
/// If no more than this part of all rises stays, half of the repetitions must fall back.
const COMES_BACK: f64 = 0.25;
/// How many of the repetitions must look like iterations.
const MOST: f64 = 0.75;

/// How sure it is that what was found are iterations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Certainty {
    /// Whether a finding may rest on them.
    pub sure: bool,
    /// Why, or why not.
    pub why: String,
    /// Whether the user set what they begin with.
    pub set: bool,
}

impl Certainty {
    /// Of iterations whose beginning the user set.
    pub fn set() -> Certainty {
        Certainty {
            set: true,
            ..Certainty::sure("set by --iteration")
        }
    }

    /// Of iterations whose beginning the user set, where it could not be told but by this.
    pub fn of_set(judged: Certainty) -> Certainty {
        match judged.sure {
            true => Certainty::set(),
            false => Certainty {
                set: true,
                ..judged
            },
        }
    }

    fn sure(why: impl Into<String>) -> Certainty {
        Certainty {
            sure: true,
            why: why.into(),
            set: false,
        }
    }

    fn unsure(why: impl Into<String>) -> Certainty {
        Certainty {
            sure: false,
            why: why.into(),
            set: false,
        }
    }
}

/// What one repetition did to what is live, bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    /// From its beginning to its highest point.
    rise: i64,
    /// From its beginning to its end.
    stays: i64,
}

/// What is gathered while the repetitions are gone through.
#[derive(Debug)]
pub struct Evidence {
    focus: Focus,
    now: i64,
    /// Of the repetition that is under way: the level at its beginning and its highest.
    under_way: Option<(i64, i64)>,
    passes: Vec<Pass>,
    /// Whether memory of any kind was given back in one of them.
    gives_back: bool,
    /// Whether that was memory of another kind than the focus.
    others_come_back: bool,
    /// Kinds of allocations that come often in the run.
    kinds: usize,
    /// A stack of the same frames; by stack, and by what [`Evidence::feed`] calls frames.
    of_same_frames: FxHashMap<u32, Option<u32>>,
    same: FxHashMap<u64, u32>,
    /// Allocations of each stack in the repetitions that are over, and in the one that is under way.
    stacks: FxHashMap<u32, u64>,
    current: FxHashMap<u32, u64>,
    /// The stacks of every n-th repetition.
    apart: Vec<Vec<u32>>,
    every: usize,
}

impl Evidence {
    /// Of the blocks of a focus. `kinds`: how many kinds of allocations come often in the run.
    pub fn new(focus: Focus, kinds: usize) -> Evidence {
        Evidence {
            focus,
            kinds,
            now: 0,
            under_way: None,
            passes: Vec::new(),
            gives_back: false,
            others_come_back: false,
            of_same_frames: FxHashMap::default(),
            same: FxHashMap::default(),
            stacks: FxHashMap::default(),
            current: FxHashMap::default(),
            apart: Vec::new(),
            every: 1,
        }
    }

    /// A repetition begins with the next event.
    pub fn begin(&mut self) {
        let Some((from, high)) = self.under_way.replace((self.now, self.now)) else {
            return;
        };
        if self.passes.len().is_multiple_of(self.every) {
            self.apart.push(self.current.keys().copied().collect());
        }
        if self.apart.len() >= APART {
            self.every *= 2;
            let mut place = 0..;
            self.apart.retain(|_| {
                place
                    .next()
                    .is_some_and(|place: usize| place.is_multiple_of(2))
            });
        }
        self.passes.push(Pass {
            rise: high.saturating_sub(from),
            stays: self.now.saturating_sub(from),
        });
        for (stack, events) in self.current.drain() {
            *self.stacks.entry(stack).or_default() += events;
        }
    }

    /// The next event; `frames` as [`Recording::frames`](crate::recording::Recording::frames).
    pub fn feed(&mut self, record: &Record, frames: impl FnOnce(u32) -> u64) {
        let event = &record.event;
        if self.under_way.is_some() && matches!(Effect::of(event), Effect::Freed(_)) {
            self.gives_back = true;
            self.others_come_back |= !self.focus.holds(event);
        }
        if !self.focus.holds(event) {
            return;
        }
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.now = match Effect::of(event) {
            Effect::Allocated(block) => self.now.saturating_add(bytes(block.requested)),
            Effect::Freed(block) => self.now.saturating_sub(bytes(block.requested)),
            _ => return,
        };
        let Some((_, high)) = &mut self.under_way else {
            return;
        };
        *high = self.now.max(*high);
        let allocates = matches!(event.kind, EventKind::Alloc | EventKind::TensorAlloc);
        if !allocates || event.stack == 0 {
            return;
        }
        let same = &mut self.same;
        let stack = self.of_same_frames.entry(event.stack).or_insert_with(|| {
            let frames = frames(event.stack);
            let is_room = same.len() < STACKS || same.contains_key(&frames);
            is_room.then(|| *same.entry(frames).or_insert(event.stack))
        });
        let Some(stack) = *stack else {
            return;
        };
        *self.current.entry(stack).or_default() += 1;
    }

    /// How sure it is that these repetitions are iterations, given what they kept.
    pub fn judge(self, by: &By, kept: &Kept, names: &mut dyn Names) -> Certainty {
        if let By::Range(name) = by
            && super::ranges::says_iteration(name)
        {
            return Certainty::sure("the range's name says so");
        }
        // Of a function that the user set a few calls are enough.
        let is_set = matches!(by, By::Function(_));
        if (self.passes.len() as u64) < LEAST - 1 && !is_set {
            return Certainty::unsure(format!(
                "there are only {}",
                count(self.passes.len() as u64 + 1)
            ));
        }
        self.by_calls(names).unwrap_or_else(|| self.by_level(kept))
    }

    /// By the calls of Python functions; `None` if there are none.
    fn by_calls(&self, names: &mut dyn Names) -> Option<Certainty> {
        let paths: FxHashMap<u32, Path> = self
            .stacks
            .keys()
            .map(|stack| (*stack, path(&names.stack(*stack))))
            .filter(|(_, path)| !path.is_empty())
            .collect();
        // Where most is done: threads that run backward passes have stacks of their own.
        let mut roots = FxHashMap::<&Call, u64>::default();
        for (stack, path) in &paths {
            *roots.entry(path.first()?).or_default() +=
                self.stacks.get(stack).copied().unwrap_or(0);
        }
        let (root, _) = roots
            .into_iter()
            .max_by_key(|(root, events)| (*events, std::cmp::Reverse(*root)))?;
        let rooted = || {
            paths
                .values()
                .filter(|path| path.first().is_some_and(|first| first.is_in(root)))
        };
        let common = common(rooted());
        // Where one call makes all, it may itself be what each turn makes: an object of pinned memory, while other memory
        // comes and goes.
        let is_made_anew = |call: &Call| {
            self.others_come_back && self.stacks.len() == 1 && call.function.ends_with("__init__")
        };
        if let Some(call) = root_to(&paths, root, common)
            .iter()
            .find(|call| call.is_one_pass() && !is_made_anew(call))
        {
            return Some(Certainty::unsure(format!(
                "they repeat inside one call of `{}`",
                call.function
            )));
        }
        // What the function that they have in common calls, and from which line; `None` for what other threads do, those
        // of a backward pass, say.
        let child = |stack: &u32| {
            let path = paths.get(stack)?;
            let is_rooted = path.first().is_some_and(|first| first.is_in(root));
            let line = path.get(common.checked_sub(1)?).and_then(|call| call.line);
            is_rooted.then(|| (line, path.get(common).map(Call::without_line)))
        };
        let mut all = FxHashMap::<_, u64>::default();
        for (stack, events) in &self.stacks {
            *all.entry(child(stack)).or_default() += events;
        }
        let events: u64 = all.values().sum();
        let function = root_to(&paths, root, common)
            .last()
            .map(|call| call.function.clone())?;
        if all.keys().flatten().count() == 1 {
            return Some(if self.gives_back {
                Certainty::sure(format!("each is a call that `{function}` makes"))
            } else {
                Certainty::unsure(format!(
                    "each is a call that `{function}` makes, and none gives anything back, as where a model is made"
                ))
            });
        }
        let is_whole = |of: &&Vec<u32>| {
            let own: FxHashSet<_> = of.iter().map(child).collect();
            let part: u64 = own.iter().filter_map(|child| all.get(child)).sum();
            own.len() > 1 && part as f64 > WHOLE * events as f64
        };
        let whole = self.apart.iter().filter(is_whole).count();
        Some(if whole as f64 >= MOST * self.apart.len() as f64 {
            Certainty::sure(format!("each is one pass of a loop in `{function}`"))
        } else {
            Certainty::unsure(format!(
                "they repeat inside one call that `{function}` makes"
            ))
        })
    }

    /// By what is live.
    fn by_level(&self, kept: &Kept) -> Certainty {
        let rising = || self.passes.iter().filter(|pass| pass.rise > 0);
        let is_most = |passes: usize| passes as f64 >= MOST * rising().count() as f64;
        let falls = rising().filter(|pass| pass.stays as f64 <= STAYS * pass.rise as f64);
        let falls = falls.count();
        let all = rising().count();
        // The first one may make what all of them use.
        let sum = |of: fn(&Pass) -> i64| rising().skip(1).map(|pass| of(pass) as f64).sum::<f64>();
        let comes_back = sum(|pass| pass.stays) <= COMES_BACK * sum(|pass| pass.rise);
        if all > 0 && (is_most(falls) || falls * 2 >= all && all > FEW_RISES && comes_back) {
            return Certainty::sure("what is live falls back in each of them");
        }
        // In the layers of one pass several kinds stay.
        let mut left = kept.groups.iter().filter(|group| group.left.is_some());
        if let (Some(only), None) = (left.next(), left.next())
            && self.passes.len() >= MANY
            && self.kinds > FEW_KINDS
        {
            let each = only.held.bytes as f64 / only.iterations.max(1) as f64;
            let returns = rising().filter(|pass| {
                let times = (pass.stays as f64 / each).round().max(0.0);
                let others = pass.stays as f64 - times * each;
                let fell = (pass.rise - pass.stays) as f64;
                times <= 1.0 && fell > 0.0 && others.abs() <= STAYS * (fell + others.abs())
            });
            if is_most(returns.count()) {
                return Certainty::sure(
                    "what is live falls back in each of them, but for one kind of blocks",
                );
            }
        }
        Certainty::unsure(
            "what is live does not fall back in them, as in the layers of one pass; stacks would tell",
        )
    }
}

/// A Python function that was called.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Call {
    function: String,
    file: String,
    line: Option<u32>,
}

/// The calls of a stack, outermost first.
type Path = Vec<Call>;

impl Call {
    fn without_line(&self) -> Call {
        Call {
            line: None,
            ..self.clone()
        }
    }

    /// Whether it is the same function.
    fn is_in(&self, other: &Call) -> bool {
        self.function == other.function && self.file == other.file
    }

    /// Whether everything that it calls belongs to one forward pass, one backward pass or one optimizer step, or to the making of one model.
    fn is_one_pass(&self) -> bool {
        let function = self.function.rsplit('.').next().unwrap_or_default();
        let (file, name) = (self.file.as_str(), base(&self.file));
        let of_module =
            file.ends_with("torch/nn/modules/module.py") && function.ends_with("_call_impl");
        let of_optimizer =
            function == "step" && name.contains("optim") || file.contains("/torch/optim/");
        let of_backward = function == "backward"
            && (file.ends_with("torch/_tensor.py") || file.contains("/torch/autograd/"));
        let of_set_up =
            ["__init__", "_apply", "load_state_dict", "from_pretrained"].contains(&function);
        of_module || of_optimizer || of_backward || of_set_up || function == "forward"
    }
}

fn path(stack: &[Frame]) -> Path {
    let symbols = stack.iter().flat_map(|frame| match frame {
        Frame::Call(symbols) => &symbols[..],
        Frame::Range(_) => &[],
    });
    let python = symbols.filter(|symbol| symbol.kind == Kind::Python);
    let call = |symbol: &Symbol| Call {
        function: symbol.function.clone(),
        file: symbol.file.clone().unwrap_or_default(),
        line: symbol.line,
    };
    let mut path: Path = python.map(call).collect();
    path.reverse();
    path
}

/// How many calls all of these have in common, from the outermost on; lines may differ.
fn common<'a>(mut paths: impl Iterator<Item = &'a Path>) -> usize {
    let Some(first) = paths.next() else { return 0 };
    paths.fold(first.len(), |common, path| {
        let pairs = first.iter().zip(path).take(common);
        pairs.take_while(|(one, other)| one.is_in(other)).count()
    })
}

/// The calls that all paths of a root have in common.
fn root_to(paths: &FxHashMap<u32, Path>, root: &Call, common: usize) -> Vec<Call> {
    let of_root = paths
        .values()
        .find(|path| path.first().is_some_and(|first| first.is_in(root)));
    of_root.map_or_else(Vec::new, |path| path.iter().take(common).cloned().collect())
}

#[cfg(test)]
mod tests;
