//! Generation of captures and graphs.

use super::*;

impl Generator {
    pub(super) fn begin_capture(&mut self) {
        if self
            .captures
            .iter()
            .filter(|capture| !capture.is_over)
            .count()
            >= 3
        {
            return;
        }
        let Some(on) = self.some_stream() else { return };
        if self.capture_on(on).is_some() && !self.random.chance(50) {
            return;
        }
        let mode = self.random.pick(&[0, 1, 1, 2, 2]).unwrap_or(2);
        self.push(
            on.context,
            on.per_thread,
            Op::BeginCapture {
                stream: on.stream,
                mode,
            },
        );
        let is_legacy = on.stream == Stream::LEGACY || on.stream == Stream::NULL && !on.per_thread;
        if !is_legacy && self.capture_on(on).is_none() {
            self.captures.push(Capture {
                on,
                blocks: Vec::new(),
                is_over: false,
            });
        }
    }

    pub(super) fn end_capture(&mut self) {
        self.captures.retain(|capture| !capture.is_over);
        if self.captures.is_empty() {
            return;
        }
        let index = self.random.index(self.captures.len());
        let capture = self.captures[index].clone();
        let thread = capture.on.thread;
        let is_special = capture.on.stream.slot().is_none();
        if thread != self.thread && !self.random.chance(60) {
            if !self.threads[usize::from(thread)] {
                // The thread is gone: nothing can end a capture on its own stream.
                if is_special {
                    return;
                }
            } else {
                self.thread = thread;
            }
        }
        if is_special && thread != self.thread {
            return;
        }
        let empty = (0..GRAPHS).find(|slot| self.graphs[*slot].is_none());
        let Some(graph) = empty else {
            return self.destroy_graph();
        };
        self.captures.remove(index);
        let (stream, context) = (capture.on.stream, capture.on.context);
        self.push(
            context,
            capture.on.per_thread,
            Op::EndCapture {
                stream,
                graph: graph as u8,
            },
        );
        let exec = self.random.chance(850);
        if exec {
            let flags = self.random.below(2) as u8;
            self.push(
                context,
                false,
                Op::Instantiate {
                    graph: graph as u8,
                    flags,
                },
            );
        }
        let is_fresh = capture
            .blocks
            .iter()
            .all(|slot| self.blocks[usize::from(*slot)].is_some());
        self.graphs[graph] = Some(Graph {
            context,
            exec,
            blocks: capture.blocks,
            is_fresh,
        });
    }

    pub(super) fn exchange_mode(&mut self) {
        let mode = self.random.pick(&[0, 0, 1, 2, 7]).unwrap_or(0);
        self.push(AS_IS, false, Op::ExchangeMode { mode });
    }

    pub(super) fn launch(&mut self) {
        let index = self.random.index(GRAPHS);
        let Some(graph) = self.graphs[index].clone() else {
            return;
        };
        if !graph.exec || !graph.is_fresh {
            return;
        }
        let Some(on) = self.some_stream() else { return };
        if self.capture_on(on).is_some() || on.context != graph.context {
            return;
        }
        for block in &graph.blocks {
            if !self.order_before(*block, on) {
                return;
            }
        }
        self.push(
            on.context,
            on.per_thread,
            Op::Launch {
                graph: index as u8,
                stream: on.stream,
            },
        );
        for block in graph.blocks {
            self.used(block, on);
        }
    }

    pub(super) fn destroy_graph(&mut self) {
        let index = self.random.index(GRAPHS);
        let Some(graph) = &mut self.graphs[index] else {
            return;
        };
        let exec_only = graph.exec && self.random.chance(300);
        graph.exec = false;
        if !exec_only {
            self.graphs[index] = None;
        }
        self.push(
            AS_IS,
            false,
            Op::DestroyGraph {
                graph: index as u8,
                exec_only,
            },
        );
    }

    pub(super) fn trim_graphs(&mut self) {
        let device = self.some_device();
        self.push(AS_IS, false, Op::TrimGraphs { device });
    }
}
