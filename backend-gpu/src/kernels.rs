//! The kernels of `device/` by name, and how many of their blocks are co-resident.

use std::sync::atomic::{AtomicU32, Ordering};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure};

/// Number of element types, numbered from 1. A reducing family has one kernel per type.
const ELEMENTS: usize = 14;

/// A kernel whose blocks wait for blocks of other devices, so that its whole grid must be co-resident.
pub struct WaitingKernel<K> {
    /// The kernel.
    pub kernel: K,
    /// Numbers of 32 bits in shared memory for each 32 threads of a block. They are too few to bound the blocks of a unit.
    numbers: u32,
    /// Most co-resident blocks, by the number of threads in units of 32; [`UNKNOWN`] until first asked for.
    resident: [AtomicU32; 32],
}

const UNKNOWN: u32 = u32::MAX;

impl<K: Copy> WaitingKernel<K> {
    fn new(kernel: K) -> Self {
        Self {
            kernel,
            numbers: 0,
            resident: [const { AtomicU32::new(UNKNOWN) }; 32],
        }
    }

    /// Makes a kernel whose blocks sum over their threads: see `device/include/symmem/block_sums.h`.
    fn with_sums(self) -> Self {
        Self { numbers: 2, ..self }
    }

    /// Returns the bytes of dynamic shared memory that a block of `threads` threads needs.
    pub(super) fn shared_memory(&self, threads: u32) -> u32 {
        threads.div_ceil(32) * self.numbers * size_of::<f32>() as u32
    }

    /// Returns the most blocks of `threads` threads that are co-resident if nothing else runs; 0 if a block
    /// cannot have that many threads. Calls `ask` once per number of 32-thread units.
    pub(super) fn resident_blocks(
        &self,
        threads: u32,
        ask: impl FnOnce() -> CallResult<u32>,
    ) -> CallResult<u32> {
        let place = threads.checked_sub(1).map(|last| last as usize / 32);
        let Some(known) = place.and_then(|place| self.resident.get(place)) else {
            return Ok(0);
        };
        let blocks = known.load(Ordering::Relaxed);
        if blocks != UNKNOWN {
            return Ok(blocks);
        }
        let blocks = ask()?;
        known.store(blocks, Ordering::Relaxed);
        Ok(blocks)
    }
}

/// The kernels of a family of calls that takes small ones where they suffice. Their packets are the same, so members may
/// take different ones.
pub struct KernelsBySize<K> {
    /// For every call.
    pub any: WaitingKernel<K>,
    /// For the usual calls; `None` where there is only the other.
    pub small: Option<SmallKernels<K>>,
}

/// Small kernels for whole, aligned packets: the grid has a thread for every one, or for every few.
pub struct SmallKernels<K> {
    /// One packet a thread for each peer.
    pub few: WaitingKernel<K>,
    /// In a group of two: one packet a thread, two, and four. `None` for two-shot reductions.
    pub pairs: Option<[WaitingKernel<K>; 3]>,
    /// One packet a thread for each peer in a group of four or eight; `None` for LL packets.
    pub worlds: Option<ByWorld<K>>,
}

/// Kernels for one packet a thread that are compiled for a number of members.
pub struct ByWorld<K> {
    four: WaitingKernel<K>,
    eight: WaitingKernel<K>,
}

impl<K: Copy> ByWorld<K> {
    fn find(named: impl Fn(&str) -> CallResult<WaitingKernel<K>>) -> CallResult<Self> {
        Ok(Self {
            four: named("_four")?,
            eight: named("_eight")?,
        })
    }

    /// Returns the kernel for a group of `world` members, if there is one.
    pub fn of(&self, world: usize) -> Option<&WaitingKernel<K>> {
        match world {
            4 => Some(&self.four),
            8 => Some(&self.eight),
            _ => None,
        }
    }

    fn all(&self) -> [&WaitingKernel<K>; 2] {
        [&self.four, &self.eight]
    }
}

