//! Helpers: shortcuts to the calls, and code objects built by the tests.

pub use fake_device::testing::*;
use symmem_fake_hip::memory::*;
use symmem_fake_hip::modules::*;
use symmem_fake_hip::streams::*;

#[track_caller]
pub fn device_memory(bytes: usize) -> u64 {
    let mut address = 0;
    ok(hipMalloc(Some(&mut address), bytes));
    address
}

/// Allocates uncached memory.
#[track_caller]
pub fn uncached_memory(bytes: usize) -> u64 {
    let mut address = 0;
    ok(hipExtMallocWithFlags(Some(&mut address), bytes, 3));
    address
}

#[track_caller]
pub fn host_memory(bytes: usize) -> u64 {
    let mut address = 0;
    ok(hipHostMalloc(Some(&mut address), bytes, 0));
    address
}

#[track_caller]
pub fn stream() -> u64 {
    let mut stream = 0;
    ok(hipStreamCreateWithFlags(Some(&mut stream), 1));
    stream
}

#[track_caller]
pub fn write(address: u64, bytes: &[u8]) {
    // SAFETY: the source is a slice of that length.
    ok(unsafe { hipMemcpyHtoD(address, bytes.as_ptr() as u64, bytes.len()) });
}

#[track_caller]
pub fn read(address: u64, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    // SAFETY: the target is a vector of that length.
    ok(unsafe { hipMemcpyDtoH(read.as_mut_ptr() as u64, address, bytes) });
    read
}

/// A code object with one kernel, as the compiler would make it. Tests change its fields.
pub struct CodeObject {
    pub machine: u16,
    pub abi_version: u8,
    pub processor: u8,
    pub target: &'static str,
    pub name: &'static str,
    /// Offset, size and kind of each argument.
    pub arguments: Vec<(u64, u64, &'static str)>,
    pub wave: u64,
    pub scratch: u64,
    pub most_threads: u64,
}

/// Bytes that precede a kernel's arguments.
pub const AHEAD: u64 = 16;

impl CodeObject {
    /// Returns a valid code object for the fake's gfx942, with a kernel that takes one struct.
    pub fn of(name: &'static str, bytes: usize) -> Self {
        Self {
            machine: 224,
            abi_version: 3,
            processor: 0x4c,
            target: "amdgcn-amd-amdhsa--gfx942",
            name,
            arguments: vec![(0, AHEAD, "by_value"), (AHEAD, bytes as u64, "by_value")],
            wave: 64,
            scratch: 0,
            most_threads: 1024,
        }
    }

    fn metadata(&self) -> Vec<u8> {
        let mut out = vec![0x82];
        text(&mut out, "amdhsa.target");
        text(&mut out, self.target);
        text(&mut out, "amdhsa.kernels");
        out.extend([0x91, 0x87]);
        text(&mut out, ".name");
        text(&mut out, self.name);
        text(&mut out, ".args");
        out.push(0x90 + self.arguments.len() as u8);
        for (offset, size, kind) in &self.arguments {
            out.push(0x83);
            number(&mut out, ".offset", *offset);
            number(&mut out, ".size", *size);
            text(&mut out, ".value_kind");
            text(&mut out, kind);
        }
        let end = self.arguments.iter().map(|(offset, size, _)| offset + size);
        number(&mut out, ".kernarg_segment_size", end.max().unwrap_or(0));
        number(&mut out, ".wavefront_size", self.wave);
        number(&mut out, ".private_segment_fixed_size", self.scratch);
        number(&mut out, ".max_flat_workgroup_size", self.most_threads);
        number(&mut out, ".group_segment_fixed_size", 0);
        out
    }

    /// Returns the file: a header, a note, and a table of sections.
    pub fn bytes(&self) -> Vec<u8> {
        let metadata = self.metadata();
        let mut image = vec![0; 64];
        image[..4].copy_from_slice(b"\x7fELF");
        (image[7], image[8]) = (64, self.abi_version);
        image[18..20].copy_from_slice(&self.machine.to_le_bytes());
        image[48] = self.processor;
        let note = image.len();
        for word in [7, metadata.len() as u32, 32] {
            image.extend(word.to_le_bytes());
        }
        image.extend(b"AMDGPU\0\0");
        image.extend(&metadata);
        image.resize(image.len().next_multiple_of(8), 0);
        let (sections, length) = (image.len(), image.len() - note);
        image[40..48].copy_from_slice(&(sections as u64).to_le_bytes());
        (image[58], image[60]) = (64, 1);
        let mut section = [0; 64];
        section[4] = 7;
        section[24..32].copy_from_slice(&(note as u64).to_le_bytes());
        section[32..40].copy_from_slice(&(length as u64).to_le_bytes());
        image.extend(section);
        image
    }

    /// Loads it; returns the runtime's error number and the module.
    pub fn load(&self) -> (i32, u64) {
        let mut module = 0;
        let image = self.bytes();
        // SAFETY: the image is a whole code object.
        let code = unsafe { hipModuleLoadData(Some(&mut module), image.as_ptr().cast()) };
        (code, module)
    }

    /// Loads it and returns its kernel.
    #[track_caller]
    pub fn kernel(&self) -> u64 {
        let (code, module) = self.load();
        ok(code);
        let mut function = 0;
        let name = std::ffi::CString::new(self.name).expect("a name");
        // SAFETY: the name is zero-terminated.
        ok(unsafe { hipModuleGetFunction(Some(&mut function), module, name.as_ptr()) });
        function
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend([0xd9, text.len() as u8]);
    out.extend(text.as_bytes());
}

fn number(out: &mut Vec<u8>, key: &str, number: u64) {
    text(out, key);
    out.push(0xcf);
    out.extend(number.to_be_bytes());
}

/// What precedes a kernel's arguments.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ahead {
    pub blocks: u32,
    pub threads: u32,
    pub tick_ns: u32,
    pub reserved: u32,
}

impl Ahead {
    pub fn of(blocks: u32, threads: u32) -> Self {
        Self {
            blocks,
            threads,
            tick_ns: 10,
            reserved: 0,
        }
    }
}

/// Launches a kernel that takes one struct.
pub fn launch<T>(function: u64, grid: (u32, u32), stream: u64, ahead: Ahead, own: &T) -> i32 {
    let parameters = [
        std::ptr::from_ref(&ahead).cast::<u8>(),
        std::ptr::from_ref(own).cast::<u8>(),
    ];
    let (list, extra) = (parameters.as_ptr(), std::ptr::null());
    let (blocks, threads) = grid;
    // SAFETY: there is a pointer to each of the kernel's two parameters.
    unsafe {
        hipModuleLaunchKernel(
            function, blocks, 1, 1, threads, 1, 1, 0, stream, list, extra,
        )
    }
}
