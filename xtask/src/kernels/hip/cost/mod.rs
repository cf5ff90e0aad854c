//! `cargo xtask kernels cost`: a model of the time that loops of the kernels for AMD GPUs take. It stands in for a device:
//! nothing here has run on one.
//!
//! llvm-mca says which unit of a compute unit executes each instruction of a loop and for how long ([`mca`]); a model of
//! the waves runs the loop by all waves of a compute unit ([`waves`]); an interpreter of the machine code counts the
//! conflicts in shared memory. [`mod@devices`] has the figures of the devices with their sources.

mod calibration;
mod devices;
mod families;
mod lds;
mod loops;
mod mca;
mod model;
mod report;
mod steps;
mod waves;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use super::isa::{self, Function};
use super::{manifest, object};
use crate::error::Result;
use crate::kernels::family;
use crate::tools::{self, Scratch};
use devices::{DEVICES, Device};
use families::{Family, Work};
use lds::Counts;
use mca::Analyzer;
use model::{Cost, Subject};

/// Options of the command.
#[derive(Args)]
pub struct Options {
    /// Only this target: gfx942 or gfx950.
    #[arg(long)]
    target: Option<String>,
    /// All kernels whose names begin so, in place of some of each kind.
    #[arg(long)]
    kernel: Option<String>,
    /// Write everything to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// A file that the interpreter's test wrote (SYMMEM_SHARED_CLOCKS), in place of running it.
    #[arg(long)]
    shared_clocks: Option<PathBuf>,
    /// A code object of another program, `NAME.TARGET.co`, whose GEMMs have blocks of --threads and --shared-bytes.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Threads of a block of the kernels in --file, in place of as many as they were compiled for.
    #[arg(long)]
    threads: Option<u32>,
    /// Bytes of shared memory that a launch of the kernels in --file adds.
    #[arg(long, default_value_t = 0)]
    shared_bytes: u32,
}

/// Prints the costs of the kernels' loops, and how far the model is from published times.
pub fn run(options: &Options) -> Result<()> {
    let analyzer = Analyzer::find()?;
    let costs = match &options.file {
        Some(file) => of_file(&analyzer, options, file)?,
        None => of_committed(&analyzer, options)?,
    };
    report::print(&costs);
    report::print_calibration();
    if let Some(path) = &options.json {
        report::write(path, &analyzer, &costs)?;
    }
    Ok(())
}

/// Modules with loops that are modeled, and the kernels that stand for theirs.
const MODULES: [&str; 6] = [
    "base",
    "collective",
    "gathered_gemm",
    "reduce",
    "reduce_packets",
    "reduced_gemm",
];

fn of_committed(analyzer: &Analyzer, options: &Options) -> Result<Vec<Cost>> {
    let scratch = Scratch::new("kernels-cost-objects")?;
    manifest::unpack(family::Family::Hip, scratch.path())?;
    let counts = lds::counts(options.shared_clocks.as_deref())?;
    let mut costs = Vec::new();
    for device in devices(options) {
        for module in MODULES {
            let path = scratch
                .path()
                .join(format!("{module}.{}.co", device.target));
            costs.extend(of_object(analyzer, device, &path, &counts, |kernel| {
                Family::of(kernel).filter(|_| is_wanted(kernel, options.kernel.as_deref()))
            })?);
        }
    }
    Ok(costs)
}

/// Kernels that stand for those like them.
const SHOWN: [&str; 9] = [
    "symmem_copy_vector",
    "symmem_move",
    "symmem_move_packets",
    "symmem_exchange",
    "symmem_reduce_bf16",
    "symmem_reduce_f32",
    "symmem_reduce_f8_e4m3",
    "symmem_reduce_packets_bf16",
    "symmem_reduce_packets_f32",
];

/// How the names of the GEMM kernels begin that stand for all.
const PRODUCTS: [&str; 3] = [
    "symmem_gathered_gemm_f16_",
    "symmem_gathered_gemm_f8_",
    "symmem_reduced_gemm_f16_",
];

fn is_wanted(kernel: &str, prefix: Option<&str>) -> bool {
    match prefix {
        Some(prefix) => kernel.starts_with(prefix),
        // Kernels for bf16 differ from these in the type of their matrix instructions.
        None => {
            let mut products = PRODUCTS.into_iter();
            SHOWN.contains(&kernel) || products.any(|family| kernel.starts_with(family))
        }
    }
}

fn of_file(analyzer: &Analyzer, options: &Options, file: &Path) -> Result<Vec<Cost>> {
    let name = file.to_string_lossy();
    let mut costs = Vec::new();
    for device in devices(options).filter(|device| name.contains(device.target)) {
        let family = Family {
            prefix: "",
            work: Work::Product,
            threads: options.threads,
            blocks: device.compute_units,
            links: 0,
            shared_bytes: options.shared_bytes,
        };
        let none = Counts::new();
        costs.extend(of_object(analyzer, device, file, &none, |_| Some(family))?);
    }
    Ok(costs)
}

fn devices(options: &Options) -> impl Iterator<Item = &'static Device> {
    let target = options.target.clone();
    DEVICES
        .iter()
        .filter(move |device| target.as_ref().is_none_or(|target| target == device.target))
}

fn of_object(
    analyzer: &Analyzer,
    device: &Device,
    path: &Path,
    counts: &Counts,
    family: impl Fn(&str) -> Option<Family>,
) -> Result<Vec<Cost>> {
    let object = object::read(path)?;
    let text = tools::output(
        Command::new(tools::objdump()?)
            .arg("--disassemble")
            .arg(format!("--mcpu={}", device.target))
            .arg(path),
    )?;
    let functions = isa::parse(&text);
    let mut costs = Vec::new();
    for kernel in &object.kernels {
        let of_kernel = |function: &&Function| function.name == kernel.name;
        if let Some(family) = family(&kernel.name)
            && let Some(function) = functions.iter().find(of_kernel)
        {
            costs.extend(model::costs(
                analyzer,
                &Subject {
                    device,
                    kernel,
                    function,
                    family,
                    shared: counts.get(&(device.target.to_owned(), kernel.name.clone())),
                },
            )?);
        }
    }
    Ok(costs)
}