impl<K: Copy> KernelsBySize<K> {
    /// Finds the kernels by what their names say of the size.
    fn find(named: impl Fn(&str) -> CallResult<WaitingKernel<K>>) -> CallResult<Self> {
        let pairs = || {
            Some([
                named("_pair1").ok()?,
                named("_pair2").ok()?,
                named("_pair4").ok()?,
            ])
        };
        let small = |few| SmallKernels {
            few,
            pairs: pairs(),
            worlds: ByWorld::find(&named).ok(),
        };
        Ok(Self {
            any: named("")?,
            small: named("_few").ok().map(small),
        })
    }

    /// Returns the smallest kernel for `packets` to each of a group's members from a grid of `threads`. `whole` says
    /// whether all packets are whole and aligned, and `few` whether that kernel can do the call otherwise.
    pub(super) fn smallest(
        &self,
        world: usize,
        packets: u64,
        threads: u64,
        whole: bool,
        few: bool,
    ) -> &WaitingKernel<K> {
        let each = packets.div_ceil(threads.max(1));
        let small = self.small.as_ref().filter(|_| whole);
        let pairs = small.and_then(|small| small.pairs.as_ref());
        if let Some(pairs) = pairs.filter(|_| world == 2 && each <= 4) {
            return &pairs[each.max(1).next_power_of_two().ilog2() as usize];
        }
        match small.filter(|_| few && each <= 1) {
            Some(small) => {
                let of_world = small.worlds.as_ref().and_then(|worlds| worlds.of(world));
                of_world.unwrap_or(&small.few)
            }
            None => &self.any,
        }
    }

    /// Returns all kernels, any of which a call may take.
    pub fn all(&self) -> impl Iterator<Item = &WaitingKernel<K>> {
        let small = self.small.iter();
        let small = small.flat_map(|small| {
            let worlds = small.worlds.iter().flat_map(ByWorld::all);
            worlds
                .chain(small.pairs.iter().flatten())
                .chain([&small.few])
        });
        small.chain([&self.any])
    }
}

/// The kernels that move bytes, or reduce an element type, in Lamport packets.
pub struct LamportKernels<K> {
    /// For calls in which every member sends every other as much.
    pub equal: KernelsBySize<K>,
    /// For two-shot reductions; `None` for moves.
    pub two_shot: Option<KernelsBySize<K>>,
    /// Small kernels for reductions of which every member gets other elements; `None` for moves and 8-bit types.
    pub scatter: Option<ByWorld<K>>,
    /// For calls in which one member sends or receives.
    pub rooted: WaitingKernel<K>,
}

impl<K: Copy> LamportKernels<K> {
    /// Finds the kernels by what their names say of the call.
    fn find(named: impl Fn(&str) -> CallResult<WaitingKernel<K>>) -> CallResult<Self> {
        Ok(Self {
            equal: KernelsBySize::find(&named)?,
            two_shot: KernelsBySize::find(|size| named(&format!("_two_shot{size}"))).ok(),
            scatter: ByWorld::find(|world| named(&format!("_scatter{world}"))).ok(),
            rooted: named("_rooted")?,
        })
    }

    /// Returns all kernels.
    pub fn all(&self) -> impl Iterator<Item = &WaitingKernel<K>> {
        let two_shot = self.two_shot.iter().flat_map(KernelsBySize::all);
        let scatter = self.scatter.iter().flat_map(ByWorld::all);
        let equal = self.equal.all();
        equal.chain(two_shot).chain(scatter).chain([&self.rooted])
    }
}

/// The kernels that sum rows of an element type in Lamport packets, with a residual and a norm.
pub struct NormKernels<K> {
    /// For rows of any length at any address: one-shot, and two-shot.
    any: [WaitingKernel<K>; 2],
    /// `None` for types without small kernels.
    small: Option<SmallNormKernels<K>>,
}

/// Kernels for norms of rows of whole vectors, one a thread.
struct SmallNormKernels<K> {
    /// In a group of two: for all one-shot calls, plain ones, and narrow ones, and for two-shot calls.
    pair: [WaitingKernel<K>; 4],
    /// In any group of more than one, likewise.
    few: [WaitingKernel<K>; 4],
}

