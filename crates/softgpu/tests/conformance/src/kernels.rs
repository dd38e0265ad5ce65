//! The kernels that the tests launch, as PTX text, with basic instructions only.

use core::ffi::CStr;

/// What `wait_flag` writes where its flag was never set.
pub(crate) const TIMED_OUT: u32 = 0xdead_0001;

/// What almost every test needs.
///
/// `wait_flag` looks at a flag until it is not zero, for at most 2^22 looks of about a microsecond: work behind it
/// is provably pending, without any timing, and a test that forgets the flag still ends. `delay` computes a long
/// chain of dependent values, so that work behind it is late unless something waits for it.
pub(crate) const PROGRAM: &CStr = c"
.version 7.0
.target sm_70
.address_size 64

.extern .shared .align 4 .b8 dynamic[];

.visible .entry empty()
{
    ret;
}

.visible .entry fill(.param .u64 p, .param .u32 value, .param .u32 n)
{
    .reg .pred %outside;
    .reg .b32 %block, %size, %thread, %i, %n, %value;
    .reg .b64 %p, %offset;
    ld.param.u64 %p, [p];
    ld.param.u32 %value, [value];
    ld.param.u32 %n, [n];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %size, %thread;
    setp.ge.u32 %outside, %i, %n;
    @%outside bra DONE;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %p, %p, %offset;
    st.global.u32 [%p], %value;
DONE:
    ret;
}

.visible .entry add(.param .u64 p, .param .u32 value, .param .u32 n)
{
    .reg .pred %outside;
    .reg .b32 %block, %size, %thread, %i, %n, %value, %old;
    .reg .b64 %p, %offset;
    ld.param.u64 %p, [p];
    ld.param.u32 %value, [value];
    ld.param.u32 %n, [n];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %size, %thread;
    setp.ge.u32 %outside, %i, %n;
    @%outside bra DONE;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %p, %p, %offset;
    ld.global.u32 %old, [%p];
    add.u32 %old, %old, %value;
    st.global.u32 [%p], %old;
DONE:
    ret;
}

.visible .entry times_three_plus_one(.param .u64 p)
{
    .reg .b32 %old;
    .reg .b64 %p;
    ld.param.u64 %p, [p];
    ld.global.u32 %old, [%p];
    mad.lo.u32 %old, %old, 3, 1;
    st.global.u32 [%p], %old;
    ret;
}

.visible .entry copy(.param .u64 to, .param .u64 from, .param .u32 n)
{
    .reg .pred %outside;
    .reg .b32 %block, %size, %thread, %i, %n, %value;
    .reg .b64 %to, %from, %offset;
    ld.param.u64 %to, [to];
    ld.param.u64 %from, [from];
    ld.param.u32 %n, [n];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %size, %thread;
    setp.ge.u32 %outside, %i, %n;
    @%outside bra DONE;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %to, %to, %offset;
    add.u64 %from, %from, %offset;
    ld.volatile.global.u32 %value, [%from];
    st.volatile.global.u32 [%to], %value;
DONE:
    ret;
}

.visible .entry saxpy(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n)
{
    .reg .pred %outside;
    .reg .f32 %a, %xi, %yi;
    .reg .b32 %block, %size, %thread, %i, %n;
    .reg .b64 %x, %y, %offset;
    ld.param.u64 %y, [y];
    ld.param.u64 %x, [x];
    ld.param.f32 %a, [a];
    ld.param.u32 %n, [n];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %size, %thread;
    setp.ge.u32 %outside, %i, %n;
    @%outside bra DONE;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %x, %x, %offset;
    add.u64 %y, %y, %offset;
    ld.global.f32 %xi, [%x];
    ld.global.f32 %yi, [%y];
    fma.rn.f32 %yi, %a, %xi, %yi;
    st.global.f32 [%y], %yi;
DONE:
    ret;
}

.visible .entry wait_flag(.param .u64 flag, .param .u64 out, .param .u32 value)
{
    .reg .pred %set, %more;
    .reg .b32 %seen, %looks, %value;
    .reg .b64 %flag, %out;
    ld.param.u64 %flag, [flag];
    ld.param.u64 %out, [out];
    ld.param.u32 %value, [value];
    mov.u32 %looks, 0;
LOOK:
    ld.volatile.global.u32 %seen, [%flag];
    setp.ne.u32 %set, %seen, 0;
    @%set bra DONE;
    nanosleep.u32 1000;
    add.u32 %looks, %looks, 1;
    setp.lt.u32 %more, %looks, 4194304;
    @%more bra LOOK;
    mov.u32 %value, 0xdead0001;
DONE:
    st.volatile.global.u32 [%out], %value;
    ret;
}

