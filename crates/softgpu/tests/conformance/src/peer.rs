//! Several devices: each with its own memory and contexts, and what they may touch of each other.

use crate::Outcome;
use crate::gpu::{Gpu, NO_ADDRESS, NO_CONTEXT, NO_DEVICE, NULL_STREAM};
use anyhow::{Result, ensure};
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUcontext, CUdevice, CUdevice_P2PAttribute as Attribute, CUdevice_attribute, CUdeviceptr,
    CUmemAccess_flags as Access, CUmemAccessDesc, CUmemLocation, CUmemLocationType, CUmemoryPool, CUpointer_attribute,
    CUresult, CUuuid,
};

tests! { peer:
    devices_differ,
    each_device_has_its_memory,
    pointers_know_their_device,
    copies_between_devices,
    kernels_run_on_their_device,
    access_is_enabled_and_disabled,
    without_access_a_kernel_faults,
    peers_are_checked,
    attributes_of_a_pair,
    pools_let_peers_in,
    a_fault_stays_on_its_device,
}

/// The first two devices with their primary contexts; the first one's is current.
struct Pair<'d> {
    first: Gpu<'d>,
    second: (CUdevice, CUcontext),
}

fn pair(driver: &Driver) -> Result<Pair<'_>> {
    // The software GPU has as many devices as it is told; other drivers do not know this.
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var("DETSHARE_SOFTGPU_DEVICES", "2") };
    let first = Gpu::new(driver)?;
    let mut count = 0;
    ok!(driver, cuDeviceGetCount(&raw mut count));
    if count < 2 {
        skip!("there is one device");
    }
    let (mut device, mut context) = (NO_DEVICE, NO_CONTEXT);
    ok!(driver, cuDeviceGet(&raw mut device, 1));
    ok!(driver, cuDevicePrimaryCtxRetain(&raw mut context, device));
    ensure!(context != first.context, "both devices have one context");
    Ok(Pair { first, second: (device, context) })
}

/// Two devices that can touch each other's memory.
fn peers(driver: &Driver) -> Result<Pair<'_>> {
    let pair = pair(driver)?;
    let mut can = -1;
    ok!(driver, cuDeviceCanAccessPeer(&raw mut can, pair.first.device, pair.second.0));
    if can == 0 {
        skip!("the first two devices cannot touch each other's memory");
    }
    Ok(pair)
}

impl<'d> Pair<'d> {
    /// Does something with the second device's context.
    fn on_second<T>(&self, act: impl FnOnce(&Gpu<'d>) -> Result<T>) -> Result<T> {
        ok!(self.first, cuCtxPushCurrent_v2(self.second.1));
        let result = act(&self.first);
        let mut popped = NO_CONTEXT;
        ok!(self.first, cuCtxPopCurrent_v2(&raw mut popped));
        result
    }
}

fn devices_differ(driver: &Driver) -> Outcome {
    let pair = pair(driver)?;
    let uuid = |device| -> Result<CUuuid> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        ok!(driver, cuDeviceGetUuid_v2(&raw mut uuid, device));
        Ok(uuid)
    };
    ensure!(uuid(pair.first.device)?.bytes != uuid(pair.second.0)?.bytes, "both have one identity");
    let bus = |device| -> Result<i32> {
        let mut value = -1;
        ok!(driver, cuDeviceGetAttribute(&raw mut value, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device));
        Ok(value)
    };
    let mut name = [0; 64];
    ok!(driver, cuDeviceGetPCIBusId(name.as_mut_ptr(), 64, pair.second.0));
    let mut found = NO_DEVICE;
    ok!(driver, cuDeviceGetByPCIBusId(&raw mut found, name.as_ptr()));
    ensure!(found == pair.second.0, "the second device's place leads to {found:?}");
    note!("at {} and {} on the bus", bus(pair.first.device)?, bus(pair.second.0)?);
    let current = || -> Result<CUdevice> {
        let mut device = NO_DEVICE;
        ok!(driver, cuCtxGetDevice(&raw mut device));
        Ok(device)
    };
    ensure!(current()? == pair.first.device, "the first context's device is another");
    ensure!(pair.on_second(|_| current())? == pair.second.0, "the second context's device is another");
    Ok(())
}

fn free(driver: &Driver) -> Result<usize> {
    let mut free = 0;
    ok!(driver, cuMemGetInfo_v2(&raw mut free, null_mut()));
    Ok(free)
}

