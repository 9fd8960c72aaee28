//! Names of devices, as NVML and `nvidia-smi` write them: `GPU-`, and the UUID in groups.

/// Returns the name of the device with a UUID.
pub fn device_name(uuid: [u8; 16]) -> String {
    let mut text = String::from("GPU");
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Returns the UUID in the name of a device; `None` if it is not such a name.
pub fn device_uuid(name: &str) -> Option<[u8; 16]> {
    let (_, digits) = name.split_once('-')?;
    let digits: String = digits.chars().filter(|digit| *digit != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 32).then_some(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_uuids() {
        let uuid = std::array::from_fn(|at| at as u8 * 17);
        let name = device_name(uuid);
        assert_eq!(name, "GPU-00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(device_uuid(&name), Some(uuid));
        assert_eq!(device_uuid("GPU-0"), None);
    }
}
