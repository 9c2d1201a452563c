//! Temperature and power: which sensors there are, and how far the board is from slowing itself down.

use super::finding::Finding;
use super::system::System;
use crate::agent::gauges::read_sensors;
use serde::Serialize;

const SUBJECT: &str = "heat";
const ZONES: &str = "sys/class/thermal";

/// A zone this near to its limit is warm for a board that idles, in thousandths of a degree.
const NEAR_MC: i64 = 10_000;

/// A part of the board whose temperature the kernel watches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Zone {
    /// What the board calls it.
    pub name: String,
    /// Temperature in thousandths of a degree.
    pub millidegrees: i64,
    /// From here on the kernel slows the board down.
    pub slows_at_millidegrees: Option<i64>,
}

/// The sensors.
#[derive(Clone, Debug, Serialize)]
pub struct Heat {
    /// Thermal zones that can be read.
    pub zones: Vec<Zone>,
    /// What the agent would report of hwmon sensors: hottest temperature in tenths of a degree.
    pub hwmon_decidegrees: Option<i16>,
    /// Sum of the power sensors in mW.
    pub power_mw: Option<u32>,
    /// Whether an energy meter is there.
    pub has_energy_meter: bool,
}

impl Heat {
    /// Reads all sensors.
    pub fn read(system: &System) -> Self {
        let sensors = read_sensors(&system.path("sys/class"));
        Self {
            zones: zones(system),
            hwmon_decidegrees: sensors.temperature_dc,
            power_mw: sensors.power_mw,
            has_energy_meter: sensors.energy_mj.is_some(),
        }
    }

    /// What there is to say.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![Finding::fine(SUBJECT, self.describe())];
        for zone in &self.zones {
            if let Some(limit) = zone.slows_at_millidegrees.filter(|limit| zone.millidegrees > limit - NEAR_MC) {
                let degrees = |value: i64| value / 1000;
                let (now, limit) = (degrees(zone.millidegrees), degrees(limit));
                let text = format!("{} has {now} °C, and is slowed down from {limit} °C on", zone.name);
                findings.push(Finding::warning(SUBJECT, text, "cool it: preparing images keeps all cores busy"));
            }
        }
        findings
    }

    fn describe(&self) -> String {
        let hottest = self.zones.iter().max_by_key(|zone| zone.millidegrees);
        let mut parts = Vec::new();
        if let Some(zone) = hottest {
            let count = self.zones.len();
            parts.push(format!(
                "{count} thermal zones, the hottest {} with {} °C",
                zone.name,
                zone.millidegrees / 1000
            ));
        }
        if let Some(decidegrees) = self.hwmon_decidegrees {
            parts.push(format!("hwmon {} °C", decidegrees / 10));
        }
        if let Some(milliwatts) = self.power_mw {
            parts.push(format!("{:.1} W", f64::from(milliwatts) / 1000.0));
        }
        if self.has_energy_meter {
            parts.push("an energy meter".into());
        }
        if parts.is_empty() {
            return "no sensors: hosts see no temperature, power or energy of this drive".into();
        }
        parts.join(", ")
    }
}

fn zones(system: &System) -> Vec<Zone> {
    let names = system.names(ZONES).into_iter().filter(|name| name.starts_with("thermal_zone"));
    let zone = |folder: String| {
        let file = |name: &str| format!("{ZONES}/{folder}/{name}");
        let trips = system.names(&format!("{ZONES}/{folder}"));
        let passive = trips.iter().filter_map(|name| name.strip_suffix("_type")).filter(|trip| {
            trip.starts_with("trip_point") && system.text(&file(&format!("{trip}_type"))).as_deref() == Some("passive")
        });
        let limits = passive.filter_map(|trip| system.value::<i64>(&file(&format!("{trip}_temp"))));
        Some(Zone {
            millidegrees: system.value(&file("temp"))?,
            slows_at_millidegrees: limits.filter(|limit| *limit > 0).min(),
            name: system.text(&file("type")).unwrap_or(folder),
        })
    };
    names.filter_map(zone).collect()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::system::board_with;
    use super::*;

    #[test]
    fn a_zone_near_its_limit_is_a_warning() {
        let (_root, system) = board_with(&[
            ("sys/class/thermal/thermal_zone0/type", "bigcore0-thermal\n"),
            ("sys/class/thermal/thermal_zone0/temp", "78500\n"),
            ("sys/class/thermal/thermal_zone0/trip_point_0_type", "passive\n"),
            ("sys/class/thermal/thermal_zone0/trip_point_0_temp", "85000\n"),
            ("sys/class/thermal/thermal_zone0/trip_point_1_type", "critical\n"),
            ("sys/class/thermal/thermal_zone0/trip_point_1_temp", "115000\n"),
            ("sys/class/thermal/thermal_zone1/type", "gpu-thermal\n"),
            ("sys/class/thermal/thermal_zone1/temp", "40000\n"),
            ("sys/class/thermal/cooling_device0/type", "cpufreq\n"),
            ("sys/class/hwmon/hwmon0/temp1_input", "41200\n"),
            ("sys/class/hwmon/hwmon0/power1_input", "3500000\n"),
        ]);
        let heat = Heat::read(&system);
        assert_eq!(heat.zones.len(), 2);
        assert_eq!(heat.zones[0].slows_at_millidegrees, Some(85_000));
        let findings = heat.findings();
        assert_eq!(findings[0].text, "2 thermal zones, the hottest bigcore0-thermal with 78 °C, hwmon 41 °C, 3.5 W");
        assert_eq!((findings[1].level, findings.len()), (Level::Warning, 2));
    }

    #[test]
    fn a_board_without_sensors_is_said_to_have_none() {
        let (_root, system) = board_with(&[]);
        assert!(Heat::read(&system).findings()[0].text.starts_with("no sensors"));
    }
}
