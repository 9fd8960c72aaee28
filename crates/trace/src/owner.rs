//! Owner of a block: the content of an event of [`Kind::Owner`](crate::Kind::Owner).

/// Way in which a block is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kept {
    /// A way that this version does not know; only ever read.
    Other = 0,
    /// The program reaches it by the path.
    Named = 1,
    /// A parameter of a module, by its path in the outermost module.
    Parameter = 2,
    /// A buffer of a module, by its path in the outermost module.
    Buffer = 3,
    /// The gradient of a parameter.
    Gradient = 4,
    /// The state of an optimizer for a parameter.
    OptimizerState = 5,
    /// No object reaches it, and an autograd graph is alive. The path names the tensor that holds
    /// the graph. It is empty if several tensors hold graphs.
    Graph = 6,
    /// Only unreachable objects have it: it waits for the garbage collector.
    Unreachable = 7,
    /// No object of the interpreter reaches it.
    Native = 8,
    /// A library announced the owner, by `gpushim_owner`.
    Announced = 9,
}

impl Kept {
    /// Every way that is written, in the order of their numbers, which start at 1.
    pub const ALL: [Kept; 9] = [
        Kept::Named,
        Kept::Parameter,
        Kept::Buffer,
        Kept::Gradient,
        Kept::OptimizerState,
        Kept::Graph,
        Kept::Unreachable,
        Kept::Native,
        Kept::Announced,
    ];

    /// Returns the way of a number in a file.
    pub fn from_number(number: u64) -> Kept {
        let place = usize::try_from(number)
            .ok()
            .and_then(|number| number.checked_sub(1));
        place
            .and_then(|place| Kept::ALL.get(place))
            .copied()
            .unwrap_or(Kept::Other)
    }

    /// Returns the word of JSON and of `gpushim events`.
    pub const fn name(self) -> &'static str {
        match self {
            Kept::Other => "other",
            Kept::Named => "named",
            Kept::Parameter => "parameter",
            Kept::Buffer => "buffer",
            Kept::Gradient => "gradient",
            Kept::OptimizerState => "optimizer-state",
            Kept::Graph => "graph",
            Kept::Unreachable => "unreachable",
            Kept::Native => "native",
            Kept::Announced => "announced",
        }
    }
}

/// Occasion of a walk over the program's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Occasion {
    /// An occasion that this version does not know; only ever read.
    Other = 0,
    /// More memory was live than at any walk before.
    High = 1,
    /// A request could not be met.
    OutOfMemory = 2,
    /// The program or its user asked for it.
    Asked = 3,
    /// The interpreter is about to end.
    End = 4,
}

impl Occasion {
    /// Returns the occasion of a number in a file.
    pub const fn from_number(number: u64) -> Occasion {
        match number {
            1 => Occasion::High,
            2 => Occasion::OutOfMemory,
            3 => Occasion::Asked,
            4 => Occasion::End,
            _ => Occasion::Other,
        }
    }

    /// Returns the name used on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Occasion::Other => "other",
            Occasion::High => "high",
            Occasion::OutOfMemory => "out-of-memory",
            Occasion::Asked => "asked",
            Occasion::End => "end",
        }
    }
}

/// Words of [`Event::extra`](crate::Event::extra) of an event of
/// [`Kind::Owner`](crate::Kind::Owner).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerWords {
    /// String id of the path, 0 for none.
    pub path: u32,
    /// String id of the path's beginning, 0 for none.
    pub root: u32,
    /// Way in which the block is kept.
    pub kept: Kept,
}

impl OwnerWords {
    /// Packs them into the event's words.
    pub const fn pack(self) -> [u64; 2] {
        [
            self.path as u64 | (self.root as u64) << 32,
            self.kept as u64,
        ]
    }

    /// Reverses [`OwnerWords::pack`].
    pub fn unpack(words: [u64; 2]) -> OwnerWords {
        OwnerWords {
            path: words[0] as u32,
            root: (words[0] >> 32) as u32,
            kept: Kept::from_number(words[1]),
        }
    }
}

/// Bits of `extra[1]` of an event of [`Kind::OwnersWalk`](crate::Kind::OwnersWalk).
pub mod walk {
    /// The time was up before all objects were seen.
    pub const STOPPED: u64 = 1 << 0;
    /// The program has its garbage collector switched off.
    pub const NO_COLLECTOR: u64 = 1 << 1;
    /// Every node of an autograd graph is younger than the walk before.
    pub const NEW_GRAPHS: u64 = 1 << 2;
    /// Unreachable objects were distinguished, and the modules of libraries were searched.
    pub const THOROUGH: u64 = 1 << 3;
}
