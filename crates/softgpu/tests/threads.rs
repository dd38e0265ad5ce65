//! What a thread finds at its very end, when its variables are gone, the driver's among them: destructors and exit handlers
//! of programs call the driver then.

mod library;

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use detshare_cuda::types::{CUcontext, CUdevice_v1, CUresult};
use detshare_cuda::{Driver, entry};
use library::softgpu;
use std::cell::RefCell;
use std::sync::OnceLock;

static DRIVER: OnceLock<Driver> = OnceLock::new();
/// The code, and the context that was current.
static CODE: AtomicU32 = AtomicU32::new(u32::MAX);
static CONTEXT: AtomicUsize = AtomicUsize::new(usize::MAX);

struct AsksAtTheEnd;

impl Drop for AsksAtTheEnd {
    fn drop(&mut self) {
        let driver = DRIVER.get().expect("opened before");
        let mut context = CUcontext(core::ptr::without_provenance_mut(1));
        let code = cu!(driver, cuCtxGetCurrent(&raw mut context));
        CODE.store(code.0, Ordering::Relaxed);
        CONTEXT.store(context.0.addr(), Ordering::Relaxed);
    }
}

thread_local! {
    static LAST: RefCell<Option<AsksAtTheEnd>> = const { RefCell::new(None) };
}

#[test]
fn a_destructor_that_comes_last_finds_no_context() {
    std::thread::spawn(|| {
        // What is used first ends last.
        LAST.with_borrow_mut(|last| *last = Some(AsksAtTheEnd));
        let driver = DRIVER.get_or_init(softgpu);
        cu!(driver, cuInit(0));
        let mut context = CUcontext(core::ptr::null_mut());
        assert_eq!(cu!(driver, cuCtxCreate_v2(&raw mut context, 0, CUdevice_v1(0))), CUresult::CUDA_SUCCESS);
    })
    .join()
    .expect("the thread ends as threads do");
    assert_eq!((CODE.load(Ordering::Relaxed), CONTEXT.load(Ordering::Relaxed)), (CUresult::CUDA_SUCCESS.0, 0));
}
