//! Masks for secrets in a command line: values after a suspicious name, and the user part of a URL.

/// Text that replaces a secret.
const MASK: &str = "***";

/// Parts of the names of secrets, in small letters.
const SECRET: [&str; 8] = [
    "token",
    "key",
    "password",
    "passwd",
    "secret",
    "credential",
    "authorization",
    "bearer",
];

/// Masks the secrets in the arguments of a command line. An argument with spaces in it, such as a
/// shell's script, is searched word by word. Harmless words may be masked, too:
/// `--num-key-value-heads 8` has a suspicious name.
pub fn mask(arguments: &mut [String]) {
    let mut is_awaited = false;
    for argument in arguments {
        let mut masked = String::with_capacity(argument.len());
        for piece in argument.split_inclusive(char::is_whitespace) {
            let word = piece.trim_end();
            let space = piece.get(word.len()..).unwrap_or_default();
            if word.is_empty() {
                masked.push_str(piece);
                continue;
            }
            // Two options in a row: the first has no value.
            if is_awaited && !word.starts_with('-') {
                masked.push_str(MASK);
                // `Authorization: Bearer abc`
                is_awaited = sounds_secret(word);
            } else {
                is_awaited = push(word, &mut masked);
            }
            masked.push_str(space);
        }
        *argument = masked;
    }
}

/// Appends a word with its secret masked. True if the next word is a secret, too.
fn push(word: &str, to: &mut String) -> bool {
    if let Some((name, value)) = word.split_once(['=', ':'])
        && sounds_secret(name)
    {
        // The separator is one byte.
        to.push_str(word.get(..=name.len()).unwrap_or_default());
        if !value.is_empty() {
            to.push_str(MASK);
        }
        return value.is_empty();
    }
    let (before, rest) = match word.split_once("://") {
        Some((scheme, rest)) => (word.get(..scheme.len() + 3).unwrap_or_default(), rest),
        None => {
            to.push_str(word);
            return sounds_secret(word) && (word.starts_with('-') || is_bearer(word));
        }
    };
    to.push_str(before);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match authority.rsplit_once('@') {
        Some((_, host)) => {
            to.push_str(MASK);
            to.push('@');
            to.push_str(host);
        }
        None => to.push_str(authority),
    }
    push_query(path, to);
    false
}

/// Appends the rest of a URL with the values of secret parameters masked.
fn push_query(path: &str, to: &mut String) {
    for piece in path.split_inclusive(['?', '&', '#']) {
        let (text, end) = match piece.char_indices().next_back() {
            Some((at, '?' | '&' | '#')) => piece.split_at(at),
            _ => (piece, ""),
        };
        match text.split_once('=') {
            Some((name, _)) if sounds_secret(name) => {
                to.push_str(name);
                to.push('=');
                to.push_str(MASK);
            }
            _ => to.push_str(text),
        }
        to.push_str(end);
    }
}

fn is_bearer(word: &str) -> bool {
    word.eq_ignore_ascii_case("bearer")
}

fn sounds_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(line: &[&str]) -> Vec<String> {
        let mut line: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
        mask(&mut line);
        line
    }

    #[test]
    fn what_follows_a_secrets_name_is_masked() {
        assert_eq!(
            masked(&["run", "--hf-token=abc", "--api-key", "abc", "-v", "x"]),
            ["run", "--hf-token=***", "--api-key", "***", "-v", "x"]
        );
        assert_eq!(
            masked(&[
                "--PassWord",
                "--verbose",
                "abc",
                "DB_SECRET=abc",
                "--token="
            ]),
            [
                "--PassWord",
                "--verbose",
                "abc",
                "DB_SECRET=***",
                "--token="
            ]
        );
        assert_eq!(
            masked(&[
                "curl",
                "-H",
                "Authorization: Bearer abc",
                "-H",
                "X-Api-Key:abc"
            ]),
            [
                "curl",
                "-H",
                "Authorization: *** ***",
                "-H",
                "X-Api-Key:***"
            ]
        );
    }

    #[test]
    fn scripts_in_an_argument_are_looked_at_word_by_word() {
        assert_eq!(
            masked(&[
                "sh",
                "-c",
                "train  --wandb-key abc\n&& HF_TOKEN=abc ls",
                "x"
            ]),
            [
                "sh",
                "-c",
                "train  --wandb-key ***\n&& HF_TOKEN=*** ls",
                "x"
            ]
        );
    }

    #[test]
    fn users_of_urls_are_masked() {
        assert_eq!(
            masked(&[
                "s3://a:b@host/x?token=abc&y=1",
                "https://host/x@y",
                "--url=ftp://u@h"
            ]),
            [
                "s3://***@host/x?token=***&y=1",
                "https://host/x@y",
                "--url=ftp://***@h"
            ]
        );
    }

    #[test]
    fn other_words_stay() {
        let line = [
            "python", "train.py", "--lr=0.1", "C:/x", "a b  c\t", "", "keyboard",
        ];
        assert_eq!(masked(&line), line);
    }
}
