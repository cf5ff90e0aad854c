//! A kernel of a code object as a list of decoded instructions, from the text of llvm-objdump.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use object::{Object, ObjectSection, ObjectSymbol};
use symmem_kernels_hip::Target;

use crate::Error;
use crate::decode::decode;
use crate::operation::Operation;

/// An instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// Bytes from the kernel's first instruction.
    pub offset: u64,
    /// As the disassembler writes it.
    pub text: String,
    /// What it does.
    pub operation: Operation,
}

impl Instruction {
    /// Whether it has this mnemonic.
    pub fn is(&self, mnemonic: &str) -> bool {
        self.text.split(' ').next() == Some(mnemonic)
    }

    /// Whether it waits until all accesses to global memory are complete.
    pub fn drains(&self) -> bool {
        matches!(
            self.operation,
            Operation::Wait {
                vector: Some(0),
                ..
            }
        )
    }
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its symbol.
    pub name: String,
    /// The target it was compiled for.
    pub target: Target,
    /// Its instructions; a branch's target is an index.
    pub instructions: Vec<Instruction>,
    /// The first of the two scalar registers that hold the address of its arguments.
    pub arguments_register: usize,
    /// The scalar register that holds the number of the block.
    pub block_register: usize,
    /// Bytes of shared memory.
    pub shared_bytes: usize,
}

/// Returns the path of llvm-objdump: `SYMMEM_OBJDUMP`, or the one on `PATH`.
pub fn disassembler() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("SYMMEM_OBJDUMP") {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    ["llvm-objdump-22", "llvm-objdump"].iter().find_map(|name| {
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|file| file.is_file())
    })
}

impl Program {
    /// Returns kernels of `symmem-kernels-hip` in their order. A process disassembles each once.
    ///
    /// # Errors
    /// [`Error::Tool`] if llvm-objdump is not installed or fails, [`Error::CodeObject`] if a kernel does not exist or
    /// expects registers that this interpreter does not set up, [`Error::Instruction`] for an instruction that is not
    /// modeled.
    pub fn load_all(kernels: &[&str], target: Target) -> Result<Vec<Self>, Error> {
        static LOADED: Mutex<BTreeMap<(&str, String), Program>> = Mutex::new(BTreeMap::new());
        let key = |kernel: &str| (target.name(), kernel.to_owned());
        // What was loaded stays valid if a thread panics.
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        for module in symmem_kernels_hip::modules() {
            let is_missing = |kernel: &&str| {
                module.entries.iter().any(|entry| entry.name == *kernel)
                    && !loaded.contains_key(&key(kernel))
            };
            let missing: Vec<&str> = kernels.iter().copied().filter(is_missing).collect();
            if missing.is_empty() {
                continue;
            }
            let object = module.object(target).decompress();
            let object = object.map_err(|cause| Error::CodeObject(cause.to_string()))?;
            for program in Self::from_object(&missing, target, &object)? {
                loaded.insert(key(&program.name), program);
            }
        }
        let found = kernels.iter().map(|kernel| {
            let program = loaded.get(&key(kernel)).cloned();
            program.ok_or_else(|| Error::CodeObject(format!("no module has {kernel}")))
        });
        found.collect()
    }

    /// Loads kernels of a code object; errors as of [`Self::load_all`].
    pub fn from_object(
        kernels: &[&str],
        target: Target,
        object: &[u8],
    ) -> Result<Vec<Self>, Error> {
        let text = disassemble(object, kernels, target)?;
        let programs = kernels.iter().map(|kernel| {
            let text = part_of(&text, kernel);
            Self::parse(kernel, target, text, object)
        });
        programs.collect()
    }

    fn parse(kernel: &str, target: Target, text: &str, object: &[u8]) -> Result<Self, Error> {
        let mut program = Self {
            name: kernel.to_owned(),
            target,
            instructions: parse(text, kernel)?,
            arguments_register: 0,
            block_register: 0,
            shared_bytes: 0,
        };
        program.read_descriptor(object)?;
        Ok(program)
    }

    /// Returns a copy with a planted fault, and the number of instructions changed. `fault` gets all instructions and
    /// the index of one, and returns what that instruction does instead, if anything. Branches keep their targets.
    pub fn with(
        &self,
        fault: impl Fn(&[Instruction], usize) -> Option<Operation>,
    ) -> (Self, usize) {
        let mut planted = self.clone();
        let mut changed = 0;
        for (index, instruction) in planted.instructions.iter_mut().enumerate() {
            if let Some(operation) = fault(&self.instructions, index) {
                instruction.operation = operation;
                instruction.text.insert_str(0, "(changed) ");
                changed += 1;
            }
        }
        (planted, changed)
    }

    /// Reads which registers the kernel expects, from its descriptor (LLVM's "User Guide for AMDGPU Backend", kernel
    /// descriptor and initial register state).
    fn read_descriptor(&mut self, object: &[u8]) -> Result<(), Error> {
        let wrong = |what: &str| Error::CodeObject(format!("{}: {what}", self.name));
        let file = object::read::elf::ElfFile64::<object::Endianness>::parse(object)
            .map_err(|error| wrong(&error.to_string()))?;
        let symbol = format!("{}.kd", self.name);
        let address = file
            .dynamic_symbols()
            .find(|each| each.name() == Ok(&symbol))
            .ok_or_else(|| wrong("no kernel descriptor"))?
            .address();
        let descriptor = file
            .sections()
            .find_map(|section| section.data_range(address, 64).ok().flatten())
            .ok_or_else(|| wrong("its descriptor is in no section"))?;
        let word = |offset: usize| {
            let bytes = [0, 1, 2, 3].map(|byte| descriptor[offset + byte]);
            u32::from_le_bytes(bytes)
        };
        self.shared_bytes = word(0) as usize;
        let (resources, properties) = (word(52), word(56));
        let has = |bit: u32| properties >> bit & 1 == 1;
        if !has(3) || properties >> 16 != 0 || resources & (1 << 7) == 0 {
            return Err(wrong(
                "unsupported registers for the arguments or the block number",
            ));
        }
        self.arguments_register = [(0, 4), (1, 2), (2, 2)]
            .iter()
            .filter(|(bit, _)| has(*bit))
            .map(|(_, registers)| registers)
            .sum();
        self.block_register = (resources >> 1 & 31) as usize;
        Ok(())
    }
}

