//! Takeover: the variables that point a framework at CUDA's stream-ordered allocations, and
//! PyTorch's allocator at expandable segments.
//!
//! The decision depends on the environment alone. A child inherits the variables that were set, and
//! decides the same. Values that the user chose are kept.

use std::ffi::OsString;

use super::Takeover;

mod limits;

pub use limits::{LIMITS, Limit, limits_of};

/// A framework that caches device memory itself, and can be told to leave that to gpushim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framework {
    /// PyTorch, by its own allocator's backend.
    Torch,
    /// JAX, by XLA's client allocator.
    Jax,
    /// TensorFlow, by its GPU allocator.
    Tf,
}

impl Framework {
    /// All frameworks that can be taken over.
    pub const ALL: [Framework; 3] = [Framework::Torch, Framework::Jax, Framework::Tf];

    /// Name in `GPUSHIM_TAKEOVER` and in the trace's facts.
    pub const fn key(self) -> &'static str {
        match self {
            Framework::Torch => "torch",
            Framework::Jax => "jax",
            Framework::Tf => "tf",
        }
    }

    /// Name as the project itself spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Framework::Torch => "PyTorch",
            Framework::Jax => "JAX",
            Framework::Tf => "TensorFlow",
        }
    }
}

impl Takeover {
    /// True if a framework is to be taken over.
    pub const fn includes(self, framework: Framework) -> bool {
        match framework {
            Framework::Torch => self.torch,
            Framework::Jax => self.jax,
            Framework::Tf => self.tf,
        }
    }
}

/// Decision about one framework.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Framework that it is about.
    pub framework: Framework,
    /// Variables to set, with their new values.
    pub set: Vec<(&'static str, String)>,
    /// The decision, in words for people.
    pub words: String,
    /// True if the framework then allocates from CUDA's stream-ordered pools.
    pub taken: bool,
}

/// Decides about each framework that is to be taken over, in an environment.
///
/// ```
/// use gpushim_config::{Takeover, takeover};
///
/// let torch = Takeover { torch: true, ..Takeover::default() };
/// for decision in takeover::decide(torch, |name| std::env::var_os(name)) {
///     println!("{}: {}", decision.framework.name(), decision.words);
///     for (name, value) in decision.set {
///         println!("export {name}={value}");
///     }
/// }
/// ```
pub fn decide(takeover: Takeover, lookup: impl Fn(&str) -> Option<OsString>) -> Vec<Decision> {
    let wanted = Framework::ALL
        .into_iter()
        .filter(|framework| takeover.includes(*framework));
    wanted
        .map(|framework| {
            let decided = match framework {
                Framework::Torch => torch(&lookup),
                Framework::Jax => jax(&lookup),
                Framework::Tf => tf(&lookup),
            };
            Decision::new(framework, decided)
        })
        .collect()
}

/// Decides in an environment about PyTorch's expandable segments, in which elastic memory holds the
/// least (`GPUSHIM_ELASTIC`).
pub fn expand(lookup: impl Fn(&str) -> Option<OsString>) -> Decision {
    Decision::new(Framework::Torch, expandable(&lookup))
}

impl Decision {
    fn new(framework: Framework, decided: Decided) -> Decision {
        let (set, words, taken) = match decided {
            Ok((set, words)) => (set, words, true),
            Err(LeftAlone(why)) => (Vec::new(), format!("left alone: {why}"), false),
        };
        Decision {
            framework,
            set,
            words,
            taken,
        }
    }
}

