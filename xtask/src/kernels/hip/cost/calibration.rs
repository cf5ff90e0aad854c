//! The model beside published kernels of known speed.
//!
//! HipKittens' bf16 GEMMs with tiles of 256 by 256 (`HazyResearch/HipKittens`, `analysis/bf16_gemm`, November 2025) were
//! compiled by clang 22 from its public sources, which are not part of this repository, and analyzed by `cargo xtask
//! kernels cost --file`. AMD's compiler made the published times, so that their machine code may differ. Conflicts in
//! shared memory were not counted: its authors say that there are none. No figure of the model was fitted to the times.
//!
//! The clock under load was not published with the times. For MI325X it is AMD's for its own GEMM (1447 MHz, MAF); for
//! MI355X 1700 MHz, between those of published logs (1650 and 1725 MHz at its power limit).

use serde::Serialize;

use super::devices::Device;

/// A published time of a GEMM.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Published {
    pub kernel: &'static str,
    pub target: &'static str,
    pub product: &'static str,
    /// Rows, columns and depth of the GEMM, and of a tile.
    pub side: f64,
    pub tile: f64,
    /// The model's clocks for a step of a tile, and the depth of a step.
    pub clocks: f64,
    pub depth: f64,
    /// The assumed clock in MHz.
    pub mhz: f64,
    pub published_tflops: f64,
}

const fn hipkittens(
    target: &'static str,
    side: f64,
    clocks: f64,
    published_tflops: f64,
) -> Published {
    let is_cdna3 = matches!(target.as_bytes(), b"gfx942");
    Published {
        kernel: "HipKittens bf16",
        target,
        product: if is_cdna3 { "MI325X" } else { "MI355X" },
        side,
        tile: 256.0,
        clocks,
        depth: if is_cdna3 { 64.0 } else { 128.0 },
        mhz: if is_cdna3 { 1447.0 } else { 1700.0 },
        published_tflops,
    }
}

/// The published times (`mi325x_bf16_gemm.json` and `mi355x_bf16_gemm.json`).
pub const PUBLISHED: [Published; 6] = [
    hipkittens("gfx942", 4096.0, 4208.0, 713.7),
    hipkittens("gfx942", 8192.0, 4208.0, 749.4),
    hipkittens("gfx942", 16384.0, 4208.0, 714.3),
    hipkittens("gfx950", 4096.0, 4360.0, 1412.9),
    hipkittens("gfx950", 8192.0, 4339.0, 1610.5),
    hipkittens("gfx950", 16384.0, 4360.0, 1571.5),
];

impl Published {
    /// Returns the TFLOP/s that the model predicts: compute units take tiles in rounds; a tile has its steps, two
    /// latencies of memory before them, and its stores at the compute unit's share of HBM's rate behind them.
    pub fn predicted(&self, device: &Device) -> f64 {
        let tiles = (self.side / self.tile).powi(2);
        let rounds = (tiles / f64::from(device.compute_units)).ceil();
        let steps = self.side / self.depth * self.clocks;
        let before = 2.0 * device.memory_latency as f64;
        let behind =
            self.tile.powi(2) * 2.0 / device.share(device.memory_rate, device.compute_units);
        let seconds = rounds * (before + steps + behind) / (self.mhz * 1e6);
        2.0 * self.side.powi(3) / seconds / 1e12
    }
}

/// A prediction beside its time.
#[derive(Debug, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub published: Published,
    pub predicted_tflops: f64,
    /// How much faster the prediction is than what was published.
    pub error: f64,
}

/// Returns all predictions.
pub fn rows() -> Vec<Row> {
    let of_row = |published: &Published| {
        let device = super::devices::DEVICES
            .iter()
            .find(|device| device.target == published.target)?;
        let predicted_tflops = published.predicted(device);
        Some(Row {
            published: *published,
            predicted_tflops,
            error: predicted_tflops / published.published_tflops - 1.0,
        })
    };
    PUBLISHED.iter().filter_map(of_row).collect()
}

/// Returns the mean and the largest absolute error.
pub fn errors(rows: &[Row]) -> (f64, f64) {
    let errors = || rows.iter().map(|row| row.error.abs());
    let mean = errors().sum::<f64>() / rows.len().max(1) as f64;
    (mean, errors().fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_near_the_published_times() {
        let rows = rows();
        assert_eq!(rows.len(), PUBLISHED.len());
        let (mean, largest) = errors(&rows);
        assert!(mean < 0.08 && largest < 0.17, "{mean} {largest}: {rows:#?}");
    }

    #[test]
    fn tiles_that_fill_a_round_in_part_cost_a_round() {
        let device = Device::of("gfx942").unwrap();
        // 256 tiles of 304 compute units, and 289.
        let time = |side: f64| {
            let published = Published {
                side,
                ..PUBLISHED[0]
            };
            2.0 * side.powi(2) / published.predicted(device)
        };
        assert!((time(17.0 * 256.0) / time(16.0 * 256.0) - 1.0).abs() < 0.01);
    }
}
