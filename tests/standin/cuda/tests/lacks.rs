//! Test of devices without virtual memory management and pools. It runs in a process of its own,
//! since the environment is read once.

extern crate cuda;

macro_rules! driver {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        unsafe extern "C" { $(safe fn $name($($arg: $type),*) -> u32;)* }
    };
}

driver! {
    cuInit(flags: u32);
    cuCtxCreate_v2(context: &mut u64, flags: u32, device: i32);
    cuDeviceGetAttribute(value: &mut i32, attribute: u32, device: i32);
    cuGetProcAddress_v2(name: *const i8, address: &mut usize, version: i32, flags: u64, status: &mut u32);
    cuMemAlloc_v2(address: &mut u64, bytes: usize);
    cuMemAddressReserve(address: &mut u64, size: usize, alignment: usize, wished: u64, flags: u64);
    cuMemCreate(handle: &mut u64, size: usize, prop: *const u64, flags: u64);
    cuMemUnmap(address: u64, size: usize);
    cuMemAllocAsync(address: &mut u64, bytes: usize, stream: u64);
    cuMemFreeAsync_ptsz(address: u64, stream: u64);
    cuDeviceGetDefaultMemPool(pool: &mut u64, device: i32);
    cuGraphCreate(graph: &mut u64, flags: u32);
    cuGraphAddMemAllocNode(node: &mut u64, graph: u64, after: *const u64, count: usize, params: &mut [u64; 15]);
}

const NOT_SUPPORTED: u32 = 801;

#[test]
fn what_devices_lack_they_say_and_refuse() {
    // SAFETY: the only test of this process; no other thread reads the environment.
    unsafe { std::env::set_var("STANDIN_LACKS", "vmm,pools") };
    let (mut context, mut made, mut address) = (0, 0, 0);
    assert_eq!((cuInit(0), cuCtxCreate_v2(&mut context, 0, 0)), (0, 0));
    for (attribute, expected) in [(102, 0), (103, 0), (115, 0), (119, 0), (41, 1)] {
        let mut value = -1;
        assert_eq!(cuDeviceGetAttribute(&mut value, attribute, 0), 0);
        assert_eq!(value, expected, "attribute {attribute}");
    }
    let page = 2 << 20;
    let prop = [1, 1u64, 0, 0];
    let refused = [
        cuMemAddressReserve(&mut made, page, 0, 0, 0),
        cuMemCreate(&mut made, page, prop.as_ptr(), 0),
        cuMemUnmap(0, page),
        cuDeviceGetDefaultMemPool(&mut made, 0),
        cuMemAllocAsync(&mut made, 512, 0),
        cuMemFreeAsync_ptsz(0, 0),
    ];
    assert_eq!(refused, [NOT_SUPPORTED; 6]);
    // The functions exist, and older functions work.
    let mut status = 9;
    let name = c"cuMemCreate".as_ptr();
    assert_eq!(
        cuGetProcAddress_v2(name, &mut address, 13000, 0, &mut status),
        0
    );
    assert_eq!((address, status), (cuMemCreate as *const () as usize, 0));
    assert_eq!(cuMemAlloc_v2(&mut made, 512), 0);
    // Allocation nodes need pools as well: 512 bytes on device 0.
    let (mut graph, mut params) = (0, [0; 15]);
    (params[0], params[1], params[13]) = (1, 1, 512);
    assert_eq!(cuGraphCreate(&mut graph, 0), 0);
    let node = cuGraphAddMemAllocNode(&mut made, graph, std::ptr::null(), 0, &mut params);
    assert_eq!(node, NOT_SUPPORTED);
}
