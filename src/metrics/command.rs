//! `gpushim metrics`: OpenMetrics text of running processes.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use super::openmetrics::metrics;
use super::server;
use crate::cli::outcome::Outcome;
use crate::cli::recordings;
use crate::cli::terminal::{print_plain, say};
use crate::cli::write::write_for;
use crate::error::{Context, Result};
use crate::recording;
use crate::top::running;
use crate::whole::Readers;

/// Print how much memory running processes hold, as OpenMetrics text, or serve it to Prometheus.
///
/// With -o the file is replaced as a whole, as a node exporter's textfile collector wants it. With
/// --listen it answers GET /metrics until it is ended. Without files it reads all processes on
/// this machine that record and that you may read, with --listen as they are at each request.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim metrics --listen 127.0.0.1:9400   # docs/grafana.json is a dashboard for it
  gpushim metrics -o /var/lib/node_exporter/gpushim.prom
  gpushim metrics train.trace   # at its last moment, though it has ended")]
pub struct Args {
    /// Trace files, of running or ended processes; those of all running processes if none is named.
    files: Vec<PathBuf>,
    /// The file to write instead of standard output.
    #[arg(short, long, value_name = "FILE.prom")]
    output: Option<PathBuf>,
    /// Serve it over HTTP at this address; anyone who can connect to it can read it.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "output")]
    listen: Option<SocketAddr>,
}

pub fn main(args: &Args) -> Result<Outcome> {
    if let Some(address) = args.listen {
        return listen(address, &args.files);
    }
    // Where nothing runs there is nothing to say, and that is fine.
    let (recordings, outcome) = recordings::all(&named_or_running(&args.files));
    let text = metrics(&recordings);
    match &args.output {
        // A collector is another user, and there is no more in it than figures of processes.
        Some(path) => write_for(
            path,
            Readers::All,
            |out| Ok(out.write_all(text.as_bytes())?),
        )?,
        None => print_plain(&text)?,
    }
    Ok(outcome)
}

/// Returns the named files, or the traces of all processes that record.
fn named_or_running(files: &[PathBuf]) -> Vec<PathBuf> {
    match files {
        [] => running(),
        named => named.to_vec(),
    }
}

fn listen(address: SocketAddr, files: &[PathBuf]) -> Result<Outcome> {
    let listener = TcpListener::bind(address).context(format!("listen on {address}"))?;
    let bound = listener.local_addr().unwrap_or(address);
    say(&format!("serving http://{bound}/metrics; Ctrl-C ends it"));
    server::serve(&listener, || {
        let paths = named_or_running(files);
        // A process may end, and its file go, between two requests.
        let opened = paths.iter().filter_map(|path| recording::open(path).ok());
        metrics(&opened.collect::<Vec<_>>())
    })?;
    Ok(Outcome::Fine)
}
