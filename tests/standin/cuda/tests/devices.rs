//! Test of two devices. It runs in a process of its own, since the number of devices is read once.

extern crate cuda;

macro_rules! driver {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        unsafe extern "C" { $(safe fn $name($($arg: $type),*) -> u32;)* }
    };
}

driver! {
    cuInit(flags: u32);
    cuDeviceGetCount(count: &mut i32);
    cuDevicePrimaryCtxRetain(context: &mut u64, device: i32);
    cuCtxSetCurrent(context: u64);
    cuCtxEnablePeerAccess(context: u64, flags: u32);
    cuCtxDisablePeerAccess(context: u64);
    cuMemAlloc_v2(address: &mut u64, bytes: usize);
    cuMemFree_v2(address: u64);
    cuMemGetInfo_v2(free: &mut usize, total: &mut usize);
    cuMemcpyPeer(dst: u64, dst_context: u64, src: u64, src_context: u64, bytes: usize);
    standin_launch(stream: u64, duration: u64, count: u32, ranges: *const [u64; 3]);
}

unsafe extern "C" {
    safe fn standin_findings() -> u64;
}

fn used() -> usize {
    let (mut free, mut total) = (0, 0);
    assert_eq!(cuMemGetInfo_v2(&mut free, &mut total), 0);
    total - free
}

#[test]
fn each_device_has_its_memory_and_peers_need_leave() {
    // SAFETY: the only test of this process; no other thread reads the environment.
    unsafe { std::env::set_var("STANDIN_DEVICES", "2") };
    let (mut count, mut contexts, mut far) = (0, [0; 2], 0);
    assert_eq!((cuInit(0), cuDeviceGetCount(&mut count), count), (0, 0, 2));
    for (device, context) in contexts.iter_mut().enumerate() {
        assert_eq!(cuDevicePrimaryCtxRetain(context, device as i32), 0);
    }
    assert_eq!(cuCtxSetCurrent(contexts[1]), 0);
    assert_eq!(cuMemAlloc_v2(&mut far, 4 << 20), 0);
    assert_eq!(used(), 4 << 20);
    assert_eq!(cuCtxSetCurrent(contexts[0]), 0);
    assert_eq!(used(), 0);
    let use_far = || standin_launch(0, 0, 1, &[far, 64, 1]);

    assert_eq!(use_far(), 0);
    assert_eq!(standin_findings(), 1, "no access");
    assert_eq!(cuCtxEnablePeerAccess(contexts[1], 0), 0);
    assert_eq!(use_far(), 0);
    assert_eq!(standin_findings(), 1, "access");
    assert_eq!(cuCtxDisablePeerAccess(contexts[1]), 0);
    assert_eq!(use_far(), 0);
    assert_eq!(standin_findings(), 2, "access withdrawn");

    // Freeing waits for the owner's work only: the other device may still use the memory.
    assert_eq!(cuMemFree_v2(far), 0);
    assert_eq!(standin_findings(), 3, "freed under another device's work");

    let (mut near, mut there) = (0, 0);
    assert_eq!(cuMemAlloc_v2(&mut near, 64), 0);
    assert_eq!(cuCtxSetCurrent(contexts[1]), 0);
    assert_eq!(cuMemAlloc_v2(&mut there, 64), 0);
    assert_eq!(cuMemcpyPeer(there, contexts[1], near, contexts[0], 64), 0);
    assert_eq!(standin_findings(), 3, "copies need no access");
}
