//! The configurations: the driver's, and the shim's on top of it.

use crate::generate::{Profile, Shape};
use crate::judge::Rules;

/// A driver that programs run on: the native run is the same for all shims above it.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    pub name: &'static str,
    /// Focus of its programs in operations.
    pub profile: Profile,
    pub devices: u8,
    /// Memory of each, in bytes.
    pub memory: u64,
    /// Variables of the stand-in beside those.
    pub env: &'static [(&'static str, &'static str)],
    /// Its share of all steps of a campaign.
    pub share: u64,
    /// Factor of the length of its programs.
    pub length: u64,
    /// The shims that run on it.
    pub shims: &'static [&'static Shim],
}

/// One configuration of the shim.
#[derive(Debug)]
pub struct Shim {
    /// Name of the configuration.
    pub name: &'static str,
    /// Environment variables of the configuration.
    pub env: &'static [(&'static str, &'static str)],
    /// `GPUSHIM_LIMIT`, in bytes.
    pub limit: Option<u64>,
    /// Duration of a pause, in microseconds.
    pub pause: u64,
}

const GIB: u64 = 1 << 30;

macro_rules! shim {
    ($id:ident, $name:literal, $($key:literal = $value:literal),*) => {
        static $id: Shim = Shim { name: $name, env: &[$(($key, $value)),*], limit: None, pause: 0 };
    };
}

shim!(AUTO, "auto",);
shim!(BLOCKS, "blocks", "GPUSHIM_POLICY" = "blocks");
shim!(OFF, "off", "GPUSHIM_POLICY" = "off");
shim!(
    WAIT,
    "blocks-wait",
    "GPUSHIM_POLICY" = "blocks",
    "GPUSHIM_REUSE" = "wait"
);
shim!(STRICT, "auto-strict", "GPUSHIM_REUSE" = "strict");
shim!(
    VMM_WAIT,
    "vmm-wait",
    "GPUSHIM_POLICY" = "vmm",
    "GPUSHIM_REUSE" = "wait"
);
shim!(
    TRACED,
    "auto-traced",
    "GPUSHIM_TRACE" = "@trace",
    "GPUSHIM_TRACE_SIZE" = "1M"
);
shim!(
    SPOOLED,
    "blocks-spooled",
    "GPUSHIM_POLICY" = "blocks",
    "GPUSHIM_TRACE" = "@trace",
    "GPUSHIM_TRACE_SIZE" = "1M",
    "GPUSHIM_TRACE_MODE" = "full"
);

shim!(
    BLOCKS_STRICT,
    "blocks-strict",
    "GPUSHIM_POLICY" = "blocks",
    "GPUSHIM_REUSE" = "strict"
);

static DECAY: Shim = Shim {
    name: "auto-decay",
    env: &[("GPUSHIM_DECAY", "4ms"), ("STANDIN_LATENCY", "free=1ms")],
    limit: None,
    pause: 3000,
};
static DECAY_BLOCKS: Shim = Shim {
    name: "blocks-decay",
    env: &[
        ("GPUSHIM_POLICY", "blocks"),
        ("GPUSHIM_DECAY", "4ms"),
        ("STANDIN_LATENCY", "free=1ms"),
    ],
    limit: None,
    pause: 3000,
};
static LIMITED: Shim = Shim {
    name: "auto-limit",
    env: &[("GPUSHIM_LIMIT", "1G")],
    limit: Some(GIB),
    pause: 0,
};
static LIMITED_BLOCKS: Shim = Shim {
    name: "blocks-limit",
    env: &[("GPUSHIM_POLICY", "blocks"), ("GPUSHIM_LIMIT", "1G")],
    limit: Some(GIB),
    pause: 0,
};
static LIMITED_OFF: Shim = Shim {
    name: "off-limit",
    env: &[("GPUSHIM_POLICY", "off"), ("GPUSHIM_LIMIT", "1G")],
    limit: Some(GIB),
    pause: 0,
};

static POLICIES: [&Shim; 3] = [&AUTO, &BLOCKS, &OFF];
static ALL: [&Shim; 8] = [
    &AUTO, &BLOCKS, &OFF, &WAIT, &STRICT, &VMM_WAIT, &TRACED, &SPOOLED,
];
static CROWDED: [&Shim; 5] = [&AUTO, &BLOCKS, &STRICT, &BLOCKS_STRICT, &OFF];
static DECAYING: [&Shim; 2] = [&DECAY, &DECAY_BLOCKS];
static WITH_LIMIT: [&Shim; 3] = [&LIMITED, &LIMITED_BLOCKS, &LIMITED_OFF];

