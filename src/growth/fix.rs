//! Changes to the program, for kept blocks of a known pattern.
//!
//! The pattern follows from the calls that made the blocks, with the sizes; never from sizes alone.
//! A wrong fix is worse than none.

use gpushim_trace::Kept;

use super::blocks::Blocks;
use crate::recording::Owner;

/// A way to keep blocks, and its fix.
struct Pattern {
    /// Returns true if blocks are kept in this way.
    fits: fn(&Blocks) -> bool,
    /// The change, in a sentence.
    fix: &'static str,
    /// True if it says who keeps the blocks, from who made them.
    is_guess: bool,
}

/// Bytes that a kept loss has at most: PyTorch rounds a scalar up to 512.
const LOSS_BYTES: u64 = 4096;

/// Number of places at which a kept graph has blocks, one for each of its layers.
const WHOLE_GRAPH: usize = 3;

/// All patterns; the first one that fits counts.
const PATTERNS: [Pattern; 8] = [
    // The optimizer's own functions make the state of each parameter once, in its first step.
    Pattern {
        fits: |blocks| {
            blocks.calls(&["_init_group", "init_state", "_init_state"])
                || blocks.is_step() && !blocks.is_graph()
        },
        fix: "the optimizer makes its state anew: create it once, before the loop, and give it the same parameters",
        is_guess: true,
    },
    // A capture takes its memory from a pool of its own, which lives as long as the graph.
    Pattern {
        fits: |blocks| {
            blocks.calls(&[
                "capture_begin",
                "make_graphed_callables",
                "cudagraphify",
                "cudagraphify_impl",
            ]) || blocks.calls_in("__enter__", "/torch/cuda/graphs.py")
        },
        fix: "a CUDA graph is captured again and again, each into a pool of its own: capture once for each shape and replay, \
               or share a pool (`torch.cuda.graph(graph, pool=...)`) and delete graphs that are no longer used",
        is_guess: true,
    },
    // Keys and values of a cache that is never reset.
    Pattern {
        fits: |blocks| {
            // Other blocks that are kept belong to many caches, each filled from its start.
            blocks.are_anew()
                && (blocks.in_file(&["cache_utils.py"])
                    || blocks.names(&["kv_cache", "kvcache", "past_key_value", "DynamicCache"]))
        },
        fix: "a cache of keys and values goes on growing: begin a new one (`past_key_values=None`) with each sequence, and bound \
               its length",
        is_guess: false,
    },
    // Hooks run inside the call of a module, or in a backward pass, and are functions of the user.
    Pattern {
        fits: |blocks| blocks.user_names(&["hook"]),
        fix: "a hook keeps what it is given: keep `output.detach().cpu()` or a figure of it, and remove the hook with \
               `handle.remove()`",
        is_guess: false,
    },
    Pattern {
        fits: |blocks| {
            blocks.user_names(&["<lambda>", "<locals>", "closure"]) && !blocks.is_forward()
        },
        fix: "a closure refers to tensors and is kept: delete it, or give it what it needs as `tensor.detach()`",
        is_guess: false,
    },
    // Blocks that autograd saved in a backward pass for a further backward pass.
    Pattern {
        fits: |blocks| blocks.is_backward(),
        fix: "the graph outlives the backward pass: leave out `retain_graph=True` and `create_graph=True`, or delete the loss and \
               the gradients that refer to it",
        is_guess: true,
    },
    // One scalar of each iteration, and no other part of its graph.
    Pattern {
        fits: |blocks| {
            blocks.largest() <= LOSS_BYTES && (blocks.is_loss() || blocks.is_reduction())
        },
        fix: "losses are kept as tensors, with their graphs: keep `loss.item()` or `loss.detach()`",
        is_guess: false,
    },
    // The user's own module makes it in its forward pass, by itself and not by a layer that it
    // calls.
    Pattern {
        fits: |blocks| blocks.is_forward() && blocks.is_copy() && !blocks.is_of_function(),
        fix: "a module keeps copies of its inputs or outputs: keep none, or only the newest, as `x.detach()`",
        is_guess: false,
    },
];

/// The change for a graph that outlives its forward pass.
const KEPT_GRAPH: &str = "what the forward pass made is kept, with its graph: keep `loss.item()` and not the loss, \
     `output.detach()` and not the output, and run evaluations under `torch.no_grad()`";

