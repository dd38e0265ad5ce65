//! The kernels that programs launch, as PTX text, with basic instructions only.

use core::ffi::CStr;

/// Each runs in one thread. The chain of dependent values in `SPIN` takes its time whatever a compiler makes of it,
/// because the result of the kernel depends on it in a case that does not occur.
pub(crate) const MODULE: &CStr = c"
.version 7.0
.target sm_70
.address_size 64

.visible .entry step(.param .u64 cell, .param .u32 add, .param .u32 spin)
{
    .reg .pred %more, %impossible, %none;
    .reg .b32 %x, %left, %add, %value;
    .reg .b64 %cell;
    ld.param.u64 %cell, [cell];
    ld.param.u32 %add, [add];
    ld.param.u32 %left, [spin];
    mov.u32 %x, %tid.x;
    setp.eq.u32 %none, %left, 0;
    @%none bra READ;
SPIN:
    mad.lo.u32 %x, %x, 1664525, 1013904223;
    xor.b32 %x, %x, %left;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra SPIN;
    setp.eq.u32 %impossible, %x, 0;
    @%impossible add.u32 %add, %add, 1;
READ:
    ld.volatile.global.u32 %value, [%cell];
    mad.lo.u32 %value, %value, 3, %add;
    st.volatile.global.u32 [%cell], %value;
    ret;
}

.visible .entry step_reads_first(.param .u64 cell, .param .u32 add, .param .u32 spin)
{
    .reg .pred %more, %impossible, %none;
    .reg .b32 %x, %left, %add, %value;
    .reg .b64 %cell;
    ld.param.u64 %cell, [cell];
    ld.param.u32 %add, [add];
    ld.param.u32 %left, [spin];
    ld.volatile.global.u32 %value, [%cell];
    mov.u32 %x, %tid.x;
    setp.eq.u32 %none, %left, 0;
    @%none bra WRITE;
SPIN:
    mad.lo.u32 %x, %x, 1664525, 1013904223;
    xor.b32 %x, %x, %left;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra SPIN;
    setp.eq.u32 %impossible, %x, 0;
    @%impossible add.u32 %add, %add, 1;
WRITE:
    mad.lo.u32 %value, %value, 3, %add;
    st.volatile.global.u32 [%cell], %value;
    ret;
}

.visible .entry mix(.param .u64 from, .param .u64 to, .param .u32 spin)
{
    .reg .pred %more, %impossible, %none;
    .reg .b32 %x, %left, %add, %value;
    .reg .b64 %from, %to;
    ld.param.u64 %from, [from];
    ld.param.u64 %to, [to];
    ld.param.u32 %left, [spin];
    mov.u32 %x, %tid.x;
    mov.u32 %add, 0;
    setp.eq.u32 %none, %left, 0;
    @%none bra READ;
SPIN:
    mad.lo.u32 %x, %x, 1664525, 1013904223;
    xor.b32 %x, %x, %left;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra SPIN;
    setp.eq.u32 %impossible, %x, 0;
    @%impossible mov.u32 %add, 1;
READ:
    ld.volatile.global.u32 %value, [%from];
    add.u32 %add, %add, %value;
    ld.volatile.global.u32 %value, [%to];
    mad.lo.u32 %value, %value, 5, %add;
    st.volatile.global.u32 [%to], %value;
    ret;
}
";