.visible .entry delay(.param .u64 out, .param .u32 value, .param .u32 steps)
{
    .reg .pred %more, %impossible;
    .reg .b32 %x, %left, %value;
    .reg .b64 %out;
    ld.param.u64 %out, [out];
    ld.param.u32 %value, [value];
    ld.param.u32 %left, [steps];
    mov.u32 %x, %tid.x;
STEP:
    mad.lo.u32 %x, %x, 1664525, 1013904223;
    xor.b32 %x, %x, %left;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra STEP;
    setp.eq.u32 %impossible, %x, %value;
    @%impossible add.u32 %value, %value, 1;
    st.volatile.global.u32 [%out], %value;
    ret;
}

.visible .entry increment(.param .u64 p)
{
    .reg .b32 %old;
    .reg .b64 %p;
    ld.param.u64 %p, [p];
    atom.global.add.u32 %old, [%p], 1;
    ret;
}

.visible .entry reverse(.param .u64 p)
{
    .reg .b32 %thread, %size, %value, %address, %dynamic, %mirror;
    .reg .b64 %p, %offset;
    ld.param.u64 %p, [p];
    mov.u32 %thread, %tid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %dynamic, dynamic;
    mul.wide.u32 %offset, %thread, 4;
    add.u64 %p, %p, %offset;
    ld.global.u32 %value, [%p];
    shl.b32 %address, %thread, 2;
    add.u32 %address, %address, %dynamic;
    st.shared.u32 [%address], %value;
    bar.sync 0;
    sub.u32 %mirror, %size, %thread;
    sub.u32 %mirror, %mirror, 1;
    shl.b32 %address, %mirror, 2;
    add.u32 %address, %address, %dynamic;
    ld.shared.u32 %value, [%address];
    st.global.u32 [%p], %value;
    ret;
}

.visible .entry static_shared(.param .u64 out)
{
    .shared .align 4 .b8 buffer[1024];
    .reg .pred %first;
    .reg .b32 %thread, %address, %base, %value;
    .reg .b64 %out, %offset;
    ld.param.u64 %out, [out];
    mov.u32 %thread, %tid.x;
    mov.u32 %base, buffer;
    shl.b32 %address, %thread, 2;
    add.u32 %address, %address, %base;
    st.shared.u32 [%address], %thread;
    bar.sync 0;
    xor.b32 %address, %thread, 1;
    shl.b32 %address, %address, 2;
    add.u32 %address, %address, %base;
    ld.shared.u32 %value, [%address];
    mul.wide.u32 %offset, %thread, 4;
    add.u64 %out, %out, %offset;
    st.global.u32 [%out], %value;
    ret;
}

.visible .entry few_threads(.param .u64 p) .maxntid 64, 1, 1
{
    .reg .b64 %p;
    .reg .b32 %old;
    ld.param.u64 %p, [p];
    atom.global.add.u32 %old, [%p], 1;
    ret;
}

.visible .entry shape(.param .u64 out)
{
    .reg .b32 %x, %y, %z, %nx, %ny, %nz, %bx, %by, %bz, %tx, %ty, %tz, %block, %thread, %size, %i;
    .reg .b64 %out, %offset;
    ld.param.u64 %out, [out];
    mov.u32 %x, %ctaid.x;
    mov.u32 %y, %ctaid.y;
    mov.u32 %z, %ctaid.z;
    mov.u32 %nx, %nctaid.x;
    mov.u32 %ny, %nctaid.y;
    mov.u32 %nz, %nctaid.z;
    mov.u32 %bx, %ntid.x;
    mov.u32 %by, %ntid.y;
    mov.u32 %bz, %ntid.z;
    mov.u32 %tx, %tid.x;
    mov.u32 %ty, %tid.y;
    mov.u32 %tz, %tid.z;
    mad.lo.u32 %block, %z, %ny, %y;
    mad.lo.u32 %block, %block, %nx, %x;
    mad.lo.u32 %thread, %tz, %by, %ty;
    mad.lo.u32 %thread, %thread, %bx, %tx;
    mul.lo.u32 %size, %bx, %by;
    mul.lo.u32 %size, %size, %bz;
    mad.lo.u32 %i, %block, %size, %thread;
    mul.wide.u32 %offset, %i, 32;
    add.u64 %out, %out, %offset;
    st.global.u32 [%out], %x;
    st.global.u32 [%out+4], %y;
    st.global.u32 [%out+8], %z;
    st.global.u32 [%out+12], %nz;
    st.global.u32 [%out+16], %tx;
    st.global.u32 [%out+20], %ty;
    st.global.u32 [%out+24], %tz;
    st.global.u32 [%out+28], %bz;
    ret;
}