/// Finds the change for kept blocks, by place; `None` unless one pattern fits all. An owner by name
/// decides before a guess.
pub fn fix(all: &[Blocks]) -> Option<String> {
    let graph = common(all, Kept::Graph);
    // A graph of a graph has a fix of its own.
    if let Some(owner) = graph.filter(|_| !all.iter().all(Blocks::is_backward)) {
        return Some(format!(
            "{} keeps results with their graph: keep `loss.item()` and `output.detach()` in it, or evaluate under \
             `torch.no_grad()`",
            owner.place()
        ));
    }
    let named = element(all);
    let fits = |pattern: &&Pattern| {
        let all_fit = all.iter().all(|blocks| (pattern.fits)(blocks));
        all_fit && !(pattern.is_guess && named.is_some())
    };
    let first = PATTERNS.iter().find(fits).filter(|_| !all.is_empty());
    match (first, named) {
        (Some(pattern), _) => Some(pattern.fix.to_string()),
        (None, Some(owner)) => Some(let_go(&owner.path)),
        (None, None) => is_whole_graph(all).then(|| KEPT_GRAPH.to_string()),
    }
}

/// Returns the owner that keeps all blocks in this way.
fn common(all: &[Blocks], kept: Kept) -> Option<&Owner> {
    let first = all.first()?.owner(kept)?;
    let is_same = |blocks: &Blocks| blocks.owner(kept) == Some(first);
    all.iter().all(is_same).then_some(first)
}

/// Returns the owner whose path has an element, of the program's own names. `None` if it is not
/// known to keep at least half of all blocks.
fn element(all: &[Blocks]) -> Option<&Owner> {
    let mut owners = all.iter().filter_map(|blocks| blocks.owner(Kept::Named));
    let owner = owners.find(|owner| owner.path.contains("[*]"))?;
    let its = all
        .iter()
        .filter(|blocks| blocks.owner(Kept::Named) == Some(owner));
    let kept: u64 = its.map(Blocks::owned_number).sum();
    let number: u64 = all.iter().map(Blocks::number).sum();
    (kept >= number / 2).then_some(owner)
}

fn let_go(path: &str) -> String {
    format!(
        "let go of `{path}` after each pass: keep none, only the newest, or a number (`.item()`)"
    )
}