/// Variables to set, and the decision in words; or the reason to leave the framework alone.
type Decided = Result<(Vec<(&'static str, String)>, String), LeftAlone>;

/// Reason to leave a framework alone.
struct LeftAlone(String);

/// Value of a variable as text. It is empty if the variable is not set or blank, which no framework
/// takes for a choice.
fn text(lookup: &impl Fn(&str) -> Option<OsString>, name: &str) -> Result<String, LeftAlone> {
    let value = lookup(name).unwrap_or_default();
    let value = value
        .into_string()
        .map_err(|_| LeftAlone(format!("{name} is not UTF-8")))?;
    Ok(if value.trim().is_empty() {
        String::new()
    } else {
        value
    })
}

fn assigned(set: &[(&'static str, String)]) -> String {
    let each = |(name, value): &(&str, String)| format!("{name}={value}");
    set.iter().map(each).collect::<Vec<_>>().join(" ")
}

fn done(set: Vec<(&'static str, String)>, note: &str) -> Decided {
    let words = format!("set {}{note}", assigned(&set));
    Ok((set, words))
}

/// PyTorch's variables with lists of options. Older versions know only the first. If both choose a
/// backend, the first decides.
const TORCH: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
const TORCH_BACKEND: &str = "cudaMallocAsync";

/// Value of an option in PyTorch's variables, and the variable that has it.
type Chosen = Option<(&'static str, String)>;

/// Values of PyTorch's variables.
fn torch_values(lookup: &impl Fn(&str) -> Option<OsString>) -> Result<TorchValues, LeftAlone> {
    let [old, new] = TORCH;
    Ok([(old, text(lookup, old)?), (new, text(lookup, new)?)])
}

type TorchValues = [(&'static str, String); 2];

/// Finds an option in PyTorch's variables.
fn chosen(values: &TorchValues, key: &str) -> Result<Chosen, LeftAlone> {
    for (name, value) in values {
        let options = options(value)
            .ok_or_else(|| LeftAlone(format!("the brackets in {name}={value} do not match")))?;
        let mut of_key = options
            .into_iter()
            .filter_map(|option| option_of(option, key));
        if let Some(value) = of_key.next() {
            return Ok(Some((name, value)));
        }
    }
    Ok(None)
}

/// Adds an option to PyTorch's variables.
fn with_option(values: TorchValues, option: &str) -> Decided {
    let none = values.iter().all(|(_, value)| value.is_empty());
    let changed = values
        .into_iter()
        .filter(|(_, value)| none || !value.is_empty());
    let set = changed.map(|(name, value)| {
        let kept = value.trim_end_matches(|letter: char| letter == ',' || letter.is_whitespace());
        let comma = if kept.is_empty() { "" } else { "," };
        (name, format!("{kept}{comma}{option}"))
    });
    done(set.collect(), "")
}

fn torch(lookup: &impl Fn(&str) -> Option<OsString>) -> Decided {
    let values = torch_values(lookup)?;
    match chosen(&values, "backend")? {
        Some((name, backend)) if backend == TORCH_BACKEND => Ok((
            Vec::new(),
            format!("{name} says backend:{TORCH_BACKEND} already"),
        )),
        Some((name, backend)) => Err(LeftAlone(format!("{name} chooses backend:{backend}"))),
        None => with_option(values, &format!("backend:{TORCH_BACKEND}")),
    }
}

fn expandable(lookup: &impl Fn(&str) -> Option<OsString>) -> Decided {
    let values = torch_values(lookup)?;
    let key = "expandable_segments";
    match (chosen(&values, "backend")?, chosen(&values, key)?) {
        (Some((name, backend)), _) => Err(LeftAlone(format!("{name} chooses backend:{backend}"))),
        (None, Some((name, value))) if value.eq_ignore_ascii_case("true") => {
            Ok((Vec::new(), format!("{name} says {key}:{value} already")))
        }
        (None, Some((name, value))) => Err(LeftAlone(format!("{name} chooses {key}:{value}"))),
        (None, None) => with_option(values, &format!("{key}:True")),
    }
}

/// Options of a list, separated by commas outside brackets. `None`: brackets do not match.
fn options(list: &str) -> Option<Vec<&str>> {
    let (mut depth, mut from, mut found) = (0_u32, 0, Vec::new());
    for (at, letter) in list.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                found.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push(&list[from..]);
    (depth == 0).then_some(found)
}

/// Value that an option chooses for a key. PyTorch ignores white space anywhere. An odd case is a
/// choice, too: PyTorch itself refuses it.
fn option_of(option: &str, of: &str) -> Option<String> {
    let option: String = option
        .chars()
        .filter(|letter| !letter.is_whitespace())
        .collect();
    let (key, value) = option.split_once(':')?;
    key.eq_ignore_ascii_case(of).then(|| value.to_string())
}

const JAX_ALLOCATOR: &str = "XLA_PYTHON_CLIENT_ALLOCATOR";
const JAX_PREALLOCATE: &str = "XLA_PYTHON_CLIENT_PREALLOCATE";
const JAX_ASYNC: &str = "cuda_async";

fn jax(lookup: &impl Fn(&str) -> Option<OsString>) -> Decided {
    let allocator = text(lookup, JAX_ALLOCATOR)?;
    let preallocate = text(lookup, JAX_PREALLOCATE)?;
    let mut set = Vec::new();
    let mut notes = String::new();
    if allocator.is_empty() {
        set.push((JAX_ALLOCATOR, JAX_ASYNC.to_string()));
    } else if allocator.eq_ignore_ascii_case(JAX_ASYNC) {
        notes = format!("{JAX_ALLOCATOR} is {allocator} already");
    } else {
        return Err(LeftAlone(format!("{JAX_ALLOCATOR} chooses {allocator}")));
    }
    if preallocate.is_empty() {
        set.push((JAX_PREALLOCATE, "false".to_string()));
    } else if !matches!(preallocate.as_str(), "false" | "False" | "0") {
        let comma = if notes.is_empty() { "" } else { "; " };
        notes = format!("{notes}{comma}{JAX_PREALLOCATE}={preallocate} was left as it is");
    }
    match (set.is_empty(), notes.is_empty()) {
        (true, _) => Ok((set, notes)),
        (false, true) => done(set, ""),
        (false, false) => done(set, &format!("; {notes}")),
    }
}

const TF_ALLOCATOR: &str = "TF_GPU_ALLOCATOR";
const TF_ASYNC: &str = "cuda_malloc_async";

fn tf(lookup: &impl Fn(&str) -> Option<OsString>) -> Decided {
    match text(lookup, TF_ALLOCATOR)?.as_str() {
        "" => done(vec![(TF_ALLOCATOR, TF_ASYNC.to_string())], ""),
        TF_ASYNC => Ok((Vec::new(), format!("{TF_ALLOCATOR} is {TF_ASYNC} already"))),
        other => Err(LeftAlone(format!("{TF_ALLOCATOR} chooses {other}"))),
    }
}

#[cfg(test)]
mod tests;
