// What programmers write into asm(): scopes, special registers, carries, video and permute instructions.

extern "C" __global__ void assembly(unsigned *out, unsigned a, unsigned b, unsigned long long wide) {
    unsigned low, high, lane, sm, mixed, picked;
    asm("add.cc.u32 %0, %2, %3;\n\taddc.u32 %1, 0, 0;" : "=r"(low), "=r"(high) : "r"(a), "r"(b));
    asm volatile("mov.u32 %0, %%laneid; mov.u32 %1, %%smid;" : "=r"(lane), "=r"(sm));
    asm("{ .reg .b32 t<2>; mov.b64 {t0, t1}, %1; xor.b32 %0, t0, t1; }" : "=r"(mixed) : "l"(wide));
    asm("vadd.u32.u32.u32 %0, %1.b0, %2.h1;" : "=r"(picked) : "r"(a), "r"(b));
    asm("prmt.b32 %0, %0, %1, 0x3210;" : "+r"(picked) : "r"(a));
    asm("lop3.b32 %0, %0, %1, %2, (0xf0 & 0xcc) | 0xaa;" : "+r"(picked) : "r"(a), "r"(b));
    asm("mov.u32 %0, WARP_SZ;" : "=r"(high));
    asm volatile("bar.sync 1, 64;\n\tmembar.gl; // a comment within\n\tpmevent 3;" ::: "memory");
    unsigned long long clock;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(clock));
    out[0] = low + high + lane + sm + mixed + picked + (unsigned)clock;
    out[1] = __dp4a(a, b, picked) + __byte_perm(a, b, 0x5410) + __umulhi(a, b) + __funnelshift_l(a, b, 5);
    out[2] = __vadd4(a, b) + __vabsdiffu2(a, b) + __usad(a, b, 3) + __fns(a, 0, 2);
}
