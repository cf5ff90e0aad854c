//! Atomic operations on words: each releases what its stream stored before, and acquires what others stored before the value
//! that it found.

use super::{Access, Code, Complaint, Step, UNRELEASED, WRITING_BACK, begins};

/// The kernel whose atomic operations are all those of users' words.
const WORDS: [&str; 1] = ["symmem_word_update"];

impl Code<'_> {
    /// Checks that a write-back is complete before each operation on a word, and that an invalidation follows it.
    pub(super) fn words(&self) -> Vec<Complaint> {
        if !begins(&self.function.name, &WORDS) {
            return Vec::new();
        }
        let atomics = self
            .instructions()
            .zip(self.facts())
            .filter(|((_, instruction), _)| instruction.access() == Some(Access::Atomic));
        let mut found = Vec::new();
        for ((index, _), facts) in atomics {
            if facts.is_some_and(|facts| facts & (UNRELEASED | WRITING_BACK) != 0) {
                found.push((
                    index,
                    "an operation on a word without a complete write-back before it",
                ));
            }
            // The compiler merges the ends of several operations, so not every path of the code is one of the program.
            let acquires = |each: usize| {
                if self.is_invalidation(each) {
                    Step::Found
                } else {
                    Step::On
                }
            };
            if !self.reaches(index, acquires) {
                found.push((
                    index,
                    "an operation on a word without an invalidation behind it",
                ));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::complaints_of;

    const UPDATE: [&str; 7] = [
        "buffer_wbl2 sc0 sc1",
        "s_waitcnt vmcnt(0)",
        "global_atomic_add v2, v[0:1], v3, off sc0 sc1",
        "s_waitcnt vmcnt(0)",
        "buffer_inv sc0 sc1",
        "global_store_dword v[0:1], v2, off sc0 sc1",
        "s_endpgm",
    ];

    fn without(kernel: &str, index: usize) -> Vec<String> {
        let mut code = UPDATE;
        code[index] = "s_nop 0";
        complaints_of(kernel, "gfx942", &code, &[])
            .into_iter()
            .filter(|what| what.contains("an operation on a word"))
            .collect()
    }

    #[test]
    fn an_operation_on_a_word_releases_before_and_acquires_behind() {
        const KERNEL: &str = "symmem_word_update";
        assert_eq!(without(KERNEL, 5), [""; 0]);
        for index in [0, 1, 4] {
            assert_eq!(without(KERNEL, index).len(), 1, "{}", UPDATE[index]);
        }
    }

    #[test]
    fn atomic_operations_of_other_kernels_may_be_relaxed() {
        assert_eq!(without("symmem_signal", 0), [""; 0]);
    }
}
