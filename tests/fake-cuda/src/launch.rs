//! Kernel launches.

use std::ffi::c_void;

use fake_device::api;
use fake_device::error::{Code, Result};
use fake_device::launch::{Grid, kernel};

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfiguration {
    /// Blocks along x, y, z.
    pub blocks: [u32; 3],
    /// Threads of a block along x, y, z.
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The stream.
    pub stream: u64,
    /// Attributes. None changes what the fake does, but clusters must be valid.
    pub attributes: *const LaunchAttribute,
    /// How many attributes.
    pub attribute_count: u32,
}

/// `CUlaunchAttribute`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct LaunchAttribute {
    kind: u32,
    padding: u32,
    value: [u32; 16],
}

/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
const CLUSTERS: u32 = 4;
/// The most blocks of a cluster that every device supports.
const MOST_BLOCKS: u32 = 8;

impl LaunchConfiguration {
    fn attributes(&self) -> &[LaunchAttribute] {
        match self.attribute_count {
            0 => &[],
            // SAFETY: the caller of the driver promises `count` attributes.
            count => unsafe { std::slice::from_raw_parts(self.attributes, count as usize) },
        }
    }

    /// Returns the blocks of a cluster, 1 without clusters; fails if the grid does not consist of whole ones of a
    /// supported size.
    pub fn cluster(&self) -> Result<u32> {
        if !clusters_fit(self.attributes(), self.blocks) {
            return Err(Code::INVALID_VALUE);
        }
        let mut attributes = self.attributes().iter();
        let cluster = attributes.find(|attribute| attribute.kind == CLUSTERS);
        Ok(cluster.map_or(1, |cluster| cluster.value[..3].iter().product()))
    }
}

/// Whether a grid consists of whole clusters of a supported size.
fn clusters_fit(attributes: &[LaunchAttribute], blocks: [u32; 3]) -> bool {
    attributes
        .iter()
        .filter(|attribute| attribute.kind == CLUSTERS)
        .all(|attribute| {
            let [x, y, z, ..] = attribute.value;
            let whole = |(blocks, size): (u32, u32)| size != 0 && blocks.is_multiple_of(size);
            blocks.into_iter().zip([x, y, z]).all(whole) && x * y * z <= MOST_BLOCKS
        })
}

api! { unsafe;
    fn [cuLaunchKernel](
        function: u64,
        blocks_x: u32, blocks_y: u32, blocks_z: u32,
        threads_x: u32, threads_y: u32, threads_z: u32,
        shared: u32, stream: u64,
        parameters: *const *const u8, extra: *const *const c_void,
    ) {
        let blocks = [blocks_x, blocks_y, blocks_z];
        let grid = Grid { blocks, threads: [threads_x, threads_y, threads_z], shared };
        // SAFETY: the caller promises arguments in a form that the driver accepts.
        unsafe { kernel(function, grid, stream, parameters, extra) }
    }
    fn [cuLaunchKernelEx](
        configuration: Option<&LaunchConfiguration>, function: u64,
        parameters: *const *const u8, extra: *const *const c_void,
    ) {
        let configuration = configuration.ok_or(Code::INVALID_VALUE)?;
        configuration.cluster()?;
        let LaunchConfiguration { blocks, threads, shared, stream, .. } = *configuration;
        // SAFETY: the caller promises arguments in a form that the driver accepts.
        unsafe { kernel(function, Grid { blocks, threads, shared }, stream, parameters, extra) }
    }
}
