//! Trace files of the shim.

use std::hash::Hasher;
use std::path::Path;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHasher};

use super::code::Code;
use super::nodes::Nodes;
use super::way::{Call, Step, Way};
use super::{Coverage, Frame, Names, Recording, ordered_on};
use crate::symbols::{Kind, Options, Symbol, Symbolizer};
use gpushim_trace::{Layer, LiveBlock, Record, StackNode, Timeline, Trace};

/// Nodes of a stack beyond which the outer ones are left out. Writers keep 512 frames and 64
/// ranges. In a hostile file a chain can have thousands, for each of a hundred thousand stacks.
const NODES: usize = 1024;

impl Recording for Trace {
    fn path(&self) -> &Path {
        Trace::path(self)
    }

    fn format(&self) -> String {
        let header = self.header();
        format!("gpushim trace {}.{}", header.major, header.minor)
    }

    fn wall_ns(&self) -> u64 {
        self.header().wall_ns
    }

    fn facts(&self) -> Vec<(String, String)> {
        Trace::facts(self)
    }

    fn problems(&self) -> Vec<String> {
        let trace = self;
        let mut problems = Trace::problems(trace).to_vec();
        let cut = trace.cut();
        for (count, what) in [
            (trace.facts_cut(), "facts"),
            (cut.strings, "names"),
            (cut.stacks, "stacks, or ranges of them,"),
            (cut.modules, "libraries"),
            (cut.jit, "names of generated code"),
            (cut.sites, "frames of interpreters"),
        ] {
            if count > 0 {
                problems.push(format!("{count} {what} did not fit into the file"));
            }
        }
        if let Some(live) = Trace::live(trace) {
            if live.missed > 0 {
                problems.push(format!(
                    "{} blocks found no place in the live table of {}",
                    live.missed, live.capacity
                ));
            }
            problems.extend(live.problems);
        }
        problems
    }

    fn coverage(&self) -> Coverage {
        let trace = self;
        Coverage {
            recorded: trace.recorded(),
            readable: trace.readable(),
            lost: trace.lost(),
            torn: trace.torn(),
            wrapped: trace.has_wrapped(),
            damaged: trace.is_damaged(),
        }
    }

    fn events(&self) -> Box<dyn Iterator<Item = Record> + Send + '_> {
        Box::new(Trace::events(self))
    }

    fn live(&self) -> Option<Vec<LiveBlock>> {
        Trace::live(self).map(|table| table.blocks)
    }

    fn live_bytes(&self, layer: Layer, device: u8) -> Option<u64> {
        let sums = self.totals().filter(|_| self.live_missed() > 0)?;
        Some(sums.device(layer, device).live_bytes())
    }

    fn timeline(&self) -> Timeline {
        Trace::timeline(self)
    }

    fn text(&self, id: u64) -> Option<String> {
        self.string(u32::try_from(id).ok()?)
    }

    fn stream(&self, record: &Record) -> Option<u64> {
        ordered_on(&record.event).or_else(|| Trace::stream(self, record.event.stream))
    }

    fn open_ranges(&self, stack: u32) -> Vec<String> {
        let name = |node| match node {
            StackNode::Range { name, .. } => self.string(name),
            StackNode::Frame(_) | StackNode::Site(_) => None,
        };
        self.stack(stack).take(NODES).filter_map(name).collect()
    }

    fn frames(&self, stack: u32) -> u64 {
        let mut hasher = FxHasher::default();
        let mut frames = 0_u32;
        for node in self.stack(stack).take(NODES) {
            let content = match node {
                StackNode::Frame(address) => address,
                // Real addresses are lower.
                StackNode::Site(site) => u64::MAX - u64::from(site),
                StackNode::Range { .. } => continue,
            };
            frames += 1;
            hasher.write_u64(content);
        }
        // The hash must not be 0.
        if frames == 0 { 0 } else { hasher.finish() | 1 }
    }

    fn way(&self, stack: u32) -> Way {
        let step = |node| match node {
            // The beginnings of functions are unknown without their symbols.
            StackNode::Frame(site) => Some(Step::Native(Call { function: 0, site })),
            StackNode::Site(id) => self.site(id).map(|site| {
                Step::Line(Call {
                    function: u64::from(site.name) << 32 | u64::from(site.file),
                    site: site.line.into(),
                })
            }),
            StackNode::Range { .. } => None,
        };
        Way::of(self.stack(stack).take(NODES).filter_map(step))
    }

    fn function(&self, number: u64) -> Option<[String; 2]> {
        Some([
            self.string((number >> 32) as u32)?,
            self.string(number as u32)?,
        ])
    }

    fn names(&self) -> Box<dyn Names + '_> {
        names_with(self, Options::default())
    }
}

/// Returns the names of a trace like [`Recording::names`], with other sources of symbols.
pub fn names_with(trace: &Trace, options: Options) -> Box<dyn Names + '_> {
    let symbolizer = Code::of(trace).symbolizer(Trace::path(trace), options);
    Box::new(OurNames {
        trace,
        symbolizer,
        sites: FxHashMap::default(),
        nodes: Nodes::default(),
    })
}

