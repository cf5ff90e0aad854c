//! Physical limits of known devices, drawn as lines in the plots.

use super::compare::published::Link;
use super::plot::Limit;

/// Dense f16 and bf16 of one H100 or H200 with SXM, TFLOP/s: half of what NVIDIA's data sheets give with sparsity (1979).
const HOPPER_DENSE: f64 = 989.5;

/// Returns the rating of the links if all devices are of one known model.
fn link(devices: &[String]) -> Option<&'static Link> {
    let first = devices.first()?;
    let alike = devices.iter().all(|name| name == first);
    Link::of(first).filter(|_| alike)
}

fn rate(value: f64) -> Limit {
    Limit {
        name: format!("link limit {value} GB/s"),
        value,
    }
}

/// Returns the bandwidth of a pair's link in one direction.
pub(super) fn of_pairs(devices: &[String]) -> Option<Limit> {
    Some(rate(link(devices)?.pair))
}

/// Returns the bandwidth of a device to its `world - 1` peers in one direction.
pub(super) fn of_collectives(devices: &[String], world: u32) -> Option<Limit> {
    let limit = link(devices)?.to_peers(world);
    (limit > 0.0).then(|| rate(limit))
}

/// Returns the peak rate of dense f16 and bf16 GEMMs of one device.
pub(super) fn of_products(devices: &[String]) -> Option<Limit> {
    let known = |name: &String| name == "NVIDIA H200" || name == "NVIDIA H100 80GB HBM3";
    (!devices.is_empty() && devices.iter().all(known)).then(|| Limit {
        name: format!("dense peak {HOPPER_DENSE} TFLOP/s"),
        value: HOPPER_DENSE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_devices_of_one_model_have_limits() {
        let devices = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        let two = devices(&["NVIDIA H200"; 2]);
        assert_eq!(of_pairs(&two).unwrap().name, "link limit 450 GB/s");
        assert_eq!(of_collectives(&two, 8).unwrap().value, 450.0);
        assert_eq!(of_products(&two).unwrap().value, HOPPER_DENSE);
        for names in [
            &[][..],
            &["Intel(R) Xeon(R) Processor"; 2],
            &["NVIDIA H200", "AMD Instinct MI300X"],
        ] {
            let names = devices(names);
            assert_eq!(of_pairs(&names), None);
            assert_eq!(of_collectives(&names, 2), None);
            assert_eq!(of_products(&names), None);
        }
        let mesh = devices(&["AMD Instinct MI300X"; 8]);
        assert_eq!(of_pairs(&mesh).unwrap().value, 64.0);
        assert_eq!(of_collectives(&mesh, 8).unwrap().value, 448.0);
    }
}
