//! Pages saved by PyTorch's viewer of memory snapshots (`torch.cuda._memory_viz`): HTML with the
//! snapshots in base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::error::{Result, failed};

/// Text before a snapshot in a page.
const BEFORE: &[u8] = b"\"base64\":";

/// Returns true if a file with this beginning is HTML.
pub(super) fn is_html(head: &[u8]) -> bool {
    let text = head.trim_ascii_start();
    let text = text
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(text)
        .trim_ascii_start();
    [&b"<!doctype html"[..], b"<html"].iter().any(|begin| {
        text.get(..begin.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(begin))
    })
}

/// Returns the first snapshot in a page, and the number of further ones.
///
/// # Errors
/// There is none, or it is not base64.
pub(super) fn snapshot(page: &[u8]) -> Result<(Vec<u8>, usize)> {
    let mut found = page
        .windows(BEFORE.len())
        .enumerate()
        .filter(|(_, window)| *window == BEFORE)
        .map(|(at, _)| at + BEFORE.len());
    let first = found
        .next()
        .ok_or_else(|| failed!("it is a page of HTML without a snapshot in it"))?;
    let rest = page.get(first..).unwrap_or_default().trim_ascii_start();
    let text = rest
        .strip_prefix(b"\"")
        .and_then(|rest| rest.split(|byte| *byte == b'"').next())
        .unwrap_or_default();
    // If the page ends within a group of four letters, the group is lost.
    let is_whole = rest.len() > text.len() + 1;
    let text = if is_whole {
        text
    } else {
        &text[..text.len() / 4 * 4]
    };
    let bytes = (STANDARD.decode(text))
        .map_err(|error| failed!("the snapshot in the page is not base64: {error}"))?;
    Ok((bytes, found.count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_what_is_in_them() {
        assert!(is_html(b"\n<!DOCTYPE html>\n<html>"));
        assert!(is_html(b"\xef\xbb\xbf<HTML lang=en>"));
        for other in [&b"<htm"[..], b"", b"op,ptr", b"\x80\x04"] {
            assert!(!is_html(other), "{other:?}");
        }
        let of = |page: &str| snapshot(page.as_bytes());
        assert_eq!(
            of("x \"base64\": \"aGFsbG8=\"}]").unwrap(),
            (b"hallo".to_vec(), 0)
        );
        let two = "{\"base64\":\"aGFsbG8=\"},{\"base64\": \"\"}";
        assert_eq!(of(two).unwrap(), (b"hallo".to_vec(), 1));
        // Cut off in the middle.
        assert_eq!(of("\"base64\": \"aGFsbG").unwrap(), (b"hal".to_vec(), 0));
        assert_eq!(of("\"base64\": \"").unwrap(), (Vec::new(), 0));
        assert_eq!(of("\"base64\":").unwrap(), (Vec::new(), 0));
        assert!(of("<html></html>").is_err());
        assert!(of("\"base64\": \"a!b?\"").is_err());
    }
}
