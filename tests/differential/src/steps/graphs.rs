//! Steps on pools and graphs.

use super::*;

pub(super) fn pool(world: &mut World, step: &Step) -> bool {
    let handle = match step.op {
        Op::TrimPool { pool, .. }
        | Op::SetPool { pool, .. }
        | Op::AskPool { pool, .. }
        | Op::ChoosePool { pool, .. } => {
            let handle = world.pool(pool);
            if handle == 0 {
                return false;
            }
            handle
        }
        Op::DestroyPool { pool } | Op::PoolAccess { pool, .. } => {
            let handle = world.pools[usize::from(pool)];
            if handle == 0 {
                return false;
            }
            handle
        }
        _ => 0,
    };
    let code = match step.op {
        Op::CreatePool {
            pool,
            device,
            max_size,
        } => {
            if world.pools[usize::from(pool)] != 0 {
                return false;
            }
            let props = World::props(device, max_size);
            let mut made = 0;
            let code = call!(world, pool_create, &mut made, &props);
            if code == 0 {
                world.pools[usize::from(pool)] = made;
                world.pool_devices[usize::from(pool)] = device;
                if max_size > 0 {
                    world.capped.push(made);
                }
            }
            code
        }
        Op::DestroyPool { pool } => {
            let code = call!(world, pool_destroy, handle);
            if code == 0 {
                world.pools[usize::from(pool)] = 0;
            }
            code
        }
        Op::TrimPool { keep, .. } => call!(world, pool_trim, handle, keep as usize),
        Op::SetPool {
            attribute, value, ..
        } => {
            let mut value = value;
            world.raised |= attribute == 4 && value > 0;
            call!(world, pool_set, handle, attribute.into(), &mut value)
        }
        Op::AskPool { attribute, .. } => {
            let mut value = 0;
            let code = call!(world, pool_get, handle, attribute.into(), &mut value);
            world.seen.push(code);
            world.seen.push(if code == 0 { value } else { 0 });
            return true;
        }
        Op::ChoosePool { device, .. } => {
            let code = call!(world, choose_pool, device.into(), handle);
            let mut now = 0;
            let asked = call!(world, current_pool, &mut now, device.into());
            world.seen.extend([asked, u64::from(now == handle)]);
            code
        }
        Op::PoolAccess { device, flags, .. } => {
            let access = crate::api::Access {
                location: crate::api::Location::device(device),
                flags: flags.into(),
            };
            call!(world, pool_access, handle, &access, 1)
        }
        _ => return false,
    };
    world.seen.push(code);
    true
}

/// Ends a capture, and with it the memory that belongs to it. Addresses of graphs are not used
/// outside of them here.
fn capture_over(world: &mut World, key: u64) -> Effects {
    for block in &mut world.blocks {
        if block.kind == Kind::Graph && block.capture == key && block.state == State::Live {
            block.state = State::Empty;
        }
    }
    world.captures.remove(&key).unwrap_or_default().effects
}

pub(super) fn graph(world: &mut World, step: &Step) -> bool {
    let code = match step.op {
        Op::BeginCapture { stream, mode } => {
            let handle = world.handle(stream);
            let code = through!(
                step,
                world,
                capture_begin,
                capture_begin_ptsz,
                handle,
                mode.into()
            );
            if code == 0 {
                let key = key(world, stream);
                let context = world.current().unwrap_or(AS_IS);
                let capture = Capture {
                    mode,
                    thread: world.thread,
                    context: world.context_of(stream, context),
                    effects: Effects::new(),
                    keeps: false,
                };
                world.captures.insert(key, capture);
            }
            code
        }
        Op::EndCapture { stream, graph } => {
            let slot = usize::from(graph);
            if world.graphs[slot].graph != 0 {
                return false;
            }
            let key = key(world, stream);
            let (mut made, handle) = (0, world.handle(stream));
            let code = through!(
                step,
                world,
                capture_end,
                capture_end_ptsz,
                handle,
                &mut made
            );
            let mut status = 0;
            through!(
                step,
                world,
                is_capturing,
                is_capturing_ptsz,
                handle,
                &mut status
            );
            if status == 0 {
                let effects = capture_over(world, key);
                if code == 0 {
                    world.graphs[slot].graph = made;
                    world.graphs[slot].effects = effects;
                }
            }
            code
        }
        Op::ExchangeMode { mode } => {
            let mut mode = mode.into();
            let wanted: u32 = mode;
            let code = call!(world, exchange_mode, &mut mode);
            if code == 0 {
                world.modes[usize::from(world.thread)] = wanted as u8;
            }
            world.seen.push(mode.into());
            code
        }
        Op::Instantiate { graph, flags } => {
            let found = &world.graphs[usize::from(graph)];
            if found.graph == 0 || found.exec != 0 {
                return false;
            }
            let mut exec = 0;
            let code = call!(world, instantiate, &mut exec, found.graph, flags.into());
            if code == 0 {
                world.graphs[usize::from(graph)].exec = exec;
            }
            code
        }
        Op::Launch { graph, stream } => {
            let found = world.graphs[usize::from(graph)].clone();
            let fresh = found.effects.iter().all(|(slot, serial, _)| {
                let block = &world.blocks[usize::from(*slot)];
                block.serial == *serial && (block.state == State::Live || block.kind == Kind::Graph)
            });
            if found.exec == 0 || !fresh || is_capturing(world, step, stream) {
                return false;
            }
            let code = through!(
                step,
                world,
                launch,
                launch_ptsz,
                found.exec,
                world.handle(stream)
            );
            if code == 0 {
                for (slot, _, value) in found.effects {
                    world.blocks[usize::from(slot)].value = value;
                }
            }
            code
        }
        Op::DestroyGraph { graph, exec_only } => {
            let slot = usize::from(graph);
            let (found, exec) = (world.graphs[slot].graph, world.graphs[slot].exec);
            if found == 0 && exec == 0 {
                return false;
            }
            let mut code = 0;
            if exec != 0 {
                code = call!(world, exec_destroy, exec);
                world.graphs[slot].exec = 0;
            }
            if !exec_only && found != 0 {
                let destroyed = call!(world, graph_destroy, found);
                world.seen.push(destroyed);
                world.graphs[slot] = Default::default();
            }
            code
        }
        Op::TrimGraphs { device } => call!(world, graph_trim, device.into()),
        _ => return false,
    };
    world.seen.push(code);
    true
}
