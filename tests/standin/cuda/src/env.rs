//! Environment variables of the stand-in. Only this module reads them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::fault::Fault;

/// Time that calls of each kind take, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency(Vec<(String, u64)>);

impl Latency {
    /// Returns the time that calls of this name take, in nanoseconds.
    pub fn of(&self, call: &str) -> u64 {
        let found = self.0.iter().find(|(name, _)| name == call);
        found.map_or(0, |(_, nanos)| *nanos)
    }

    /// Blocks the calling thread for the time that calls of this name take.
    pub fn spend(&self, call: &str) {
        if self.0.is_empty() {
            return;
        }
        let duration = std::time::Duration::from_nanos(self.of(call));
        let start = std::time::Instant::now();
        if duration.as_micros() > 200 {
            std::thread::sleep(duration);
        }
        // Sleep is too coarse for the microseconds that a driver call takes.
        while start.elapsed() < duration {
            std::hint::spin_loop();
        }
    }
}

/// A feature that a device can lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Virtual memory management: `cuMemCreate`, `cuMemMap` and related functions.
    Vmm,
    /// Stream-ordered pools and allocation nodes.
    Pools,
}

/// Settings from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `STANDIN_DEVICES`: number of devices.
    pub devices: u32,
    /// `STANDIN_MEMORY`: memory of each device, in bytes.
    pub memory: u64,
    /// `STANDIN_SHARED`: file with the memory that each process has taken. It counts for all
    /// processes that name the file.
    pub shared: Option<PathBuf>,
    /// `STANDIN_LATENCY`: `name=time,...`. Names of host calls: malloc, free, create. Names of
    /// work on streams: copy, set, launch.
    pub latency: Latency,
    /// `STANDIN_REPORT`: file to which findings are appended.
    pub report: Option<PathBuf>,
    /// `STANDIN_VERSION`: the driver's version, 13000 for CUDA 13.0.
    pub version: i32,
    /// `STANDIN_DISABLE`: functions that `cuGetProcAddress` does not find.
    pub disabled: Vec<String>,
    /// `STANDIN_MODULE_BYTES`: device memory that a loaded module or library takes, in bytes.
    pub module_bytes: u64,
    /// `STANDIN_GRAPH_BYTES`: device memory that an executable graph takes, in bytes.
    pub graph_bytes: u64,
    /// `STANDIN_LACKS`: features that no device has, of `vmm` and `pools`. Attributes report them
    /// as missing. `cuGetProcAddress` finds their functions, but these return
    /// `CUDA_ERROR_NOT_SUPPORTED`.
    pub lacking: Vec<Feature>,
    /// `STANDIN_FAULT`: calls that fail or are slow without a cause; see [`Fault::read`].
    pub faults: Vec<Fault>,
    /// `STANDIN_COUNT`: true if calls of each function are counted, for `standin_calls`.
    pub count: bool,
    /// `STANDIN_MEMORY_ORDERS` (`yes` or `no`): true if allocating and freeing put other work in
    /// order, as the wait of `cuMemFree` does. With `no`, a program that relies on this order gets
    /// findings.
    pub memory_orders: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            devices: 1,
            memory: 8 << 30,
            shared: None,
            latency: Latency::default(),
            report: None,
            version: 13000,
            disabled: Vec::new(),
            module_bytes: 0,
            graph_bytes: 0,
            lacking: Vec::new(),
            faults: Vec::new(),
            count: false,
            memory_orders: true,
        }
    }
}

impl Settings {
    /// True if the devices lack the feature.
    pub fn lacks(&self, feature: Feature) -> bool {
        self.lacking.contains(&feature)
    }