impl<K: Copy> NormKernels<K> {
    /// Finds the kernels by what their names say of the call.
    fn find(named: impl Fn(&str) -> CallResult<WaitingKernel<K>>) -> CallResult<Self> {
        let forms = |size: &str| -> Option<[WaitingKernel<K>; 4]> {
            let form = |form| named(&format!("_{size}{form}")).ok();
            Some([
                form("")?,
                form("_plain")?,
                form("_narrow")?,
                form("_shares")?,
            ])
        };
        let small = || {
            Some(SmallNormKernels {
                pair: forms("pair")?,
                few: forms("few")?,
            })
        };
        Ok(Self {
            any: [named("")?, named("_shares")?],
            small: small(),
        })
    }

    /// Returns the smallest kernel of a call. `whole` says whether rows are of whole, aligned vectors, at most one a thread.
    pub(super) fn smallest(
        &self,
        arguments: &ReduceNormArguments,
        whole: bool,
    ) -> &WaitingKernel<K> {
        let two_shot = arguments.is_two_shot();
        let form = match (arguments.is_plain(), arguments.is_narrow()) {
            _ if two_shot => 3,
            (true, _) => 1,
            (_, true) => 2,
            _ => 0,
        };
        match (
            self.small.as_ref().filter(|_| whole),
            arguments.reduce.group.world,
        ) {
            (Some(small), 2) => &small.pair[form],
            (Some(small), 3..) => &small.few[form],
            _ => &self.any[usize::from(two_shot)],
        }
    }

    /// Returns all kernels.
    pub fn all(&self) -> impl Iterator<Item = &WaitingKernel<K>> {
        let small = self.small.iter();
        let small = small.flat_map(|small| small.pair.iter().chain(&small.few));
        small.chain(&self.any)
    }
}

