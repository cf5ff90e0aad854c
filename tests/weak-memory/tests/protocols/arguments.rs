//! Arguments of kernels: the structs of `symmem/abi.h`, written field by field. Their sizes are checked against those
//! in `symmem-kernels-hip`, which are checked against the structs of the host.

/// The length of every table in the arguments.
const MOST_RANKS: usize = 72;
/// Longer than any run, in nanoseconds.
const DEADLINE_NS: u64 = 1 << 62;

/// What a rank's waits watch: addresses in its part of one allocation.
pub struct WatchWords {
    pub abort: u64,
    pub record: u64,
    /// In device memory: whether a wait has seen the abort word.
    pub aborted: u64,
}

impl WatchWords {
    /// Bytes of all ranks' words.
    pub const BYTES: u64 = 2 * Self::STRIDE;
    /// Bytes of a `WaitRecord`.
    pub const RECORD_BYTES: u64 = 40;
    const STRIDE: u64 = 1024;

    pub fn of(base: u64, rank: usize) -> Self {
        let own = base + rank as u64 * Self::STRIDE;
        Self {
            abort: own,
            record: own + 256,
            aborted: own + 512,
        }
    }
}

/// A struct of naturally aligned fields.
#[derive(Clone, Default)]
pub struct Arguments(Vec<u8>);

impl Arguments {
    pub fn bytes(self, kernel: &str) -> Vec<u8> {
        let entry = symmem_kernels_hip::modules()
            .iter()
            .flat_map(|module| module.entries)
            .find(|entry| entry.name == kernel)
            .unwrap();
        assert_eq!(self.0.len(), entry.argument_bytes as usize, "{kernel}");
        self.0
    }

    pub fn words(mut self, words: &[u32]) -> Self {
        self.0
            .extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self
    }

    pub fn longs(mut self, longs: &[u64]) -> Self {
        self.0
            .extend(longs.iter().flat_map(|long| long.to_le_bytes()));
        self
    }

    /// Appends a table with a value for each rank, and `rest` for ranks that do not exist.
    pub fn table(self, values: &[u64], rest: u64) -> Self {
        let mut table = [rest; MOST_RANKS];
        table[..values.len()].copy_from_slice(values);
        self.longs(&table)
    }

    /// Appends a `ReduceArguments`.
    pub fn reduce(self, sources: &[u64], destinations: &[u64], count: u64, how: [u32; 2]) -> Self {
        self.table(sources, 0)
            .table(destinations, 0)
            .longs(&[count])
            .words(&how)
    }

    /// Appends a `GemmShape` of dense A and C, whose B has lines of `b_stride` elements.
    pub fn gemm_shape(
        self,
        [m, n, k, b_stride]: [usize; 4],
        element: u32,
        b_in_columns: bool,
        bias: bool,
    ) -> Self {
        let order = 1 + u32::from(b_in_columns);
        self.longs(&[m, n, k, k, b_stride, n].map(|side| side as u64))
            .words(&[element, order, u32::from(bias), 0])
    }

    /// Appends a `Watch`, whose words begin at an address.
    pub fn watch(self, words: u64, rank: usize) -> Self {
        let words = WatchWords::of(words, rank);
        self.longs(&[words.abort, words.record, words.aborted, DEADLINE_NS])
            .words(&[rank as u32, 0])
    }

    /// Appends a `SignalTarget` for a value that the host counts.
    pub fn signal(self, word: u64, arrivals: u64, value: u32) -> Self {
        self.longs(&[word, 0, arrivals]).words(&[value, 0])
    }

    /// Appends a `CollectiveGroup`.
    pub fn group(self, watch: u64, slots: &[u64], packet_bytes: u64, rank: usize) -> Self {
        let mut group = self
            .watch(watch, rank)
            .table(slots, 0)
            // With them, zero: dependents start once the peers have answered.
            .longs(&[packet_bytes])
            .words(&[rank as u32, slots.len() as u32, 0, 1]);
        group.0.extend((0..MOST_RANKS).map(|member| member as u8));
        group
    }
}