/// Whether a code object has a kernel.
pub fn has_kernel(object: &[u8], kernel: &str) -> bool {
    let symbol = format!("{kernel}.kd");
    object::read::elf::ElfFile64::<object::Endianness>::parse(object).is_ok_and(|file| {
        file.dynamic_symbols()
            .any(|each| each.name() == Ok(&symbol))
    })
}

fn disassemble(object: &[u8], kernels: &[&str], target: Target) -> Result<String, Error> {
    let tool = disassembler().ok_or_else(|| {
        Error::Tool("install llvm-22, or name llvm-objdump in SYMMEM_OBJDUMP".to_owned())
    })?;
    // The name contains process and thread because tests run concurrently.
    let file = std::env::temp_dir().join(format!(
        "symmem-weak-{}-{}-{:?}.co",
        std::process::id(),
        target.name(),
        std::thread::current().id()
    ));
    let failed = |error: std::io::Error| Error::Tool(format!("{}: {error}", tool.display()));
    std::fs::write(&file, object).map_err(failed)?;
    let output = Command::new(&tool)
        .arg(format!("--disassemble-symbols={}", kernels.join(",")))
        .arg(format!("--mcpu={}", target.name()))
        .arg(&file)
        .output();
    // A file that cannot be removed stays in the system's temporary directory, which the system clears.
    let _ = std::fs::remove_file(&file);
    let output = output.map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Tool(format!("{}: {said}", tool.display())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns a kernel's part of the disassembler's text, from the line behind `address <kernel>:` to the next such line.
fn part_of<'a>(text: &'a str, kernel: &str) -> &'a str {
    let label = format!(" <{kernel}>:\n");
    let (_, part) = text.split_once(&label).unwrap_or_default();
    part.split(">:\n").next().unwrap_or_default()
}

/// Parses the instructions in `\tcode // address: bytes <kernel+0xtarget>`.
pub(crate) fn parse(text: &str, kernel: &str) -> Result<Vec<Instruction>, Error> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let Some((code, comment)) = line.split_once("//") else {
            continue;
        };
        let Some((address, rest)) = comment.split_once(':') else {
            continue;
        };
        let Ok(address) = u64::from_str_radix(address.trim(), 16) else {
            continue;
        };
        let code = code.split_whitespace().collect::<Vec<_>>().join(" ");
        lines.push((address, code, target_of(rest, kernel)));
    }
    let first = lines
        .first()
        .ok_or_else(|| Error::CodeObject(format!("no instructions of {kernel}")))?
        .0;
    let places: HashMap<u64, usize> = lines
        .iter()
        .enumerate()
        .map(|(index, (address, ..))| (address - first, index))
        .collect();
    lines
        .into_iter()
        .map(|(address, text, target)| {
            let target = target.and_then(|target| places.get(&target).copied());
            let operation = decode(&text, target).ok_or_else(|| Error::Instruction {
                kernel: kernel.to_owned(),
                offset: address - first,
                text: text.clone(),
            })?;
            Ok(Instruction {
                offset: address - first,
                text,
                operation,
            })
        })
        .collect()
}

/// Returns the offset of a branch target: `<kernel+0x10>` or `<kernel>` behind the bytes.
fn target_of(rest: &str, kernel: &str) -> Option<u64> {
    let (_, label) = rest.split_once('<')?;
    let offset = label.strip_suffix('>')?.strip_prefix(kernel)?;
    if offset.is_empty() {
        return Some(0);
    }
    u64::from_str_radix(offset.strip_prefix("+0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_that_is_not_modeled_is_named() {
        let text = "0 <kernel>:\n\tv_mov_b32_e32 v0, 0 // 000000001000: 7E000280\n\tv_sad_u8 v0, v1, v2, v3 // 000000001004: D1ED0000\n";
        let error = parse(text, "kernel").unwrap_err().to_string();
        assert!(error.starts_with("kernel+0x4: v_sad_u8"), "{error}");
    }

    #[test]
    fn floating_point_that_is_not_modeled_is_kept_for_whoever_comes_to_it() {
        let text = "\tv_rcp_f32_e32 v0, v1 // 000000001000: 7E004501\n";
        let instructions = parse(text, "kernel").unwrap();
        assert!(matches!(
            instructions[0].operation,
            Operation::Unmodeled { .. }
        ));
    }

    #[test]
    fn a_branch_goes_to_the_instruction_at_its_label() {
        let text = "\ts_nop 0 // 000000001000: BF800000\n\ts_branch 65534 // 000000001004: BF82FFFE <kernel>\n\ts_branch 0 // 000000001008: BF820000 <kernel+0x4>\n";
        let targets: Vec<usize> = parse(text, "kernel")
            .unwrap()
            .iter()
            .filter_map(|each| match each.operation {
                Operation::Branch { target, .. } => Some(target),
                _ => None,
            })
            .collect();
        assert_eq!(targets, [0, 1]);
    }
}
