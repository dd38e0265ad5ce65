//! Several threads of a program, and what a thread finds at its very end, when its variables are gone, the driver's among them:
//! destructors and exit handlers of programs call the driver then.

mod library;

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use detshare_cuda::types::{CUcontext, CUdevice_v1, CUdeviceptr_v2, CUresult, CUstream, CUstream_flags};
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

/// A stream whose work waits for the word to be 1, and then makes the next word 1.
fn waiting_stream(driver: &Driver, words: &[AtomicU32; 2]) -> CUstream {
    let mut stream = CUstream(core::ptr::null_mut());
    let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
    assert_eq!(cu!(driver, cuStreamCreate(&raw mut stream, flags)), CUresult::CUDA_SUCCESS);
    let [gate, done] = words.each_ref().map(|word| CUdeviceptr_v2(word.as_ptr().expose_provenance() as u64));
    assert_eq!(cu!(driver, cuStreamWaitValue32_v2(stream, gate, 1, 1)), CUresult::CUDA_SUCCESS);
    assert_eq!(cu!(driver, cuStreamWriteValue32_v2(stream, done, 1, 0)), CUresult::CUDA_SUCCESS);
    stream
}

/// Who waits for a context while another thread destroys a stream of it waits for what is in that stream, too.
#[test]
fn a_stream_that_is_destroyed_meanwhile_is_waited_for() {
    const ROUNDS: usize = 300;
    let driver = DRIVER.get_or_init(softgpu);
    cu!(driver, cuInit(0));
    let mut context = CUcontext(core::ptr::null_mut());
    assert_eq!(cu!(driver, cuCtxCreate_v2(&raw mut context, 0, CUdevice_v1(0))), CUresult::CUDA_SUCCESS);
    for round in 0..ROUNDS {
        let words: [[AtomicU32; 2]; 2] = Default::default();
        let words = Box::leak(Box::new(words));
        let bytes = size_of_val(words);
        assert_eq!(cu!(driver, cuMemHostRegister_v2(words.as_mut_ptr().cast(), bytes, 0)), CUresult::CUDA_SUCCESS);
        let [first, second] = words.each_ref().map(|words| waiting_stream(driver, words));
        assert_eq!(cu!(driver, cuStreamDestroy_v2(first)), CUresult::CUDA_SUCCESS);
        let context = context.0.expose_provenance();
        let waiter = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let context = CUcontext(core::ptr::with_exposed_provenance_mut(context));
                assert_eq!(cu!(driver, cuCtxSetCurrent(context)), CUresult::CUDA_SUCCESS);
                assert_eq!(cu!(driver, cuCtxSynchronize()), CUresult::CUDA_SUCCESS);
                words[1][1].load(Ordering::Acquire)
            });
            std::thread::yield_now();
            assert_eq!(cu!(driver, cuStreamDestroy_v2(second)), CUresult::CUDA_SUCCESS);
            words[0][0].store(1, Ordering::Release);
            // Who does not wait for the other stream has time to show it.
            while words[0][1].load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            (0..100).for_each(|_| std::thread::yield_now());
            words[1][0].store(1, Ordering::Release);
            waiter.join().expect("it does not panic")
        });
        assert_eq!(waiter, 1, "round {round}");
        assert_eq!(cu!(driver, cuMemHostUnregister(words.as_mut_ptr().cast())), CUresult::CUDA_SUCCESS);
    }
}
