//! `metrics --listen`, asked over HTTP.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Child;

use super::*;

/// A server that ends with the test.
struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(dir: &Path, files: &[&str]) -> Server {
    let args = [&["metrics", "--listen", "127.0.0.1:0"], files].concat();
    let mut child = gpushim(dir, &args).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split('/').next());
    let address = address.unwrap_or_else(|| panic!("{line}")).to_string();
    Server { child, address }
}

fn ask(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn prometheus_gets_what_the_file_would_have() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("a.trace"));
    let server = serve(dir.path(), &["a.trace"]);
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n";
    let answer = ask(&server, request);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    assert!(
        head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())),
        "{head}"
    );
    assert_eq!(body, stdout(&run(dir.path(), &["metrics", "a.trace"])));
    assert!(body.contains("gpushim_device_bytes{"), "{body}");
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("GET /a.trace HTTP/1.1\r\n\r\n", "404"),
        (
            "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            "405",
        ),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let answer = ask(&server, request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request:?}: {answer}"
        );
    }
}

#[test]
fn clients_that_say_nothing_do_not_keep_others_waiting() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("a.trace"));
    let server = serve(dir.path(), &["a.trace"]);
    // One fewer than are served at once, and hundreds that come and go.
    let silent: Vec<_> = (0..3)
        .map(|_| TcpStream::connect(&server.address).unwrap())
        .collect();
    for _ in 0..200 {
        drop(TcpStream::connect(&server.address).unwrap());
    }
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.child.id()))
        .unwrap()
        .count();
    assert!(threads <= 8, "{threads} threads");
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(8 << 10));
    assert!(ask(&server, &long).starts_with("HTTP/1.1 431 "));
    assert!(ask(&server, "GET /metrics HTTP/1.0\r\n\r\n").contains("\n# EOF\n"));
    // More silent ones than threads: they are sent away after a while.
    let more: Vec<_> = (0..6)
        .map(|_| TcpStream::connect(&server.address).unwrap())
        .collect();
    assert!(ask(&server, "GET /metrics HTTP/1.0\r\n\r\n").contains("\n# EOF\n"));
    drop((silent, more));
}

#[test]
fn an_address_that_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), &[]);
    let output = run(dir.path(), &["metrics", "--listen", &server.address]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains(&format!("failed to listen on {}: ", server.address)),
        "{}",
        stderr(&output)
    );
}

#[test]
fn without_files_no_process_that_has_ended_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    sample(&dir.path().join("gpushim-h-1.trace"));
    let named = stdout(&run(dir.path(), &["metrics", "gpushim-h-1.trace"]));
    assert!(named.contains("gpushim_requested_bytes"), "{named}");
    let none = stdout(&run(dir.path(), &["metrics"]));
    let place = dir.path().display().to_string();
    assert!(
        !none.contains("rank=\"2\"") && !none.contains(&place),
        "{none}"
    );
}