.visible .entry many(.param .u64 out, .param .u32 word, .param .u16 half, .param .u64 wide,
                     .param .align 4 .b8 triple[12], .param .u8 byte, .param .f64 real)
{
    .reg .b16 %half, %byte;
    .reg .b32 %word, %value;
    .reg .b64 %out, %wide;
    .reg .f64 %real;
    ld.param.u64 %out, [out];
    ld.param.u32 %word, [word];
    ld.param.u16 %half, [half];
    ld.param.u64 %wide, [wide];
    ld.param.u8 %byte, [byte];
    ld.param.f64 %real, [real];
    st.global.u64 [%out], %wide;
    st.global.f64 [%out+8], %real;
    st.global.u32 [%out+16], %word;
    cvt.u32.u16 %value, %half;
    st.global.u32 [%out+20], %value;
    cvt.u32.u16 %value, %byte;
    st.global.u32 [%out+24], %value;
    ld.param.u32 %value, [triple];
    st.global.u32 [%out+28], %value;
    ld.param.u32 %value, [triple+4];
    st.global.u32 [%out+32], %value;
    ld.param.u32 %value, [triple+8];
    st.global.u32 [%out+36], %value;
    ret;
}

.visible .entry where_am_i(.param .u64 out, .param .u32 steps)
{
    .reg .pred %more;
    .reg .b32 %sm, %block, %x, %left;
    .reg .b64 %out, %offset;
    ld.param.u64 %out, [out];
    ld.param.u32 %left, [steps];
    mov.u32 %block, %ctaid.x;
    mov.u32 %sm, %smid;
    mov.u32 %x, %block;
STEP:
    mad.lo.u32 %x, %x, 1664525, 1013904223;
    xor.b32 %x, %x, %left;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra STEP;
    mul.wide.u32 %offset, %block, 8;
    add.u64 %out, %out, %offset;
    st.global.u32 [%out], %sm;
    st.global.u32 [%out+4], %x;
    ret;
}
";

/// Kernels that end their context.
pub(crate) const FAULTS: &CStr = c"
.version 7.0
.target sm_70
.address_size 64

.visible .entry store(.param .u64 p)
{
    .reg .b64 %p;
    ld.param.u64 %p, [p];
    st.global.u32 [%p], 1;
    ret;
}

.visible .entry misaligned(.param .u64 p)
{
    .reg .b32 %value;
    .reg .b64 %p;
    ld.param.u64 %p, [p];
    ld.global.u32 %value, [%p+1];
    st.global.u32 [%p], %value;
    ret;
}

.visible .entry trap_now()
{
    trap;
    ret;
}
";

/// Variables with initial values.
pub(crate) const VARIABLES: &CStr = c"
.version 7.0
.target sm_70
.address_size 64

.visible .global .align 4 .u32 counter = 7;
.visible .global .align 8 .u64 wide = 0x1122334455667788;
.visible .global .align 4 .f32 quarters[4] = {0f3E800000, 0f3F000000, 0f3F400000, 0f3F800000};
.visible .global .align 4 .b8 zeros[256];
.visible .const .align 4 .u32 factors[4] = {1, 10, 100, 1000};

.visible .entry scale(.param .u64 out)
{
    .reg .b32 %thread, %factor, %counter;
    .reg .b64 %out, %offset, %factors;
    ld.param.u64 %out, [out];
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %offset, %thread, 4;
    add.u64 %out, %out, %offset;
    mov.u64 %factors, factors;
    add.u64 %factors, %factors, %offset;
    ld.const.u32 %factor, [%factors];
    ld.global.u32 %counter, [counter];
    mul.lo.u32 %factor, %factor, %counter;
    st.global.u32 [%out], %factor;
    ret;
}
";

/// No PTX after the header.
pub(crate) const BROKEN: &CStr = c"
.version 7.0
.target sm_70
.address_size 64

.visible .entry broken()
{
    this is not an instruction;
    ret;
}
";
