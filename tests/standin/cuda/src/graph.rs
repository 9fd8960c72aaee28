//! Graphs: nodes of work with an order between them.

use std::collections::HashSet;

use crate::abi::{EdgeData, In, Out};
use crate::codes::{INVALID_VALUE, Outcome};
use crate::state::{State, lock};
use crate::work::Work;

#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Its nodes, in the order of their addition.
    pub nodes: Vec<u64>,
    /// True if it belongs to a child node.
    pub is_child: bool,
    /// Handle of the executable graph last instantiated from it.
    pub exec: u64,
}

#[derive(Clone, Debug)]
pub struct Node {
    /// Handle of the graph that holds it.
    pub graph: u64,
    pub work: Work,
    /// Nodes that come before it.
    pub after: Vec<u64>,
    /// Node of which it is a copy, if its graph is a clone; else itself.
    pub origin: u64,
}

impl Node {
    /// Returns its `CUgraphNodeType`.
    pub fn kind(&self) -> u32 {
        match self.work {
            Work::Kernel { .. } => 0,
            Work::Copy(_) => 1,
            Work::Fill(_) => 2,
            Work::Host(_) => 3,
            Work::Child(_) => 4,
            Work::Empty => 5,
            Work::Wait(_) => 6,
            Work::Record(_) => 7,
            Work::Alloc(_) => 10,
            Work::Free(_) => 11,
        }
    }
}

/// Makes an empty graph and returns its handle.
pub fn new(state: &mut State) -> u64 {
    state.graphs.insert(Graph::default())
}

/// Adds a node and returns its handle.
pub fn add(state: &mut State, graph: u64, work: Work, after: Vec<u64>) -> Outcome<u64> {
    state.graphs.get(graph)?;
    for node in &after {
        if state.nodes.get(*node).map_err(|_| INVALID_VALUE)?.graph != graph {
            return Err(INVALID_VALUE);
        }
    }
    let work = match work {
        // The child is copied in its present state.
        Work::Child(child) => {
            let copy = clone(state, child)?;
            state.graphs.get_mut(copy)?.is_child = true;
            Work::Child(copy)
        }
        work => work,
    };
    let node = state.nodes.insert_with(|origin| Node {
        graph,
        work,
        after,
        origin,
    });
    state.graphs.get_mut(graph)?.nodes.push(node);
    Ok(node)
}

/// True if a graph allocates or frees. Such a graph is tied to its executable graph.
pub fn has_memory_nodes(state: &State, graph: u64) -> Outcome<bool> {
    let is_memory = |node: &u64| matches!(state.nodes.get(*node).map(Node::kind), Ok(10 | 11));
    Ok(state.graphs.get(graph)?.nodes.iter().any(is_memory))
}

/// Returns these nodes and all nodes that come before them.
pub fn ancestors(state: &State, nodes: &[u64]) -> HashSet<u64> {
    let mut found = HashSet::new();
    let mut open = nodes.to_vec();
    while let Some(node) = open.pop() {
        if found.insert(node)
            && let Ok(node) = state.nodes.get(node)
        {
            open.extend(&node.after);
        }
    }
    found
}

/// Copies a graph with its child graphs and returns the handle of the copy.
pub fn clone(state: &mut State, graph: u64) -> Outcome<u64> {
    let nodes = state.graphs.get(graph)?.nodes.clone();
    let copy = new(state);
    let mut copies = Vec::new();
    for origin in &nodes {
        let node = state.nodes.get(*origin)?.clone();
        let work = match node.work {
            Work::Child(child) => {
                let child = clone(state, child)?;
                state.graphs.get_mut(child)?.is_child = true;
                Work::Child(child)
            }
            work => work,
        };
        copies.push(state.nodes.insert(Node {
            graph: copy,
            work,
            after: Vec::new(),
            origin: *origin,
        }));
    }
    let place = |node: &u64| nodes.iter().position(|other| other == node);
    for (origin, copy) in nodes.iter().zip(&copies) {
        let after = state.nodes.get(*origin)?.after.clone();
        let after = after
            .iter()
            .filter_map(place)
            .map(|index| copies[index])
            .collect();
        state.nodes.get_mut(*copy)?.after = after;
    }
    state.graphs.get_mut(copy)?.nodes = copies;
    Ok(copy)
}

