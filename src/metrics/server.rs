//! `/metrics` over HTTP/1.1, for Prometheus.
//!
//! A fixed number of threads serves one connection each at a time. Each connection is answered and
//! closed.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Context, Result};

/// Connections that are served at once; others wait in the system's queue.
const THREADS: usize = 4;
/// Most bytes of a request. The beginning of a longer one is enough to refuse it.
const HEAD: usize = 8 << 10;
/// A client has this long for its request, and for taking the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Readings that are younger are given again: several collectors cost no more than one.
const FRESH: Duration = Duration::from_secs(1);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A source of metrics, read at most once in [`FRESH`].
struct Source<F> {
    read: F,
    last: Mutex<Option<(Instant, String)>>,
}

impl<F: Fn() -> String> Source<F> {
    fn text(&self) -> String {
        let mut last = self
            .last
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((_, text)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return text.clone();
        }
        let text = (self.read)();
        *last = Some((Instant::now(), text.clone()));
        text
    }
}

/// Answers each connection with the result of `read`. Returns only for an error of the listener.
///
/// # Errors
/// Error of the system for the next connection.
pub fn serve(listener: &TcpListener, read: impl Fn() -> String + Sync) -> Result<()> {
    let source = Source {
        read,
        last: Mutex::new(None),
    };
    let ended = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| accept(listener, &source)))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.flatten().find_map(Result::err)
    });
    ended.map_or(Ok(()), Err)
}

fn accept(listener: &TcpListener, source: &Source<impl Fn() -> String>) -> Result<()> {
    loop {
        match listener.accept() {
            // A client that disconnects needs no answer.
            Ok((stream, _)) => drop(answer(stream, source)),
            Err(error) if is_passing(&error) => thread::sleep(Duration::from_millis(50)),
            Err(error) => return Err(error).context("accept a connection"),
        }
    }
}

/// True if the next connection may be accepted after this error: the connection was broken off, or
/// resources such as descriptors or memory run short.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted | io::ErrorKind::WouldBlock
    ) || matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::EPROTO)
    )
}

fn answer(mut stream: TcpStream, source: &Source<impl Fn() -> String>) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = head(&mut stream)?;
    let response = response(&head, || source.text());
    stream.write_all(response.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    // Read and drop the rest of the request: closing with unread data would reset the connection
    // before the client has the answer.
    let mut rest = [0; 1024];
    let _ = stream.read(&mut rest);
    Ok(())
}

/// The request up to the empty line, or as much as comes in time.
fn head(stream: &mut TcpStream) -> io::Result<String> {
    let begin = Instant::now();
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while head.len() < HEAD && !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let left = PATIENCE.saturating_sub(begin.elapsed());
        if left.is_zero() {
            break;
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => break,
            read => head.extend_from_slice(part.get(..read).unwrap_or_default()),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// The whole answer to a request.
fn response(head: &str, text: impl FnOnce() -> String) -> String {
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let request = (words.next(), words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.0" | "HTTP/1.1"), None) = request else {
        return plain("400 Bad Request", "", "This is not an HTTP/1.1 request.\n");
    };
    if !head.contains("\r\n\r\n") {
        return plain(
            "431 Request Header Fields Too Large",
            "",
            "The request is too long.\n",
        );
    }
    let path = target.split('?').next().unwrap_or_default();
    if path != "/metrics" {
        return plain("404 Not Found", "", "There is only /metrics here.\n");
    }
    if method != "GET" {
        return plain(
            "405 Method Not Allowed",
            "Allow: GET\r\n",
            "Only GET is served.\n",
        );
    }
    let accepts = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("accept")
            .then(|| value.contains("application/openmetrics-text"))
    };
    let content = match lines.filter_map(accepts).any(|accepts| accepts) {
        true => OPEN_METRICS,
        false => PLAIN,
    };
    with_body("200 OK", "", content, &text())
}

fn plain(status: &str, headers: &str, body: &str) -> String {
    with_body(status, headers, "text/plain; charset=utf-8", body)
}

fn with_body(status: &str, headers: &str, content: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {}\r\n{headers}Connection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &str) -> String {
        let response = response(head, || "gpushim_events_total 1\n# EOF\n".to_string());
        response.lines().next().unwrap_or_default().to_string()
    }

    #[test]
    fn only_a_get_of_metrics_is_answered() {
        for (head, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200 OK"),
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            (
                "GET /metrics/../etc/passwd HTTP/1.1\r\n\r\n",
                "404 Not Found",
            ),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("GET /metrics\r\n\r\n", "400 Bad Request"),
            ("GET /metrics HTTP/2\r\n\r\n", "400 Bad Request"),
            ("\u{0}\u{1}", "400 Bad Request"),
            ("", "400 Bad Request"),
            (
                "GET /metrics HTTP/1.1\r\nHost: x",
                "431 Request Header Fields Too Large",
            ),
        ] {
            assert_eq!(status(head), format!("HTTP/1.1 {expected}"), "{head:?}");
        }
    }

    #[test]
    fn the_format_is_the_one_that_was_asked_for() {
        let of = |accept: &str| {
            response(
                &format!("GET /metrics HTTP/1.1\r\naccept: {accept}\r\n\r\n"),
                String::new,
            )
        };
        assert!(of("application/openmetrics-text;version=1.0.0,*/*;q=0.1").contains(OPEN_METRICS));
        assert!(of("*/*").contains(PLAIN));
    }
}