fn each_device_has_its_memory(driver: &Driver) -> Outcome {
    const BYTES: usize = 256 << 20;
    let pair = pair(driver)?;
    let (first, second) = (free(driver)?, pair.on_second(|_| free(driver))?);
    let memory = pair.on_second(|gpu| gpu.alloc(BYTES))?;
    ensure!(free(driver)? == first, "the first device pays for the second");
    ensure!(pair.on_second(|_| free(driver))? + BYTES <= second, "the second device does not pay");
    // Freed with the other device's context.
    ok!(driver, cuMemFree_v2(memory));
    ensure!(pair.on_second(|_| free(driver))? + BYTES > second, "the memory did not come back");
    Ok(())
}

fn pointers_know_their_device(driver: &Driver) -> Outcome {
    let pair = pair(driver)?;
    let memory = pair.on_second(|gpu| gpu.alloc(4_096))?;
    let mut ordinal = -1;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    ok!(driver, cuPointerGetAttribute((&raw mut ordinal).cast(), attribute, memory));
    ensure!(ordinal == pair.second.0.0, "it lies on device {ordinal}");
    let mut context = NO_CONTEXT;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT;
    ok!(driver, cuPointerGetAttribute((&raw mut context).cast(), attribute, memory));
    ensure!(context == pair.second.1, "it belongs to {context:?}");
    Ok(())
}

fn copies_between_devices(driver: &Driver) -> Outcome {
    let pair = pair(driver)?;
    let here = pair.first.upload(&[1, 2, 3, 4])?;
    let there = pair.on_second(|gpu| gpu.zeros(4))?;
    ok!(driver, cuMemcpyPeer(there, pair.second.1, here, pair.first.context, 16));
    ok!(driver, cuCtxSynchronize());
    ensure!(pair.on_second(|gpu| gpu.read(there, 4))? == [1, 2, 3, 4], "nothing came over");
    let back = pair.first.zeros(4)?;
    ok!(driver, cuMemcpyPeerAsync(back, pair.first.context, there, pair.second.1, 16, NULL_STREAM));
    ok!(driver, cuCtxSynchronize());
    ensure!(pair.first.read(back, 4)? == [1, 2, 3, 4], "nothing came back");
    ok!(driver, cuMemcpyDtoD_v2(there, back, 8));
    ok!(driver, cuMemcpy(back, there, 16));
    ok!(driver, cuCtxSynchronize());
    Ok(())
}

fn kernels_run_on_their_device(driver: &Driver) -> Outcome {
    let pair = pair(driver)?;
    let seen = pair.on_second(|gpu| {
        let [add] = gpu.kernels([c"add"])?;
        let memory = gpu.upload(&[1, 2, 3, 4])?;
        gpu.launch(add, 4, NULL_STREAM, &[&memory, &5_u32, &4_u32])?;
        gpu.synchronise()?;
        gpu.read(memory, 4)
    })?;
    ensure!(seen == [6, 7, 8, 9], "{seen:?}");
    Ok(())
}

/// Has the first device add to memory, and gives the code of the wait for it.
fn add_from_first(pair: &Pair, memory: CUdeviceptr) -> Result<CUresult> {
    let [add] = pair.first.kernels([c"add"])?;
    pair.first.launch(add, 4, NULL_STREAM, &[&memory, &10_u32, &4_u32])?;
    Ok(cu!(pair.first, cuCtxSynchronize()))
}