/// Destroys a graph with its nodes. Executable graphs made from it stay.
pub fn destroy(state: &mut State, graph: u64) -> Outcome {
    let graph = state.graphs.remove(graph)?;
    for node in graph.nodes {
        match state.nodes.remove(node)?.work {
            Work::Child(child) => destroy(state, child)?,
            Work::Alloc(bytes) => crate::graph_memory::drop_node(state, bytes.start),
            _ => {}
        }
    }
    Ok(())
}

/// Writes a list by the API's rule: only the count if `to` is null, else as many elements as fit.
fn give(list: &[u64], to: Out<u64>, count: Out<usize>) -> Outcome {
    if to.is_null() {
        return count.put(list.len());
    }
    let room = count.get()?;
    for index in 0..room {
        to.put_at(index, list.get(index).copied().unwrap_or(0));
    }
    count.put(room.min(list.len()))
}

fn edges(graph: u64, from: Out<u64>, to: Out<u64>, count: Out<usize>) -> Outcome {
    let state = lock()?;
    let (mut froms, mut tos) = (Vec::new(), Vec::new());
    for node in &state.graphs.get(graph)?.nodes {
        for before in &state.nodes.get(*node)?.after {
            froms.push(*before);
            tos.push(*node);
        }
    }
    if from.is_null() || to.is_null() {
        return count.put(froms.len());
    }
    let room = count.get()?;
    give(&froms, from, count)?;
    count.put(room)?;
    give(&tos, to, count)
}

fn dependencies(node: u64, to: Out<u64>, count: Out<usize>) -> Outcome {
    let state = lock()?;
    give(&state.nodes.get(node)?.after, to, count)
}

fn dependents(node: u64, to: Out<u64>, count: Out<usize>) -> Outcome {
    let state = lock()?;
    let graph = state.nodes.get(node)?.graph;
    let mut found = Vec::new();
    for other in &state.graphs.get(graph)?.nodes {
        if state.nodes.get(*other)?.after.contains(&node) {
            found.push(*other);
        }
    }
    give(&found, to, count)
}

fn link(graph: u64, from: In<u64>, to: In<u64>, count: usize, adds: bool) -> Outcome {
    let pairs: Vec<_> = from.list(count)?.into_iter().zip(to.list(count)?).collect();
    let mut state = lock()?;
    for (from, to) in pairs {
        let belongs = state.nodes.get(from)?.graph == graph && state.nodes.get(to)?.graph == graph;
        let is_cycle = adds && ancestors(&state, &[from]).contains(&to);
        let after = &mut state.nodes.get_mut(to)?.after;
        let exists = after.contains(&from);
        if !belongs || is_cycle || exists == adds {
            return Err(INVALID_VALUE);
        }
        match adds {
            true => after.push(from),
            false => after.retain(|node| *node != from),
        }
    }
    Ok(())
}