/// The kernels of one open device.
pub struct Kernels<K> {
    by_name: Vec<(&'static str, K)>,
    /// Put or get by 16-byte loads and stores.
    pub copy_vector: K,
    /// Put or get by TileScale's published method.
    pub copy_unrolled: K,
    /// Put or get by bulk copies; `None` on architectures without them.
    pub copy_bulk: Option<K>,
    /// Raises a signal.
    pub signal: K,
    /// Waits for a signal.
    pub wait: K,
    /// Raises a signal, then waits for another.
    pub step: K,
    /// Updates a word atomically.
    pub word_update: K,
    /// Waits for words.
    pub word_wait: K,
    /// A barrier of all ranks.
    pub barrier: K,
    /// Copies between two barriers.
    pub collective_move: WaitingKernel<K>,
    /// Swaps between two barriers.
    pub collective_swap: WaitingKernel<K>,
    /// Moves bytes in LL packets.
    pub collective_packets: KernelsBySize<K>,
    /// Moves bytes in Lamport packets.
    pub move_lamport: LamportKernels<K>,
    /// Moves bytes in pieces.
    pub collective_pieces: WaitingKernel<K>,
    /// Sends and receives.
    pub collective_exchange: WaitingKernel<K>,
    reduce: [WaitingKernel<K>; ELEMENTS],
    reduce_packets: [WaitingKernel<K>; ELEMENTS],
    /// `None` for types that have no such kernel.
    reduce_push: [Option<WaitingKernel<K>>; ELEMENTS],
    /// `None` for types that have no such kernels.
    reduce_lamport: [Option<LamportKernels<K>>; ELEMENTS],
    /// `None` for types that have no such kernels.
    reduce_norm: [Option<NormKernels<K>>; ELEMENTS],
    /// `None` for types that a switch cannot reduce, and on a device opened without multicast.
    multicast_reduce: [Option<WaitingKernel<K>>; ELEMENTS],
    multicast_move: Option<WaitingKernel<K>>,
}

impl<K: Copy> Kernels<K> {
    /// Builds the table from all loaded kernels and their names.
    ///
    /// # Errors
    /// `UNSUPPORTED`, with the name of a required kernel that is missing.
    pub fn new(by_name: Vec<(&'static str, K)>) -> CallResult<Self> {
        let find = |name: &str| find(&by_name, name);
        let waiting = |name: &str| find(name).map(WaitingKernel::new);
        Ok(Self {
            copy_vector: find("symmem_copy_vector")?,
            copy_unrolled: find("symmem_copy_unrolled")?,
            copy_bulk: find("symmem_copy_bulk").ok(),
            signal: find("symmem_signal")?,
            wait: find("symmem_wait")?,
            step: find("symmem_step")?,
            word_update: find("symmem_word_update")?,
            word_wait: find("symmem_word_wait")?,
            barrier: find("symmem_barrier")?,
            collective_move: waiting("symmem_move")?,
            collective_swap: waiting("symmem_swap")?,
            collective_packets: KernelsBySize::find(|size| {
                waiting(&format!("symmem_move_packets{size}"))
            })?,
            move_lamport: LamportKernels::find(|call| {
                waiting(&format!("symmem_move_lamport{call}"))
            })?,
            collective_pieces: waiting("symmem_move_pieces")?,
            collective_exchange: waiting("symmem_exchange")?,
            reduce: each_element("symmem_reduce", waiting)?,
            reduce_packets: each_element("symmem_reduce_packets", waiting)?,
            reduce_push: each_element("symmem_reduce_push", |name| Ok(waiting(name).ok()))?,
            reduce_lamport: std::array::from_fn(|index| {
                let element = element_name(index as u32 + 1);
                let named = |call: &str| waiting(&format!("symmem_reduce_lamport{call}_{element}"));
                LamportKernels::find(named).ok()
            }),
            reduce_norm: std::array::from_fn(|index| {
                let element = element_name(index as u32 + 1);
                let named = |call: &str| {
                    let kernel = waiting(&format!("symmem_reduce_norm{call}_{element}"))?;
                    Ok(kernel.with_sums())
                };
                NormKernels::find(named).ok()
            }),
            multicast_reduce: each_element("symmem_multicast_reduce", |name| {
                Ok(waiting(name).ok())
            })?,
            multicast_move: waiting("symmem_multicast_move").ok(),
            by_name,
        })
    }

    /// Returns a kernel by its name in `device/`.
    ///
    /// # Errors
    /// `UNSUPPORTED`, with the name, if it was not loaded.
    pub fn by_name(&self, name: &[u8]) -> CallResult<K> {
        find(&self.by_name, &String::from_utf8_lossy(name))
    }

    /// Returns the kernel of a family; families that do not reduce ignore `element`. `None` if the device lacks
    /// the kernel, for a family or element type of a newer release, or for a family of [`KernelsBySize`].
    pub(super) fn collective(
        &self,
        family: CollectiveKernel,
        element: ElementTypeCode,
    ) -> Option<&WaitingKernel<K>> {
        let index = (element.0 as usize).wrapping_sub(1);
        match family {
            CollectiveKernel::MOVE => Some(&self.collective_move),
            CollectiveKernel::SWAP => Some(&self.collective_swap),
            CollectiveKernel::PIECES => Some(&self.collective_pieces),
            CollectiveKernel::EXCHANGE => Some(&self.collective_exchange),
            CollectiveKernel::REDUCE => self.reduce.get(index),
            CollectiveKernel::REDUCE_PACKETS => self.reduce_packets.get(index),
            CollectiveKernel::REDUCE_PUSH => self.reduce_push.get(index)?.as_ref(),
            CollectiveKernel::MULTICAST_REDUCE => self.multicast_reduce.get(index)?.as_ref(),
            CollectiveKernel::MULTICAST_MOVE => self.multicast_move.as_ref(),
            _ => None,
        }
    }

    /// Returns the kernels that reduce an element type in Lamport packets; `None` if there are none.
    pub(super) fn lamport(&self, element: ElementTypeCode) -> Option<&LamportKernels<K>> {
        let index = (element.0 as usize).wrapping_sub(1);
        self.reduce_lamport.get(index)?.as_ref()
    }

    /// Returns the kernels that normalise rows of an element type; `None` if there are none.
    pub(super) fn norm(&self, element: ElementTypeCode) -> Option<&NormKernels<K>> {
        let index = (element.0 as usize).wrapping_sub(1);
        self.reduce_norm.get(index)?.as_ref()
    }

    /// Calls `look` with each kernel that a call of a family may take; families that do not reduce ignore `element`.
    pub(super) fn each_of(
        &self,
        family: CollectiveKernel,
        element: ElementTypeCode,
        look: impl FnMut(&WaitingKernel<K>) -> CallResult<()>,
    ) -> CallResult<()> {
        let packets = (family == CollectiveKernel::PACKETS).then_some(&self.collective_packets);
        let lamport = match family {
            CollectiveKernel::REDUCE_LAMPORT => self.lamport(element),
            CollectiveKernel::MOVE_LAMPORT => Some(&self.move_lamport),
            _ => None,
        };
        let norm = (family == CollectiveKernel::REDUCE_NORM).then(|| self.norm(element));
        let norm = norm.flatten().into_iter().flat_map(NormKernels::all);
        let one = self.collective(family, element);
        let packets = packets.into_iter().flat_map(KernelsBySize::all);
        let by_size = packets.chain(lamport.into_iter().flat_map(LamportKernels::all));
        by_size.chain(norm).chain(one).try_for_each(look)
    }
}

/// Looks up a family's kernel for each element type, in the order of the type numbers.
fn each_element<T>(
    family: &str,
    find: impl Fn(&str) -> CallResult<T>,
) -> CallResult<[T; ELEMENTS]> {
    let mut kernels = Vec::with_capacity(ELEMENTS);
    for element in element_names() {
        kernels.push(find(&format!("{family}_{element}"))?);
    }
    // `element_names` yields exactly ELEMENTS names.
    Ok(kernels.try_into().unwrap_or_else(|_| unreachable!()))
}

/// Returns the element types as they appear in kernel names, in the order of the type numbers.
fn element_names() -> impl Iterator<Item = String> {
    (1..=ELEMENTS as u32).map(element_name)
}

fn element_name(number: u32) -> String {
    ElementTypeCode(number).name().to_ascii_lowercase()
}

fn find<K: Copy>(by_name: &[(&'static str, K)], name: &str) -> CallResult<K> {
    let found = by_name.iter().find(|(known, _)| *known == name);
    found.map(|&(_, kernel)| kernel).ok_or_else(|| {
        Failure::new(
            Status::UNSUPPORTED,
            "builtin_function",
            format!("this device has no built-in kernel {name}"),
        )
    })
}

/// Returns the name of every kernel of `device/` and the size of its argument struct in bytes, for tests of the
/// compiled images. Some architectures have no bulk copies.
pub fn argument_bytes() -> Vec<(String, usize)> {
    let mut kernels = vec![
        ("copy_vector", size_of::<TransferArguments>()),
        ("copy_unrolled", size_of::<TransferArguments>()),
        ("copy_bulk", size_of::<TransferArguments>()),
        ("signal", size_of::<SignalTarget>()),
        ("wait", size_of::<SignalWait>()),
        ("step", size_of::<StepArguments>()),
        ("word_update", size_of::<WordOperation>()),
        ("word_wait", size_of::<WordWait>()),
        ("barrier", size_of::<Barrier>()),
        ("latency_packet", size_of::<LatencyArguments>()),
        ("latency_signal", size_of::<LatencyArguments>()),
        ("move", size_of::<MoveArguments>()),
        ("swap", size_of::<MoveArguments>()),
        ("move_pieces", size_of::<PieceArguments>()),
        ("move_packets", size_of::<PacketArguments>()),
        ("move_packets_few", size_of::<PacketArguments>()),
        ("move_packets_pair1", size_of::<PacketArguments>()),
        ("move_packets_pair2", size_of::<PacketArguments>()),
        ("move_packets_pair4", size_of::<PacketArguments>()),
        ("move_lamport", size_of::<MoveLamportArguments>()),
        ("move_lamport_four", size_of::<MoveLamportArguments>()),
        ("move_lamport_eight", size_of::<MoveLamportArguments>()),
        ("move_lamport_rooted", size_of::<MoveLamportArguments>()),
        ("move_lamport_few", size_of::<MoveLamportArguments>()),
        ("move_lamport_pair1", size_of::<MoveLamportArguments>()),
        ("move_lamport_pair2", size_of::<MoveLamportArguments>()),
        ("move_lamport_pair4", size_of::<MoveLamportArguments>()),
        ("exchange", size_of::<ExchangeArguments>()),
    ]
    .into_iter()
    .map(|(name, bytes)| (format!("symmem_{name}"), bytes))
    .collect::<Vec<_>>();
    for element in element_names() {
        let one = format!("symmem_reduce_{element}");
        kernels.push((one, size_of::<ReduceArguments>()));
        let packets = format!("symmem_reduce_packets_{element}");
        kernels.push((packets, size_of::<ReducePacketArguments>()));
    }
    for element in ["f16", "bf16", "f32"] {
        let push = format!("symmem_reduce_push_{element}");
        kernels.push((push, size_of::<ReducePushArguments>()));
        let sizes = ["few", "pair1", "pair2", "pair4", "two_shot_few"];
        let worlds = ["", "scatter_", "two_shot_"];
        let worlds = worlds
            .iter()
            .flat_map(|call| ["four", "eight"].map(|world| format!("{call}{world}")));
        for size in sizes.map(String::from).into_iter().chain(worlds) {
            let small = format!("symmem_reduce_lamport_{size}_{element}");
            kernels.push((small, size_of::<ReduceLamportArguments>()));
        }
    }
    let norm = |name: &str| {
        let name = format!("symmem_reduce_norm_{name}");
        (name, size_of::<ReduceNormArguments>())
    };
    kernels.extend(["f32", "shares_f32"].map(norm));
    for element in ["f16", "bf16"] {
        kernels.extend(["", "shares_"].map(|call| norm(&format!("{call}{element}"))));
        let sizes = ["pair", "few"];
        let forms = ["", "plain_", "narrow_", "shares_"];
        let small = sizes
            .iter()
            .flat_map(|size| forms.map(|form| norm(&format!("{size}_{form}{element}"))));
        kernels.extend(small);
    }
    for element in ["f16", "bf16", "f32", "f8_e4m3", "f8_e5m2"] {
        for call in ["", "two_shot_", "rooted_"] {
            let any = format!("symmem_reduce_lamport_{call}{element}");
            kernels.push((any, size_of::<ReduceLamportArguments>()));
        }
    }
    kernels
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::LazyLock;

    #[test]
    fn elements_are_named_in_the_order_of_their_numbers_and_all_are_known() {
        let names: Vec<_> = element_names().collect();
        assert_eq!(names[ElementTypeCode::BF16.0 as usize - 1], "bf16");
        assert_eq!(names[ElementTypeCode::F8_E5M2.0 as usize - 1], "f8_e5m2");
        assert!(names.iter().all(|name| name != "unknown"));
        assert_eq!(ElementTypeCode(ELEMENTS as u32 + 1).name(), "unknown");
    }

    #[test]
    fn a_kernel_that_was_not_loaded_is_told_by_its_name_and_only_bulk_and_pushes_may_be_missing() {
        static NAMES: LazyLock<Vec<String>> =
            LazyLock::new(|| argument_bytes().into_iter().map(|(name, _)| name).collect());
        let without = |left_out: &str| {
            let names = NAMES.iter().filter(|name| *name != left_out);
            Kernels::new(names.map(|name| (&**name, 7)).collect())
        };
        let failure = without("symmem_reduce_bf16").err().expect("it is missing");
        assert_eq!(failure.status, Status::UNSUPPORTED);
        assert!(failure.message.contains("symmem_reduce_bf16"));
        let kernels = without("symmem_copy_bulk").expect("not every device has it");
        assert_eq!(kernels.copy_bulk, None);
        assert_eq!(kernels.by_name(b"symmem_latency_packet").unwrap(), 7);
        let kernels = without("symmem_reduce_push_bf16").expect("not every type has it");
        let pushes = |element| {
            kernels
                .collective(CollectiveKernel::REDUCE_PUSH, element)
                .is_some()
        };
        assert!(
            !pushes(ElementTypeCode::BF16)
                && !pushes(ElementTypeCode::I32)
                && pushes(ElementTypeCode::F32)
        );
        assert!(kernels.by_name(b"symmem_\xff").is_err());
    }
}
