//! The first kernels that everyone writes.

use super::*;

#[test]
fn vectors_are_added() {
    let source = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 n)
{
    .reg .pred %p1;
    .reg .b32 %r<6>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<11>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.param.u32 %r2, [n];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r1, %r3, %r4, %r5;
    setp.ge.s32 %p1, %r1, %r2;
    @%p1 bra $L__BB0_2;
    cvta.to.global.u64 %rd4, %rd1;
    mul.wide.s32 %rd5, %r1, 4;
    add.s64 %rd6, %rd4, %rd5;
    cvta.to.global.u64 %rd7, %rd2;
    add.s64 %rd8, %rd7, %rd5;
    ld.global.f32 %f1, [%rd8];
    ld.global.f32 %f2, [%rd6];
    add.f32 %f3, %f2, %f1;
    cvta.to.global.u64 %rd9, %rd3;
    add.s64 %rd10, %rd9, %rd5;
    st.global.f32 [%rd10], %f3;
$L__BB0_2:
    ret;
}
";
    const COUNT: usize = 1000;
    let image = image(source);
    let kernel = &image.kernels["add"];
    assert_eq!(kernel.properties.parameters.len(), 4);
    assert_eq!(kernel.properties.parameter_bytes, 32);
    assert_eq!(kernel.properties.target, 90);
    let a: Vec<f32> = (0..COUNT).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..COUNT).map(|i| 0.5 * i as f32).collect();
    let mut c = vec![0f32; COUNT + 24];
    let parameters = [
        a.as_ptr().expose_provenance() as u64,
        b.as_ptr().expose_provenance() as u64,
        c.as_mut_ptr().expose_provenance() as u64,
        COUNT as u64,
    ];
    let shape = shape([8, 1, 1], [128, 1, 1], 0, &parameters);
    for index in 0..8 {
        let mut block = block(kernel, &shape, [index, 0, 0]);
        assert_eq!(block.run(SLICE), Progress::Finished);
        assert!(block.warp_instructions() >= 4 * 10);
    }
    for (i, sum) in c[..COUNT].iter().enumerate() {
        assert_eq!(*sum, 1.5 * i as f32);
    }
    assert!(c[COUNT..].iter().all(|value| *value == 0.0));
}

#[test]
fn fma_rate() {
    let source = module(
        "mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f3F7FFFF0; mov.f32 %f3, 0f38D1B717; mov.u32 %r1, 0;
LOOP:
    fma.rn.f32 %f4, %f1, %f2, %f3;
    fma.rn.f32 %f5, %f4, %f2, %f3;
    fma.rn.f32 %f6, %f5, %f2, %f3;
    fma.rn.f32 %f7, %f6, %f2, %f3;
    fma.rn.f32 %f8, %f7, %f2, %f3;
    fma.rn.f32 %f9, %f8, %f2, %f3;
    fma.rn.f32 %f10, %f9, %f2, %f3;
    fma.rn.f32 %f1, %f10, %f2, %f3;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p1, %r1, 2000;
    @%p1 bra LOOP;
    st.global.f32 [%out], %f1;",
    );
    let image = image(&source);
    let mut out = [0u64; 1];
    let shape = shape([1; 3], [256, 1, 1], 0, &[out.as_mut_ptr().expose_provenance() as u64, 0]);
    let mut block = block(&image.kernels["k"], &shape, [0; 3]);
    let start = std::time::Instant::now();
    assert_eq!(block.run(SLICE), Progress::Finished);
    let seconds = start.elapsed().as_secs_f64();
    let thread_instructions = block.warp_instructions() as f64 * 32.0;
    println!("{:.0} million thread instructions per second", thread_instructions / seconds / 1e6);
}
