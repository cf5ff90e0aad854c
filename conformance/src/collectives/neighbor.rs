//! A user's kernel that takes units away from collectives: 200 KB of shared memory for each block, and a block for
//! each unit of the device.

use crate::findings::Findings;
use symmem::backend::abi::{CAPABILITY_LAUNCH, Geometry};
use symmem::{Communicator, DeviceAddress, Function, Result, Stream, SymmetricBuffer};

/// Shared memory of a block: nothing else with shared memory of that order fits beside it.
const SHARED_BYTES: u32 = 200 << 10;
const THREADS: u32 = 256;
/// Words that it fills.
const WORDS: usize = 1 << 20;

/// Fills words with a value that goes through shared memory, 64 times: some 100 µs on an H200.
const CODE: &str = "\
.version 7.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 soak_shared[];
.visible .entry symmem_soak_fill(
    .param .u64 symmem_soak_fill_param_0,
    .param .u64 symmem_soak_fill_param_1,
    .param .u64 symmem_soak_fill_param_2
)
{
    .reg .pred %p<3>;
    .reg .b32 %r<15>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [symmem_soak_fill_param_0];
    ld.param.u64 %rd2, [symmem_soak_fill_param_1];
    ld.param.u32 %r1, [symmem_soak_fill_param_2];
    cvta.to.global.u64 %rd3, %rd1;
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %nctaid.x;
    mov.u32 %r6, soak_shared;
    shl.b32 %r7, %r2, 2;
    add.s32 %r8, %r6, %r7;
    st.shared.u32 [%r8], %r1;
    bar.sync 0;
    add.s32 %r9, %r2, 1;
    rem.u32 %r9, %r9, %r3;
    shl.b32 %r10, %r9, 2;
    add.s32 %r10, %r6, %r10;
    ld.shared.u32 %r11, [%r10];
    mad.lo.s32 %r12, %r4, %r3, %r2;
    mul.lo.s32 %r13, %r5, %r3;
    cvt.u64.u32 %rd4, %r12;
    cvt.u64.u32 %rd5, %r13;
    mov.u32 %r14, 0;
PASS:
    mov.u64 %rd6, %rd4;
WORD:
    setp.ge.u64 %p1, %rd6, %rd2;
    @%p1 bra DONE;
    shl.b64 %rd7, %rd6, 2;
    add.s64 %rd8, %rd3, %rd7;
    st.global.u32 [%rd8], %r11;
    add.s64 %rd6, %rd6, %rd5;
    bra WORD;
DONE:
    add.s32 %r14, %r14, 1;
    setp.lt.u32 %p2, %r14, 64;
    @%p2 bra PASS;
    ret;
}
";

/// The kernel's parameters.
#[repr(C)]
#[derive(Clone, Copy)]
struct Parameters {
    first: DeviceAddress,
    words: u64,
    /// 64 bits, so that the struct has no padding, which the kernel's parameters do not have.
    value: u64,
}

/// The kernel, with a stream of its own and the words that it fills.
pub struct Neighbor {
    function: Function,
    stream: Stream,
    words: SymmetricBuffer<u32>,
    geometry: Geometry,
    /// The value of the last launch.
    value: u32,
}

impl Neighbor {
    /// Loads the kernel; `None` if the device launches no kernels, or has less shared memory. Collective.
    pub fn load(communicator: &Communicator) -> Result<Option<Self>> {
        let capabilities = communicator.capabilities();
        if capabilities.flags & CAPABILITY_LAUNCH == 0
            || capabilities.shared_memory_per_block < SHARED_BYTES
        {
            return Ok(None);
        }
        let words = communicator.allocate(&[WORDS])?;
        // SAFETY: the code is complete. Only NVIDIA's devices have so much shared memory, and the driver compiles
        // the code for each of them.
        let module = unsafe { communicator.load_module(CODE.as_bytes()) }?;
        Ok(Some(Self {
            function: module.function("symmem_soak_fill")?,
            stream: communicator.stream()?,
            words,
            geometry: Geometry {
                blocks: [communicator.device().compute_units, 1, 1],
                threads: [THREADS, 1, 1],
                shared_memory: SHARED_BYTES,
            },
            value: 0,
        }))
    }

    /// Launches it with another value than before.
    pub fn launch(&mut self) -> Result<()> {
        self.value = self.value.wrapping_add(0x9e37_79b9);
        let parameters = Parameters {
            first: self.words.local().address(),
            words: WORDS as u64,
            value: self.value.into(),
        };
        // SAFETY: the kernel takes these parameters, and writes only the words, which live as long as this value;
        // `free` waits. It waits for nothing.
        unsafe {
            self.stream
                .launch(&self.function, &self.geometry, &parameters)
        }
    }

    /// Waits for the kernel and compares every word with the last value.
    pub fn compare(&self, findings: &mut Findings) -> Result<()> {
        let mut seen = vec![0; WORDS];
        self.stream.read(&self.words, &mut seen)?;
        if let Some(at) = seen.iter().position(|&word| word != self.value) {
            findings.push(format!(
                "the user's kernel: word {at} is {:#x} instead of {:#x}",
                seen[at], self.value
            ));
        }
        Ok(())
    }

    /// Frees the words. Collective; waits for the kernel.
    pub fn free(self) -> Result<()> {
        self.words.free()
    }
}
