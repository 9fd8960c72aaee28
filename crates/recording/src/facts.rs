//! Facts about a process that have a structure.

/// A GPU, from the fact `gpu.N`: `NVIDIA H100 80GB HBM3, 85017755648 bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Name of the GPU's model.
    pub name: String,
    /// Size of its memory, bytes.
    pub bytes: u64,
}

impl Gpu {
    /// Parses the value of the fact; `None` if it is of another form.
    pub fn parse(fact: &str) -> Option<Gpu> {
        let (name, bytes) = fact.strip_suffix(" bytes")?.rsplit_once(", ")?;
        Some(Gpu {
            name: name.to_string(),
            bytes: bytes.parse().ok()?,
        })
    }

    /// Returns the ordinal in the key of a fact; `None` if it is not the fact of a GPU.
    pub fn ordinal(key: &str) -> Option<&str> {
        key.strip_prefix("gpu.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fact_of_a_gpu() {
        let parsed = Gpu::parse("A, B, 4096 bytes");
        let name = "A, B".to_string();
        assert_eq!(parsed, Some(Gpu { name, bytes: 4096 }));
        for other in ["", "A", "A, 1", "A 1 bytes", "A, x bytes", "A, -1 bytes"] {
            assert_eq!(Gpu::parse(other), None, "{other}");
        }
        assert_eq!(Gpu::ordinal("gpu.0"), Some("0"));
        assert_eq!(Gpu::ordinal("host"), None);
    }
}