/// All drivers of a campaign.
pub static DRIVERS: &[Driver] = &[
    Driver {
        name: "addresses",
        profile: Profile::Addresses,
        devices: 1,
        memory: 16 * GIB,
        env: &[],
        share: 6,
        length: 1,
        shims: &POLICIES,
    },
    Driver {
        name: "addresses-no-vmm-two",
        profile: Profile::Addresses,
        devices: 2,
        memory: 16 * GIB,
        env: &[("STANDIN_LACKS", "vmm")],
        share: 3,
        length: 1,
        shims: &POLICIES,
    },
    Driver {
        name: "crowd",
        profile: Profile::Crowd,
        devices: 2,
        memory: GIB,
        env: &[],
        share: 3,
        length: 1,
        shims: &CROWDED,
    },
    Driver {
        name: "crowd-scarce",
        profile: Profile::Crowd,
        devices: 2,
        memory: 48 << 20,
        // A longer question leaves more time for other calls before its answer is used.
        env: &[("STANDIN_FAULT", "cuStreamIsCapturing:1+:0:after=1ms")],
        share: 2,
        length: 1,
        shims: &POLICIES,
    },
    Driver {
        name: "descriptors",
        profile: Profile::Descriptors,
        devices: 1,
        memory: 16 * GIB,
        env: &[],
        share: 1,
        length: 1,
        shims: &POLICIES,
    },
    Driver {
        name: "mixed",
        profile: Profile::Mixed,
        devices: 1,
        memory: 16 * GIB,
        env: &[],
        share: 20,
        length: 1,
        shims: &ALL,
    },
    Driver {
        name: "mixed-no-vmm",
        profile: Profile::Mixed,
        devices: 1,
        memory: 16 * GIB,
        env: &[("STANDIN_LACKS", "vmm")],
        share: 15,
        length: 1,
        shims: &POLICIES,
    },
    Driver {
        name: "mixed-two",
        profile: Profile::Mixed,
        devices: 2,
        memory: 16 * GIB,
        env: &[],
        share: 15,
        length: 1,
        shims: &POLICIES,
    },
    Driver {
        name: "contexts",
        profile: Profile::Contexts,
        devices: 1,
        memory: 16 * GIB,
        env: &[],
        share: 10,
        length: 1,
        shims: &POLICIES,
    },
    Driver {
        name: "contexts-no-vmm-two",
        profile: Profile::Contexts,
        devices: 2,
        memory: 16 * GIB,
        env: &[("STANDIN_LACKS", "vmm")],
        share: 10,
        length: 1,
        shims: &POLICIES,
    },
    Driver {
        name: "captures",
        profile: Profile::Captures,
        devices: 1,
        memory: 16 * GIB,
        env: &[],
        share: 10,
        length: 1,
        shims: &POLICIES,
    },
    Driver {
        name: "captures-small",
        profile: Profile::Captures,
        devices: 1,
        memory: 4 * GIB,
        env: &[],
        share: 5,
        length: 1,
        shims: &POLICIES,
    },
    Driver {
        name: "scarce",
        profile: Profile::Scarce,
        devices: 1,
        memory: 4 * GIB,
        env: &[],
        share: 5,
        length: 1,
        shims: &POLICIES,
    },
    Driver {
        name: "scarce-no-vmm-two",
        profile: Profile::Scarce,
        devices: 2,
        memory: 4 * GIB,
        env: &[("STANDIN_LACKS", "vmm")],
        share: 4,
        length: 1,
        shims: &POLICIES,
    },
    Driver {
        name: "churn",
        profile: Profile::Churn,
        devices: 1,
        memory: 16 * GIB,
        env: &[],
        share: 3,
        length: 1,
        shims: &POLICIES,
    },
    Driver {
        name: "churn-long",
        profile: Profile::Churn,
        devices: 1,
        memory: 16 * GIB,
        env: &[],
        share: 2,
        length: 40,
        shims: &POLICIES,
    },
    Driver {
        name: "decay",
        profile: Profile::Contexts,
        devices: 1,
        memory: 16 * GIB,
        env: &[],
        share: 1,
        length: 1,
        shims: &DECAYING,
    },
    Driver {
        name: "limit-two",
        profile: Profile::Scarce,
        devices: 2,
        memory: 4 * GIB,
        env: &[],
        share: 2,
        length: 1,
        shims: &WITH_LIMIT,
    },
];

impl Shim {
    /// True if every call is forwarded to the driver.
    pub fn is_off(&self) -> bool {
        self.env.contains(&("GPUSHIM_POLICY", "off"))
    }

    /// True if the driver's own pools serve streams: under `off`, and without virtual memory
    /// management.
    pub fn leaves_streams(&self, driver: &Driver) -> bool {
        let lacks_vmm = driver.env.contains(&("STANDIN_LACKS", "vmm"));
        self.is_off() || lacks_vmm
    }

    /// Rules of the comparison with the native run.
    pub fn rules(&self, driver: &Driver) -> Rules {
        Rules {
            limit: self.limit,
            is_off: self.is_off(),
            orders_memory: driver.orders_memory(),
        }
    }
}

impl Driver {
    /// Shape of the programs for this driver.
    pub fn shape(&self, steps: usize) -> Shape {
        let storms = matches!(self.profile, Profile::Mixed | Profile::Scarce);
        // Threads at once take a thousand times as long as another step.
        let steps = match self.profile {
            Profile::Crowd => steps.div_ceil(4),
            _ => steps,
        };
        Shape {
            profile: self.profile,
            devices: self.devices,
            memory: self.memory,
            steps,
            storms,
        }
    }

    /// Tells whether native allocations and frees put other work in order, as the wait of
    /// `cuMemFree` does. Threads at once free memory under work.
    pub fn orders_memory(&self) -> bool {
        self.profile == Profile::Crowd
    }

    /// The driver with this name.
    pub fn of(name: &str) -> Option<&'static Driver> {
        DRIVERS.iter().find(|driver| driver.name == name)
    }
}