/// Stacks by name. The symbolizer remembers each address; there may be far more stacks.
struct OurNames<'a> {
    trace: &'a Trace,
    symbolizer: Symbolizer,
    /// The functions of interpreters that were looked up, by the ids of their sites.
    sites: FxHashMap<u32, Rc<[Symbol]>>,
    nodes: Nodes,
}

/// Returns the function of an interpreter at a site.
fn at_site(trace: &Trace, id: u32) -> Symbol {
    let site = trace.site(id).unwrap_or_default();
    let name = trace.string(site.name);
    Symbol {
        // If it is missing, the text did not fit into the file, or the file is damaged.
        kind: name.as_ref().map_or(Kind::Unknown, |_| Kind::Python),
        function: name.unwrap_or_else(|| "a function without a name".to_string()),
        file: trace.string(site.file),
        line: Some(site.line).filter(|line| *line > 0),
        ..Symbol::default()
    }
}

impl Names for OurNames<'_> {
    fn stack(&mut self, id: u32) -> Rc<[Frame]> {
        let (symbolizer, sites, trace) = (&mut self.symbolizer, &mut self.sites, self.trace);
        let most = self.nodes.most(id);
        let mut frames = 0;
        let mut nodes = trace.stack(id).take(NODES);
        let has_sites = nodes.any(|node| matches!(node, StackNode::Site(_)));
        let of_node = |node| match node {
            StackNode::Frame(_) | StackNode::Site(_) if frames >= most => None,
            StackNode::Site(site) => {
                frames += 1;
                let known = sites.entry(site);
                let symbols = known.or_insert_with(|| Rc::new([at_site(trace, site)]));
                Some(Frame::Call(Rc::clone(symbols)))
            }
            StackNode::Frame(address) => {
                let symbols = symbolizer.resolve(address);
                // Functions of Python from a perf map are left out: the sites have the same ones,
                // with their lines.
                let is_told = has_sites && symbols.iter().any(|one| one.kind == Kind::Python);
                frames += usize::from(!is_told);
                (!is_told).then_some(Frame::Call(symbols))
            }
            StackNode::Range { name, .. } => {
                let name = trace.string(name).unwrap_or_default();
                Some(Frame::Range(name))
            }
        };
        let stack = trace.stack(id).take(NODES).filter_map(of_node).collect();
        self.nodes.took(id, frames);
        stack
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = self.symbolizer.problems().to_vec();
        problems.extend(self.nodes.problem());
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CallSite;
    use gpushim_trace::{SITE, Site, Writer, WriterOptions};

    #[test]
    fn frames_of_an_interpreter_have_file_and_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.trace");
        let writer = Writer::create(&path, &WriterOptions::default()).expect("a trace");
        let site = |key: u64, name: &str, file: &str, line| {
            let site = Site {
                name: writer.intern(name),
                file: writer.intern(file),
                line,
            };
            let id = writer.site(&[key, 0, 0, 0], || Some(site)).expect("room");
            SITE | u64::from(id)
        };
        let packages = "/opt/lib/python3.12/site-packages/torch/nn/modules";
        let frames = [
            site(
                1,
                "Module._call_impl",
                &format!("{packages}/module.py"),
                1762,
            ),
            // Python's own entry for the function below, in its perf map.
            0x7f00_0000_1008,
            site(2, "Model.forward", "/home/me/train.py", 41),
            site(3, "<module>", "/home/me/train.py", 0),
        ];
        writer.jit(
            0x7f00_0000_1000,
            16,
            writer.intern("py::Model.forward:/home/me/train.py"),
        );
        let stack = writer.stack(0, &frames);
        let trace = Trace::open(&path).expect("the trace");
        assert_eq!(trace.return_addresses().count(), 1);
        let mut names = Recording::names(&trace);
        let shown: Vec<String> = names
            .stack(stack)
            .iter()
            .flat_map(|frame| match frame {
                Frame::Call(symbols) => crate::symbols::lines(symbols),
                Frame::Range(name) => vec![name.clone()],
            })
            .collect();
        assert_eq!(
            shown,
            [
                "Module._call_impl  module.py:1762",
                "Model.forward  train.py:41",
                "<module>  train.py"
            ]
        );
        let call_site = CallSite::of(&mut *names, stack);
        assert_eq!(call_site.in_a_sentence(), "`Model.forward train.py:41`");
        assert_ne!(Recording::frames(&trace, stack), 0);
        // A perf map alone gives functions without lines.
        let other = writer.stack(0, &frames[1..2]);
        let trace = Trace::open(&path).expect("the trace");
        let symbols = Recording::names(&trace).stack(other);
        let [Frame::Call(symbols)] = &symbols[..] else {
            panic!("one call: {symbols:?}");
        };
        assert_eq!(symbols[0].function, "Model.forward");
    }

    #[test]
    fn a_site_that_is_not_there_has_no_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.trace");
        let writer = Writer::create(&path, &WriterOptions::default()).expect("a trace");
        let stack = writer.stack(0, &[SITE | 99]);
        let trace = Trace::open(&path).expect("the trace");
        let symbols = Recording::names(&trace).stack(stack);
        let [Frame::Call(symbols)] = &symbols[..] else {
            panic!("one call: {symbols:?}");
        };
        assert_eq!(symbols[0].kind, Kind::Unknown);
    }
}
