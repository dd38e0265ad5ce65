//! Objects of the program that graphs keep.

use crate::Outcome;
use crate::gpu::{Gpu, NON_BLOCKING};
use crate::graph_parts::{NO_GRAPH, add_kernel, instantiate, new_graph};
use anyhow::{Result, ensure};
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};
use detshare_cuda::Driver;
use detshare_cuda::types::{CUuserObject, CUuserObject_flags, CUuserObjectRetain_flags};
use detshare_test_child::patience;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

tests! { user_object:
    released_object_is_destroyed_once,
    references_are_counted,
    graph_keeps_it,
    moved_reference_is_the_graphs,
    graph_can_give_it_back,
    clone_keeps_it_too,
    executable_keeps_it_until_it_has_run,
    wrong_calls_are_refused,
}

const NO_DESTRUCTOR_SYNC: u32 = CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC.0;
const MOVE: u32 = CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE.0;
/// Far more than a destructor that is due takes to come.
const LONG_S: u32 = 20;

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: made with the address of a counter that is never freed.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

fn counter() -> &'static AtomicU32 {
    /// From here they can still be found, so none counts as lost.
    static COUNTERS: Mutex<Vec<&'static AtomicU32>> = Mutex::new(Vec::new());
    let counter: &'static AtomicU32 = Box::leak(Box::default());
    COUNTERS.lock().unwrap_or_else(PoisonError::into_inner).push(counter);
    counter
}

fn create(driver: &Driver, destroyed: &'static AtomicU32, references: u32) -> Result<CUuserObject> {
    let mut object = CUuserObject(null_mut());
    let data = core::ptr::from_ref(destroyed).cast_mut().cast();
    ok!(driver, cuUserObjectCreate(&raw mut object, data, Some(count), references, NO_DESTRUCTOR_SYNC));
    ensure!(!object.0.is_null(), "no object");
    Ok(object)
}

/// The destructor comes by itself, some time after it is due.
fn is_destroyed(destroyed: &AtomicU32) -> Outcome {
    let (start, longest) = (Instant::now(), Duration::from_secs(patience(LONG_S).into()));
    while destroyed.load(Ordering::SeqCst) == 0 {
        ensure!(start.elapsed() < longest, "the destructor did not come");
        std::thread::yield_now();
    }
    ensure!(destroyed.load(Ordering::SeqCst) == 1, "the destructor came more than once");
    Ok(())
}

fn is_there(destroyed: &AtomicU32) -> Outcome {
    ensure!(destroyed.load(Ordering::SeqCst) == 0, "the destructor came too early");
    Ok(())
}

fn released_object_is_destroyed_once(driver: &Driver) -> Outcome {
    let _gpu = Gpu::new(driver)?;
    let destroyed = counter();
    let object = create(driver, destroyed, 1)?;
    is_there(destroyed)?;
    ok!(driver, cuUserObjectRelease(object, 1));
    is_destroyed(destroyed)
}

fn references_are_counted(driver: &Driver) -> Outcome {
    let _gpu = Gpu::new(driver)?;
    let destroyed = counter();
    let object = create(driver, destroyed, 2)?;
    ok!(driver, cuUserObjectRetain(object, 3));
    ok!(driver, cuUserObjectRelease(object, 4));
    is_there(destroyed)?;
    ok!(driver, cuUserObjectRelease(object, 1));
    is_destroyed(destroyed)
}

fn graph_keeps_it(driver: &Driver) -> Outcome {
    let _gpu = Gpu::new(driver)?;
    let (destroyed, graph) = (counter(), new_graph(driver)?);
    let object = create(driver, destroyed, 1)?;
    ok!(driver, cuGraphRetainUserObject(graph, object, 1, 0));
    ok!(driver, cuUserObjectRelease(object, 1));
    is_there(destroyed)?;
    ok!(driver, cuGraphDestroy(graph));
    is_destroyed(destroyed)
}

fn moved_reference_is_the_graphs(driver: &Driver) -> Outcome {
    let _gpu = Gpu::new(driver)?;
    let (destroyed, graph) = (counter(), new_graph(driver)?);
    let object = create(driver, destroyed, 1)?;
    ok!(driver, cuGraphRetainUserObject(graph, object, 1, MOVE));
    is_there(destroyed)?;
    ok!(driver, cuGraphDestroy(graph));
    is_destroyed(destroyed)
}

fn graph_can_give_it_back(driver: &Driver) -> Outcome {
    let _gpu = Gpu::new(driver)?;
    let (destroyed, graph) = (counter(), new_graph(driver)?);
    let object = create(driver, destroyed, 1)?;
    ok!(driver, cuGraphRetainUserObject(graph, object, 2, 0));
    ok!(driver, cuUserObjectRelease(object, 1));
    ok!(driver, cuGraphReleaseUserObject(graph, object, 1));
    is_there(destroyed)?;
    ok!(driver, cuGraphReleaseUserObject(graph, object, 1));
    is_destroyed(destroyed)
}

fn clone_keeps_it_too(driver: &Driver) -> Outcome {
    let _gpu = Gpu::new(driver)?;
    let (destroyed, graph) = (counter(), new_graph(driver)?);
    let object = create(driver, destroyed, 1)?;
    ok!(driver, cuGraphRetainUserObject(graph, object, 1, MOVE));
    let mut clone = NO_GRAPH;
    ok!(driver, cuGraphClone(&raw mut clone, graph));
    ok!(driver, cuGraphDestroy(graph));
    is_there(destroyed)?;
    ok!(driver, cuGraphDestroy(clone));
    is_destroyed(destroyed)
}

fn executable_keeps_it_until_it_has_run(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, stream) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?);
    let (destroyed, graph) = (counter(), new_graph(driver)?);
    let (flag, answer, value) = gate.arguments();
    add_kernel(driver, graph, &[], gate.kernel(), &[&flag, &answer, &value])?;
    let object = create(driver, destroyed, 1)?;
    ok!(driver, cuGraphRetainUserObject(graph, object, 1, MOVE));
    let executable = instantiate(driver, graph)?;
    ok!(driver, cuGraphDestroy(graph));
    ok!(driver, cuGraphLaunch(executable, stream));
    ok!(driver, cuGraphExecDestroy(executable));
    is_there(destroyed)?;
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    is_destroyed(destroyed)
}

fn wrong_calls_are_refused(driver: &Driver) -> Outcome {
    let _gpu = Gpu::new(driver)?;
    let (destroyed, graph) = (counter(), new_graph(driver)?);
    let data = core::ptr::from_ref(destroyed).cast_mut().cast();
    let mut object = CUuserObject(null_mut());
    expect!(
        driver,
        cuUserObjectCreate(&raw mut object, data, Some(count), 0, NO_DESTRUCTOR_SYNC) => CUDA_ERROR_INVALID_VALUE
    );
    expect!(driver, cuUserObjectCreate(&raw mut object, data, Some(count), 1, 0) => CUDA_ERROR_INVALID_VALUE);
    let object = create(driver, destroyed, 1)?;
    expect!(driver, cuUserObjectRetain(object, 0) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuGraphRetainUserObject(graph, object, 1, 2) => CUDA_ERROR_INVALID_VALUE);
    is_there(destroyed)
}