/// Returns true if blocks belong to several layers of a forward pass, and to its inputs. Blocks of
/// one layer may be an output, which is kept without a graph.
fn is_whole_graph(all: &[Blocks]) -> bool {
    let is_layer = |blocks: &&Blocks| blocks.is_forward() || blocks.is_loss();
    let is_part = |blocks: &Blocks| {
        // Blocks that only some passes leave are kept by an error or a condition.
        let may_have_graph = !blocks.is_of_function() && !blocks.calls(&["decorate_context"]);
        !blocks.are_rare() && may_have_graph && (is_layer(&blocks) || blocks.is_own())
    };
    let layers = || all.iter().filter(is_layer);
    let most = layers().map(Blocks::number).max().unwrap_or(0);
    let least = all.iter().map(Blocks::number).min().unwrap_or(0);
    // Several layers may be called on one line.
    let are_several = layers().count() >= WHOLE_GRAPH || most > 0 && most / 2 >= least;
    are_several && all.iter().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growth::blocks::tests::{by_operator, of};
    use crate::recording::Owned;

    const NN: &str = "/usr/lib/python3/site-packages/torch/nn/";
    const MAIN: (&str, &str) = ("main", "/home/me/train.py");

    fn module() -> (&'static str, String) {
        ("Module._call_impl", format!("{NN}modules/module.py"))
    }

    /// The fix of blocks of this size that these calls made, the innermost first.
    fn fixed(size: u64, calls: &[(&str, &str)]) -> String {
        let mut calls = calls.to_vec();
        calls.push(MAIN);
        let blocks = of(size, &calls);
        fix(&[blocks.clone(), blocks.clone(), blocks]).unwrap_or_default()
    }

    #[test]
    fn each_pattern_has_its_cure() {
        let module = module();
        let module = (module.0, module.1.as_str());
        let adam = "/usr/lib/python3/site-packages/torch/optim/adam.py";
        let tensor = "/usr/lib/python3/site-packages/torch/_tensor.py";
        let functional = format!("{NN}functional.py");
        let mine = "/home/me/train.py";
        for (word, size, calls) in [
            (
                "create it once",
                1 << 20,
                vec![("Adam._init_group", adam), ("Adam.step", adam)],
            ),
            ("a hook keeps", 1 << 20, vec![("save_hook", mine), module]),
            ("a closure", 1 << 20, vec![("make.<locals>.later", mine)]),
            ("retain_graph", 1 << 20, vec![("Tensor.backward", tensor)]),
            (
                "loss.item()`",
                512,
                vec![("cross_entropy", functional.as_str())],
            ),
            (
                "torch.no_grad()",
                1 << 20,
                vec![
                    ("Linear.forward", &format!("{NN}modules/linear.py")),
                    module,
                    ("Net.forward", mine),
                    module,
                ],
            ),
            (
                "captured again",
                1 << 20,
                vec![(
                    "graph.__enter__",
                    "/usr/lib/python3/site-packages/torch/cuda/graphs.py",
                )],
            ),
        ] {
            let told = fixed(size, &calls);
            assert!(told.contains(word), "{word}: {told:?}");
        }
    }

    /// A new tensor of a module's own function may be a copy or a result: only the operator shows
    /// which.
    #[test]
    fn a_module_keeps_copies_only_where_an_operator_copied() {
        let (name, file) = module();
        let calls = [("Leaky.forward", "/home/me/train.py"), (name, &file), MAIN];
        let told = |blocks: Blocks| fix(&[blocks]).unwrap_or_default();
        let copied = by_operator(of(1 << 20, &calls), "at::_ops::clone::call");
        assert!(told(copied).contains("keep none"));
        assert_eq!(told(of(1 << 20, &calls)), "");
        let made = by_operator(of(1 << 20, &calls), "at::_ops::exp::call");
        assert_eq!(told(made), "");
    }

    /// Keys and values that are joined repeatedly belong to one cache; kept ones belong to many.
    #[test]
    fn a_cache_goes_on_growing_only_where_it_is_made_anew() {
        let file = "/usr/lib/python3/site-packages/transformers/cache_utils.py";
        let blocks = || of(1 << 20, &[("DynamicCache.update", file), MAIN]);
        let told = fix(&[blocks().anew(true)]).unwrap();
        assert!(told.contains("a cache of keys"), "{told}");
        assert_eq!(fix(&[blocks()]), None);
    }

    /// Weights, gradients and state together are a new model, not a new optimizer.
    #[test]
    fn a_fix_fits_all_that_is_kept() {
        let adam = "/usr/lib/python3/site-packages/torch/optim/adam.py";
        let state = || {
            of(
                1 << 20,
                &[("Adam._init_group", adam), ("Adam.step", adam), MAIN],
            )
        };
        let weights = of(1 << 20, &[("build", "/home/me/train.py"), MAIN]);
        assert!(fix(&[state(), state()]).is_some());
        assert_eq!(fix(&[state(), weights]), None);
    }

    /// One block of a forward pass may be kept in many ways; a graph keeps those of several layers.
    #[test]
    fn a_graph_is_kept_where_several_layers_are() {
        let (call, file) = module();
        let functional = format!("{NN}functional.py");
        let layer = || of(1 << 20, &[("relu", &functional), (call, &file), MAIN]);
        assert!(fix(&[layer(), layer(), layer()]).is_some());
        assert_eq!(fix(&[layer(), layer()]), None);
        let custom = "/usr/lib/python3/site-packages/torch/autograd/function.py";
        let of_function = || {
            of(
                1 << 20,
                &[
                    ("Gate.forward", "/home/me/train.py"),
                    ("Function.apply", custom),
                    MAIN,
                ],
            )
        };
        assert_eq!(fix(&[of_function(), of_function(), of_function()]), None);
    }

    /// An evaluation's input, its two layers on one line, and its loss.
    #[test]
    fn layers_that_one_line_calls_are_a_graph_beside_what_comes_once() {
        let (call, file) = module();
        let of_line = |number| {
            let calls = [("Net.forward", "/home/me/train.py"), (call, &file), MAIN];
            of(1 << 20, &calls).times(number)
        };
        let batch = || of(1 << 20, &[MAIN]).times(30);
        let told = fix(&[of_line(60), batch()]).unwrap_or_default();
        assert!(told.contains("loss.item()"), "{told}");
        // Outputs and labels of the batches.
        assert_eq!(fix(&[of_line(30), batch()]), None);
        let failed = [of_line(60), batch()].map(|blocks| blocks.rare(true));
        assert_eq!(fix(&failed), None);
        // `torch.no_grad` as a decorator.
        let context = "/usr/lib/python3/site-packages/torch/utils/_contextlib.py";
        let calls = [
            ("Net.forward", "/home/me/train.py"),
            (call, &file),
            ("decorate_context", context),
            MAIN,
        ];
        assert_eq!(fix(&[of(1 << 20, &calls).times(60), batch()]), None);
    }

    #[test]
    fn what_an_operator_made_is_no_copy() {
        let module = module();
        let calls = [
            ("Net.forward", "/home/me/train.py"),
            (module.0, &module.1),
            MAIN,
        ];
        for (operator, word) in [
            ("at::_ops::clone::call", "keep none"),
            ("at::_ops::relu::call", "torch.no_grad()"),
        ] {
            let blocks = by_operator(of(1 << 20, &calls), operator);
            let told = fix(&[blocks.clone(), blocks.clone(), blocks]).unwrap();
            assert!(told.contains(word), "{operator}: {told}");
        }
    }

    fn owner(kept: Kept, path: &str) -> Option<Owned> {
        let owner = Owner {
            kept,
            path: path.to_string(),
            root: "train train.py".to_string(),
        };
        let (blocks, bytes) = (1, 1 << 20);
        Some(Owned {
            owner,
            blocks,
            bytes,
        })
    }

    /// A step of Lightning runs inside the optimizer's step, as a closure.
    #[test]
    fn an_owner_by_name_decides_before_a_guess() {
        let adam = "/usr/lib/python3/site-packages/torch/optim/adam.py";
        let step = of(
            1 << 20,
            &[
                ("Net.training_step", "/home/me/train.py"),
                ("Adam.step", adam),
                MAIN,
            ],
        );
        assert_eq!(fix(std::slice::from_ref(&step)), None);
        let kept = step.clone().owned(owner(Kept::Named, "kept[*]"));
        let told = fix(std::slice::from_ref(&kept)).unwrap_or_default();
        assert!(
            told.starts_with("let go of `kept[*]` after each pass"),
            "{told}"
        );
        assert_eq!(fix(&[kept, step.clone(), step.clone(), step]), None);
        let state = of(
            1 << 20,
            &[("Adam._init_group", adam), ("Adam.step", adam), MAIN],
        );
        let told = fix(&[state
            .clone()
            .owned(owner(Kept::OptimizerState, "state of w"))]);
        assert!(told.unwrap_or_default().contains("create it once"));
        let told = fix(&[state.owned(owner(Kept::Named, "kept[*]"))]).unwrap_or_default();
        assert!(told.contains("let go of `kept[*]`"), "{told}");
    }

    /// Two layers on one line, which no pattern takes for a graph.
    #[test]
    fn an_owner_of_a_graph_is_named_in_the_fix() {
        let (call, file) = module();
        let layer = of(
            1 << 20,
            &[("Model.forward", "/home/me/train.py"), (call, &file), MAIN],
        );
        assert_eq!(fix(std::slice::from_ref(&layer)), None);
        let told = fix(&[layer.clone().owned(owner(Kept::Graph, "history[*]"))]);
        let told = told.unwrap_or_default();
        assert!(
            told.starts_with("`history[*]` of `train train.py`"),
            "{told}"
        );
        assert!(told.contains("`loss.item()`") && told.contains("`torch.no_grad()`"));
        assert_eq!(fix(&[layer.owned(owner(Kept::Graph, ""))]), None);
    }

    /// 20 of 29 blocks by one list; the rest by another one, or not known to be kept.
    #[test]
    fn a_list_of_at_least_half_of_the_blocks_is_let_go_of() {
        let made = |number| of(1 << 20, &[("load", "/home/me/data.py"), MAIN]).times(number);
        let owned = |kept, path: &str, blocks| {
            let one = owner(kept, path);
            one.map(|one| Owned { blocks, ..one })
        };
        let seen = |blocks| owned(Kept::Named, "model.seen[*]", blocks);
        for blocks in [
            vec![made(29).owned(seen(20))],
            vec![made(20).owned(seen(20)), made(9)],
            vec![
                made(20).owned(seen(20)),
                made(9).owned(owned(Kept::Named, "rest[*]", 9)),
            ],
        ] {
            let told = fix(&blocks).unwrap_or_default();
            assert!(told.starts_with("let go of `model.seen[*]` "), "{told}");
        }
        for none in [
            seen(13),
            owned(Kept::Named, "model.last", 29),
            owned(Kept::Parameter, "layers[*].weight", 29),
        ] {
            assert_eq!(fix(&[made(29).owned(none.clone())]), None, "{none:?}");
        }
    }

    #[test]
    fn what_fits_no_pattern_has_none() {
        assert_eq!(fixed(1 << 20, &[("load", "/home/me/data.py")]), "");
        assert_eq!(fix(&[of(1 << 20, &[])]), None);
        assert_eq!(fix(&[]), None);
    }
}