fn access_is_enabled_and_disabled(driver: &Driver) -> Outcome {
    let pair = peers(driver)?;
    let before = pair.on_second(|gpu| gpu.upload(&[1; 4]))?;
    ok!(driver, cuCtxEnablePeerAccess(pair.second.1, 0));
    expect!(driver, cuCtxEnablePeerAccess(pair.second.1, 0) => CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    let after = pair.on_second(|gpu| gpu.upload(&[2; 4]))?;
    for (memory, expected) in [(before, [11; 4]), (after, [12; 4])] {
        ensure!(add_from_first(&pair, memory)? == CUresult::CUDA_SUCCESS, "the first device cannot touch it");
        let seen = pair.on_second(|gpu| gpu.read(memory, 4))?;
        ensure!(seen == expected, "{seen:?}");
    }
    ok!(driver, cuCtxDisablePeerAccess(pair.second.1));
    expect!(driver, cuCtxDisablePeerAccess(pair.second.1) => CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    let code = add_from_first(&pair, after)?;
    ensure!(code == CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "after the end of access: {code:?}");
    Ok(())
}

fn without_access_a_kernel_faults(driver: &Driver) -> Outcome {
    let pair = peers(driver)?;
    let there = pair.on_second(|gpu| gpu.upload(&[1; 4]))?;
    let code = add_from_first(&pair, there)?;
    ensure!(code == CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "{code:?}");
    Ok(())
}

fn peers_are_checked(driver: &Driver) -> Outcome {
    let pair = peers(driver)?;
    expect!(driver, cuCtxEnablePeerAccess(pair.second.1, 1) => CUDA_ERROR_INVALID_VALUE);
    let code = noted!(driver, cuCtxEnablePeerAccess(pair.first.context, 0), "itself");
    ensure!(code != CUresult::CUDA_SUCCESS, "a context is its own peer");
    let mut own = NO_CONTEXT;
    ok!(driver, cuCtxCreate_v2(&raw mut own, 0, pair.first.device));
    ok!(driver, cuCtxSetCurrent(pair.first.context));
    let code = noted!(driver, cuCtxEnablePeerAccess(own, 0), "a context of the same device");
    note!("that is {}", if code == CUresult::CUDA_SUCCESS { "allowed" } else { "refused" });
    let code = noted!(driver, cuCtxEnablePeerAccess(NO_CONTEXT, 0), "no context");
    ensure!(code != CUresult::CUDA_SUCCESS, "nothing is a peer");
    let mut can = -1;
    expect!(driver, cuDeviceCanAccessPeer(&raw mut can, pair.first.device, NO_DEVICE) => CUDA_ERROR_INVALID_DEVICE);
    Ok(())
}

fn attributes_of_a_pair(driver: &Driver) -> Outcome {
    let pair = peers(driver)?;
    let get = |attribute| -> Result<i32> {
        let mut value = -1;
        ok!(driver, cuDeviceGetP2PAttribute(&raw mut value, attribute, pair.first.device, pair.second.0));
        Ok(value)
    };
    ensure!(get(Attribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)? == 1, "no access");
    note!("atomic operations: {}", get(Attribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)?);
    note!("rank: {}", get(Attribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)?);
    let mut value = -1;
    let rank = Attribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
    let (first, second) = (pair.first.device, pair.second.0);
    noted!(driver, cuDeviceGetP2PAttribute(&raw mut value, rank, first, first), "a device and itself");
    expect!(driver, cuDeviceGetP2PAttribute(&raw mut value, Attribute(99), first, second) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuDeviceGetP2PAttribute(&raw mut value, rank, first, NO_DEVICE) => CUDA_ERROR_INVALID_DEVICE);
    Ok(())
}

fn pools_let_peers_in(driver: &Driver) -> Outcome {
    let pair = peers(driver)?;
    let mut pool = CUmemoryPool(null_mut());
    ok!(driver, cuDeviceGetDefaultMemPool(&raw mut pool, pair.second.0));
    let device = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    let mut first = CUmemLocation { type_: device, id: pair.first.device.0 };
    let access = || -> Result<Access> {
        let (mut flags, mut place) = (Access::CU_MEM_ACCESS_FLAGS_PROT_NONE, first);
        ok!(driver, cuMemPoolGetAccess(&raw mut flags, pool, &raw mut place));
        Ok(flags)
    };
    ensure!(access()? == Access::CU_MEM_ACCESS_FLAGS_PROT_NONE, "access before anyone gave it");
    let memory = pair.on_second(|gpu| {
        let mut memory = NO_ADDRESS;
        ok!(gpu, cuMemAllocAsync(&raw mut memory, 4_096, NULL_STREAM));
        gpu.write(memory, &[1; 4])?;
        gpu.synchronise()?;
        Ok(memory)
    })?;
    let wanted = CUmemAccessDesc { location: first, flags: Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    ok!(driver, cuMemPoolSetAccess(pool, &raw const wanted, 1));
    ensure!(access()? == Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "the access is lost");
    ensure!(add_from_first(&pair, memory)? == CUresult::CUDA_SUCCESS, "the first device cannot touch it");
    ensure!(pair.on_second(|gpu| gpu.read(memory, 4))? == [11; 4], "the first device's sums are not there");
    first.id = 99;
    let wrong = CUmemAccessDesc { location: first, flags: Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    let code = noted!(driver, cuMemPoolSetAccess(pool, &raw const wrong, 1), "no such device");
    ensure!(code != CUresult::CUDA_SUCCESS, "a device that is not there has access");
    let own = CUmemLocation { type_: device, id: pair.second.0.0 };
    let wrong = CUmemAccessDesc { location: own, flags: Access::CU_MEM_ACCESS_FLAGS_PROT_NONE };
    let code = noted!(driver, cuMemPoolSetAccess(pool, &raw const wrong, 1), "none for its own device");
    ensure!(code != CUresult::CUDA_SUCCESS, "a pool's own device lost access");
    Ok(())
}

fn a_fault_stays_on_its_device(driver: &Driver) -> Outcome {
    let pair = peers(driver)?;
    let there = pair.on_second(|gpu| gpu.upload(&[1; 4]))?;
    let code = add_from_first(&pair, there)?;
    ensure!(code == CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "{code:?}");
    ensure!(pair.on_second(|gpu| gpu.read(there, 4))? == [1; 4], "the second device has suffered");
    Ok(())
}