api! {
    cuGraphCreate 10000 => fn cuGraphCreate(graph: Out<u64>, flags: u32) {
        graph.required()?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let mut state = lock()?;
        graph.put(new(&mut state))
    }
    cuGraphDestroy 10000 => fn cuGraphDestroy(graph: u64) {
        let mut state = lock()?;
        if state.graphs.get(graph).map_err(|_| INVALID_VALUE)?.is_child {
            return Err(INVALID_VALUE);
        }
        destroy(&mut state, graph)
    }
    /// Copies a graph without memory nodes.
    cuGraphClone 10000 => fn cuGraphClone(copy: Out<u64>, graph: u64) {
        copy.required()?;
        let mut state = lock()?;
        if has_memory_nodes(&state, graph)? {
            // Memory nodes cannot be in two graphs.
            return Err(crate::codes::NOT_SUPPORTED);
        }
        copy.put(clone(&mut state, graph)?)
    }
    /// Returns the copy of a node in a copy of its graph.
    cuGraphNodeFindInClone 10000 => fn cuGraphNodeFindInClone(node: Out<u64>, original: u64, copy: u64) {
        let state = lock()?;
        let nodes = &state.graphs.get(copy)?.nodes;
        let found = nodes.iter().find(|node| {
            state.nodes.get(**node).is_ok_and(|node| node.origin == original)
        });
        node.put(*found.ok_or(INVALID_VALUE)?)
    }
    /// Returns the nodes of a graph.
    cuGraphGetNodes 10000 => fn cuGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<usize>) {
        let state = lock()?;
        give(&state.graphs.get(graph)?.nodes, nodes, count)
    }
    /// Returns the nodes without dependencies.
    cuGraphGetRootNodes 10000 => fn cuGraphGetRootNodes(graph: u64, nodes: Out<u64>, count: Out<usize>) {
        let state = lock()?;
        let mut roots = Vec::new();
        for node in &state.graphs.get(graph)?.nodes {
            if state.nodes.get(*node)?.after.is_empty() {
                roots.push(*node);
            }
        }
        give(&roots, nodes, count)
    }
    /// Returns the edges of a graph.
    cuGraphGetEdges 10000 => fn cuGraphGetEdges(graph: u64, from: Out<u64>, to: Out<u64>, count: Out<usize>) {
        edges(graph, from, to, count)
    }
    /// Returns the edges of a graph, with zeros as their data.
    cuGraphGetEdges 12030 => fn cuGraphGetEdges_v2(graph: u64, from: Out<u64>, to: Out<u64>, data: Out<EdgeData>, count: Out<usize>) {
        if !data.is_null() {
            (0..count.get()?).for_each(|index| data.put_at(index, EdgeData::default()));
        }
        edges(graph, from, to, count)
    }
    /// Returns the nodes that come before a node.
    cuGraphNodeGetDependencies 10000 => fn cuGraphNodeGetDependencies(node: u64, nodes: Out<u64>, count: Out<usize>) {
        dependencies(node, nodes, count)
    }
    /// Returns the nodes that come before a node.
    cuGraphNodeGetDependencies 12030 => fn cuGraphNodeGetDependencies_v2(node: u64, nodes: Out<u64>, data: Out<EdgeData>, count: Out<usize>) {
        if !data.is_null() {
            (0..count.get()?).for_each(|index| data.put_at(index, EdgeData::default()));
        }
        dependencies(node, nodes, count)
    }
    /// Returns the nodes that come directly after a node.
    cuGraphNodeGetDependentNodes 10000 => fn cuGraphNodeGetDependentNodes(node: u64, nodes: Out<u64>, count: Out<usize>) {
        dependents(node, nodes, count)
    }
    /// Returns the nodes that come directly after a node.
    cuGraphNodeGetDependentNodes 12030 => fn cuGraphNodeGetDependentNodes_v2(node: u64, nodes: Out<u64>, data: Out<EdgeData>, count: Out<usize>) {
        if !data.is_null() {
            (0..count.get()?).for_each(|index| data.put_at(index, EdgeData::default()));
        }
        dependents(node, nodes, count)
    }
    /// Adds edges between nodes of a graph.
    cuGraphAddDependencies 10000 => fn cuGraphAddDependencies(graph: u64, from: In<u64>, to: In<u64>, count: usize) {
        link(graph, from, to, count, true)
    }
    /// Adds edges between nodes of a graph.
    cuGraphAddDependencies 12030 => fn cuGraphAddDependencies_v2(graph: u64, from: In<u64>, to: In<u64>, _data: In<EdgeData>, count: usize) {
        link(graph, from, to, count, true)
    }
    /// Removes edges between nodes of a graph.
    cuGraphRemoveDependencies 10000 => fn cuGraphRemoveDependencies(graph: u64, from: In<u64>, to: In<u64>, count: usize) {
        link(graph, from, to, count, false)
    }
    /// Removes edges between nodes of a graph.
    cuGraphRemoveDependencies 12030 => fn cuGraphRemoveDependencies_v2(graph: u64, from: In<u64>, to: In<u64>, _data: In<EdgeData>, count: usize) {
        link(graph, from, to, count, false)
    }
}
