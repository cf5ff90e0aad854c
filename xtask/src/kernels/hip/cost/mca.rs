//! Asks llvm-mca for the resources and latencies of a loop's instructions. It knows one wave, no waits for memory and no
//! conflicts in shared memory; it counts in passes of four clocks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::super::isa::Instruction;
use crate::error::{Error, Result, at};
use crate::tools::{self, Scratch};

/// What llvm-mca says of an instruction, in passes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scheduled {
    pub latency: u64,
    /// Passes of each resource, such as `HWXDL` for the matrix cores.
    pub resources: HashMap<String, u64>,
}

impl Scheduled {
    /// Returns the passes of a resource.
    pub fn passes(&self, resource: &str) -> u64 {
        self.resources.get(resource).copied().unwrap_or(0)
    }
}

/// What llvm-mca says of a loop.
#[derive(Debug)]
pub struct Analysis {
    pub instructions: Vec<Scheduled>,
    /// Clocks of one iteration by a wave that is alone, if all data is there.
    pub clocks: f64,
}

/// llvm-mca.
pub struct Analyzer {
    tool: PathBuf,
    scratch: Scratch,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Output {
    code_regions: Vec<Region>,
    target_info: TargetInfo,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TargetInfo {
    resources: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Region {
    instruction_info_view: InfoView,
    resource_pressure_view: PressureView,
    summary_view: Summary,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InfoView {
    instruction_list: Vec<Info>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Info {
    latency: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PressureView {
    resource_pressure_info: Vec<Pressure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Pressure {
    instruction_index: usize,
    resource_index: usize,
    resource_usage: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Summary {
    iterations: f64,
    total_cycles: f64,
}

impl Analyzer {
    pub fn find() -> Result<Self> {
        Ok(Self {
            tool: tools::mca()?,
            scratch: Scratch::new("kernels-cost")?,
        })
    }

    /// Returns the tool's version.
    pub fn version(&self) -> Result<String> {
        tools::version(&self.tool)
    }

    /// Analyzes the instructions of one iteration.
    pub fn analyze<'a>(
        &self,
        target: &str,
        instructions: impl Iterator<Item = &'a Instruction>,
    ) -> Result<Analysis> {
        let text: String = instructions.map(assembly).collect();
        let path = self.scratch.path().join(format!("{target}.s"));
        at(&path, std::fs::write(&path, &text))?;
        let output = tools::output(
            Command::new(&self.tool)
                .args(["-mtriple=amdgcn-amd-amdhsa", "-iterations=10", "--json"])
                .arg(format!("-mcpu={target}"))
                .arg(&path),
        )?;
        parse(&output, text.lines().count()).map_err(|what| wrong(&path, what))
    }
}

fn wrong(path: &Path, what: String) -> Error {
    Error::Source {
        path: path.to_owned(),
        what,
    }
}

/// Returns an instruction as the assembler reads it. A branch's operand is its distance.
fn assembly(instruction: &Instruction) -> String {
    format!("{} {}\n", instruction.mnemonic, instruction.operands)
}

fn parse(output: &str, count: usize) -> std::result::Result<Analysis, String> {
    // Warnings may stand before the object.
    let start = output.find('{').ok_or("llvm-mca printed no JSON")?;
    let mut values = serde_json::Deserializer::from_str(&output[start..]).into_iter::<Output>();
    let parsed = values
        .next()
        .ok_or("llvm-mca printed nothing")?
        .map_err(|error| format!("llvm-mca's JSON: {error}"))?;
    let region = parsed.code_regions.first().ok_or("llvm-mca: no region")?;
    let listed = &region.instruction_info_view.instruction_list;
    if listed.len() != count {
        return Err(format!(
            "llvm-mca read {} of {count} instructions",
            listed.len()
        ));
    }
    let mut instructions: Vec<Scheduled> = listed
        .iter()
        .map(|info| Scheduled {
            latency: info.latency,
            resources: HashMap::new(),
        })
        .collect();
    for pressure in &region.resource_pressure_view.resource_pressure_info {
        // The last index stands for the sum.
        if let Some(instruction) = instructions.get_mut(pressure.instruction_index)
            && let Some(name) = parsed.target_info.resources.get(pressure.resource_index)
        {
            let passes = pressure.resource_usage.round() as u64;
            instruction.resources.insert(name.clone(), passes);
        }
    }
    let summary = &region.summary_view;
    Ok(Analysis {
        instructions,
        clocks: summary.total_cycles / summary.iterations * super::devices::PASS as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"warning: something
{"CodeRegions": [{
  "InstructionInfoView": {"InstructionList": [{"Latency": 8}, {"Latency": 1}]},
  "ResourcePressureView": {"ResourcePressureInfo": [
    {"InstructionIndex": 0, "ResourceIndex": 1, "ResourceUsage": 4},
    {"InstructionIndex": 1, "ResourceIndex": 0, "ResourceUsage": 1},
    {"InstructionIndex": 2, "ResourceIndex": 1, "ResourceUsage": 4}]},
  "SummaryView": {"Iterations": 10, "TotalCycles": 50}}],
 "TargetInfo": {"Resources": ["HWSALU", "HWXDL"]}}
"#;

    #[test]
    fn reads_latencies_resources_and_the_time_of_an_iteration() {
        let analysis = parse(OUTPUT, 2).unwrap();
        let [first, second] = analysis.instructions.as_slice() else {
            panic!("two instructions: {analysis:?}")
        };
        assert_eq!((first.latency, first.passes("HWXDL")), (8, 4));
        assert_eq!((second.latency, second.passes("HWSALU")), (1, 1));
        assert_eq!(second.passes("HWXDL"), 0);
        assert_eq!(analysis.clocks, 20.0);
    }

    #[test]
    fn an_instruction_that_llvm_mca_left_out_is_an_error() {
        assert!(parse(OUTPUT, 3).unwrap_err().contains("2 of 3"));
        assert!(parse("nothing", 0).is_err());
    }
}
