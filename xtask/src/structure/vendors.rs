//! Portable code names no vendor, in its comments neither: what one vendor does its own way is in a backend or
//! in an arch header.

use super::{Source, sources};
use crate::error::Result;

/// Vendors, their products, programming models, libraries and links. A letter case or an underscore ends a
/// word, so that `cudaStream_t`, `CudaBackend` and `symmem_cuda` have one of them.
const WORDS: [&str; 40] = [
    "amd",
    "amdgpu",
    "cdna",
    "cubin",
    "cublas",
    "cublaslt",
    "cuda",
    "cudacc",
    "cudarc",
    "cudart",
    "cutlass",
    "gfx",
    "gpudirect",
    "hip",
    "hipblas",
    "hipblaslt",
    "hipcc",
    "hiprtc",
    "hopper",
    "hsa",
    "iris",
    "mscclpp",
    "nccl",
    "nvcc",
    "nvidia",
    "nvl",
    "nvlink",
    "nvls",
    "nvrtc",
    "nvshmem",
    "nvswitch",
    "ptx",
    "ptxas",
    "pytorch",
    "rccl",
    "rocm",
    "rocr",
    "rocshmem",
    "sm",
    "xgmi",
];
/// What devices' names begin with, before a number.
const SERIES: [&str; 6] = ["a", "b", "gfx", "h", "mi", "nvl"];

/// Places where a vendor's word stands for a reason.
const EXCEPTIONS: [Exception; 7] = [
    Exception {
        path: "core/src/backend/vendor_library/",
        words: &["nccl"],
        reason: "names of the C functions and variables that all vendors' libraries have",
    },
    Exception {
        path: "device/include/symmem/arch.h",
        words: &["cuda", "cudacc", "hip", "ptx"],
        reason: "chooses the arch header by the compiler's macros",
    },
    Exception {
        path: "device/src/lib.rs",
        words: &["hip", "ptx"],
        reason: "embeds the arch headers",
    },
    Exception {
        path: "device/tests/twin.cpp",
        words: &["ptx"],
        reason: "includes kernels that one vendor's devices have alone",
    },
    Exception {
        path: "device/include/symmem/arch_hip.h",
        words: &[],
        reason: "an arch header",
    },
    Exception {
        path: "device/include/symmem/arch_ptx.h",
        words: &[],
        reason: "an arch header",
    },
    Exception {
        path: "device/include/symmem/arch_ptx_multicast.h",
        words: &[],
        reason: "an arch header",
    },
];

/// Files that may have words of vendors.
struct Exception {
    /// A file, or what the paths of several begin with.
    path: &'static str,
    /// The words; all, if there are none.
    words: &'static [&'static str],
    reason: &'static str,
}

impl Exception {
    fn covers(&self, path: &str, word: &str) -> bool {
        path.starts_with(self.path) && (self.words.is_empty() || self.words.contains(&word))
    }
}

/// All portable code, and its tests.
pub fn read() -> Result<Vec<Source>> {
    let mut all = sources("core/src", &["rs"])?;
    all.extend(sources("core/tests", &["rs"])?);
    all.extend(sources("device/src", &["rs"])?);
    all.extend(sources("device/tests", &["cpp", "h"])?);
    all.extend(sources("device/include", &["h"])?);
    all.extend(sources("device/entries", &["h"])?);
    Ok(all)
}

/// The words of vendors that have no reason, and the exceptions without use, a line each.
pub fn check(files: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    let mut used = [false; EXCEPTIONS.len()];
    for Source { path, text } in files {
        for (number, line) in (1..).zip(text.lines()) {
            for word in words(line) {
                if !is_of_a_vendor(&word) {
                    continue;
                }
                let excepted = EXCEPTIONS
                    .iter()
                    .position(|exception| exception.covers(path, &word));
                match excepted {
                    Some(index) => used[index] = true,
                    None => found.push(format!(
                        "{path}:{number}: \"{word}\": say what is true everywhere, or say it in a backend \
                         or an arch header: {}",
                        line.trim()
                    )),
                }
            }
        }
    }
    let unused = EXCEPTIONS.iter().zip(used).filter(|(_, used)| !used);
    found.extend(unused.map(|(exception, _)| {
        format!(
            "{}: an exception without use ({}): take it out of the list",
            exception.path, exception.reason
        )
    }));
    found
}

fn is_of_a_vendor(word: &str) -> bool {
    let letters = word.trim_end_matches(|letter: char| letter.is_ascii_digit());
    // A device's number has three digits or more, and a letter may follow it: H200, MI300X.
    let name = word.trim_end_matches(['s', 'x']);
    let series = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let number = &name[series.len()..];
    let numbered = SERIES.contains(&series) && number.len() >= 3 && !number.starts_with('0');
    WORDS.contains(&word) || WORDS.contains(&letters) || numbered || word.starts_with("gfx9")
}

/// The words of a line, in lower case: runs of letters and digits, whole and cut where a capital follows a
/// small letter.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in line.split(|letter: char| !letter.is_alphanumeric()) {
        let mut cut = String::new();
        let mut last = ' ';
        for letter in run.chars() {
            if last.is_lowercase() && letter.is_uppercase() {
                cut.push(' ');
            }
            cut.push(letter);
            last = letter;
        }
        words.extend(cut.split_whitespace().map(str::to_lowercase));
        if cut.contains(' ') {
            words.push(run.to_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        let source = Source {
            path: path.into(),
            text: text.into(),
        };
        let mut found = check(&[source]);
        found.retain(|line| !line.contains("without use"));
        found
    }

    #[test]
    fn catches_words_of_vendors_in_code_and_in_comments() {
        for line in [
            "// As NVIDIA's driver has it.",
            "fn cuda_stream() {}",
            "struct HipBackend;",
            "let code = ncclAllReduce();",
            "/// 45 GB/s over xGMI.",
            "// Measured on H200.",
            "// 8 H200s",
            "// MI300X has seven links",
            "// for gfx90a and gfx942",
            "// sm_90a only",
            "// cp.async of PTX",
        ] {
            let found = complaints("core/src/lib.rs", line);
            assert!(!found.is_empty(), "{line}");
            assert!(found[0].starts_with("core/src/lib.rs:1: "), "{found:?}");
        }
    }

    #[test]
    fn passes_words_that_only_look_so() {
        for line in [
            "// a ship's chip; f8_e4m3, u16 and h2",
            "let a1 = b2 + sums; // 16 bytes, 0xa100",
            "// each rank, peer and block; a warp has 32 or 64",
        ] {
            assert_eq!(complaints("core/src/lib.rs", line), [""; 0]);
        }
    }

    #[test]
    fn an_exception_covers_its_place_and_its_words_alone() {
        let line = "ncclSend and RCCL";
        let found = complaints("core/src/backend/vendor_library/calls.rs", line);
        assert!(
            found.len() == 1 && found[0].contains("\"rccl\""),
            "{found:?}"
        );
        assert_eq!(complaints("core/src/lib.rs", line).len(), 2);
    }

    #[test]
    fn an_exception_without_use_is_told() {
        let found = check(&[]);
        assert_eq!(found.len(), EXCEPTIONS.len());
        assert!(found[0].contains("without use"), "{found:?}");
    }
}