    /// Reads the variables. An invalid value adds a message to the second result, and the default
    /// applies.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> (Settings, Vec<String>) {
        let mut settings = Settings::default();
        let mut problems = Vec::new();
        let mut text = |name: &str, expected: &str, accept: &mut dyn FnMut(&str) -> Option<()>| {
            let Some(value) = lookup(name) else { return };
            if value.to_str().and_then(accept).is_none() {
                problems.push(format!("{name}={}: expected {expected}", value.display()));
            }
        };
        text("STANDIN_DEVICES", "a number from 0 to 64", &mut |value| {
            settings.devices = value.parse().ok().filter(|count| *count <= 64)?;
            Some(())
        });
        text("STANDIN_MEMORY", "bytes, as 8G or 512M", &mut |value| {
            settings.memory = bytes(value).filter(|bytes| *bytes > 0)?;
            Some(())
        });
        text(
            "STANDIN_LATENCY",
            "name=time pairs, as malloc=30us,copy=1ms",
            &mut |value| {
                let pair = |pair: &str| {
                    let (name, time) = pair.split_once('=')?;
                    Some((name.trim().to_string(), nanos(time.trim())?))
                };
                let pairs: Option<Vec<_>> = parts(value).map(pair).collect();
                settings.latency = Latency(pairs?);
                Some(())
            },
        );
        text(
            "STANDIN_VERSION",
            "a version as 12080 for 12.8",
            &mut |value| {
                settings.version = value.parse().ok().filter(|version| *version >= 2000)?;
                Some(())
            },
        );
        text("STANDIN_DISABLE", "names of functions", &mut |value| {
            settings.disabled = parts(value).map(str::to_string).collect();
            Some(())
        });
        text("STANDIN_MODULE_BYTES", "bytes, as 6M", &mut |value| {
            settings.module_bytes = bytes(value)?;
            Some(())
        });
        text("STANDIN_GRAPH_BYTES", "bytes, as 6M", &mut |value| {
            settings.graph_bytes = bytes(value)?;
            Some(())
        });
        text("STANDIN_LACKS", "vmm, pools or both", &mut |value| {
            let feature = |name| match name {
                "vmm" => Some(Feature::Vmm),
                "pools" => Some(Feature::Pools),
                _ => None,
            };
            settings.lacking = parts(value).map(feature).collect::<Option<_>>()?;
            Some(())
        });
        let expected = "NAME:WHEN:CODE parts, as cuMemCreate:2+:801 or cuMemFree_v2:1:0:before=5ms";
        text("STANDIN_FAULT", expected, &mut |value| {
            let faults = parts(value).map(|part| Fault::read(part, nanos));
            settings.faults = faults.collect::<Option<_>>()?;
            Some(())
        });
        settings.count = lookup("STANDIN_COUNT").is_some();
        text("STANDIN_MEMORY_ORDERS", "yes or no", &mut |value| {
            settings.memory_orders = match value {
                "yes" => true,
                "no" => false,
                _ => return None,
            };
            Some(())
        });
        settings.report = lookup("STANDIN_REPORT")
            .filter(|path| !path.is_empty())
            .map(PathBuf::from);
        settings.shared = lookup("STANDIN_SHARED").map(PathBuf::from);
        (settings, problems)
    }
}

/// Returns the settings of this process, read at the first call.
pub fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let (settings, problems) = Settings::from_lookup(|name| std::env::var_os(name));
        for problem in problems {
            eprintln!("standin: {problem}");
        }
        settings
    })
}

fn parts(value: &str) -> impl Iterator<Item = &str> {
    value
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

/// Parses a number of bytes with a binary suffix, as `512M`, `8G`, `1.5GiB`.
fn bytes(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    Some((number.parse::<f64>().ok()? * (1u64 << shift) as f64) as u64)
}

/// Parses a time with a unit and returns nanoseconds.
fn nanos(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    Some((number.parse::<f64>().ok()? * scale) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Settings, Vec<String>) {
        Settings::from_lookup(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.into())
        })
    }

    #[test]
    fn reads_what_it_is_told() {
        let (settings, problems) = read(&[
            ("STANDIN_DEVICES", "2"),
            ("STANDIN_MEMORY", "1.5GiB"),
            ("STANDIN_LATENCY", "malloc=30us, copy=2ms"),
            ("STANDIN_DISABLE", "cuCtxRecordEvent,cuCtxWaitEvent"),
            ("STANDIN_VERSION", "12040"),
            ("STANDIN_MODULE_BYTES", "6M"),
            ("STANDIN_GRAPH_BYTES", "3M"),
            ("STANDIN_LACKS", "pools,vmm"),
            (
                "STANDIN_FAULT",
                "cuMemCreate:2+:801, cuMemFree_v2:1:0:before=5ms",
            ),
            ("STANDIN_COUNT", "1"),
            ("STANDIN_MEMORY_ORDERS", "no"),
        ]);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!((settings.devices, settings.memory), (2, 3 << 29));
        assert_eq!(settings.latency.of("malloc"), 30_000);
        assert_eq!(settings.latency.of("copy"), 2_000_000);
        assert_eq!(settings.latency.of("free"), 0);
        assert_eq!(settings.disabled, ["cuCtxRecordEvent", "cuCtxWaitEvent"]);
        assert_eq!(settings.version, 12040);
        assert_eq!(settings.module_bytes, 6 << 20);
        assert_eq!(settings.graph_bytes, 3 << 20);
        assert_eq!(settings.lacking, [Feature::Pools, Feature::Vmm]);
        assert_eq!((settings.faults.len(), settings.count), (2, true));
        assert!(!settings.memory_orders);
    }

    #[test]
    fn nonsense_is_named_and_the_default_holds() {
        let (settings, problems) = read(&[
            ("STANDIN_MEMORY", "lots"),
            ("STANDIN_DEVICES", "2"),
            ("STANDIN_LACKS", "vmm,brakes"),
        ]);
        assert_eq!(settings.memory, 8 << 30);
        assert_eq!(settings.devices, 2);
        assert_eq!(settings.lacking, []);
        assert_eq!(
            problems,
            [
                "STANDIN_MEMORY=lots: expected bytes, as 8G or 512M",
                "STANDIN_LACKS=vmm,brakes: expected vmm, pools or both",
            ]
        );
    }
}
