//! The agent's life: start, serve, drain.

use super::discovery::DiscoveryPort;
use super::gauges::LiveGauges;
use super::metrics::AgentFigures;
use super::notify::{self, notify};
use super::opening::open;
use super::settings::{IdentitySource, Settings};
use crate::controller::{Config, Subsystem};
use crate::identity::LockedIdentity;
use crate::slots::Slots;
use crate::tcp::CLOSE_TIME;
use crate::tcp::hub::Hub;
use crate::tcp::media::Media;
use crate::tcp::server::{Server, clockwork};
use crate::workers::Pool;
use anyhow::{Context, Result};
use ddlp_csd::log::DriveIdentity;
use ddlp_dataset::Dataset;
use ddlp_metrics::{LocalServer, MetricsServer};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Longest wait of a draining agent for running batches.
pub const DRAIN_TIME: Duration = Duration::from_secs(30);
/// Time between two checks whether a draining agent is done.
const DRAIN_LOOK: Duration = Duration::from_millis(20);
/// Threads that tokio may use for blocking reads of files.
const FILE_THREADS: usize = 4;

/// Files that every agent opens while it starts: for the network runtime, a dataset, slots and a listener.
const FILES_AT_START: usize = 8;
/// Files that one host needs: its connections, for the admin queue, a queue of batches and two queues of blocks.
/// Besides these, every worker opens a file.
const FILES_OF_HOST: usize = 4;

/// Line that tells the agent's address to the program that started the agent.
#[derive(Serialize)]
struct ReadyLine<'a> {
    listen: SocketAddr,
    nqn: &'a str,
    /// Address for discovery, if it has one of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    discovery: Option<SocketAddr>,
    /// Address of the figures, if they are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<SocketAddr>,
}

/// A serving agent.
pub struct Agent {
    hub: Arc<Hub>,
    address: SocketAddr,
    discovery: Option<SocketAddr>,
    nqn: String,
    accepting: Vec<JoinHandle<()>>,
    clockwork: JoinHandle<()>,
    metrics: Option<MetricsServer>,
    /// Serves the figures to programs of the same user.
    _local_metrics: Option<LocalServer>,
    _identity: LockedIdentity,
}

impl Agent {
    /// Opens dataset, slots and ports, and begins to serve on the current tokio runtime.
    pub async fn start(settings: &Settings) -> Result<Self> {
        Self::start_with(settings, open(settings)?.into()).await
    }

    /// Begins to serve a dataset that is already open.
    pub async fn start_with(settings: &Settings, dataset: Arc<dyn Dataset>) -> Result<Self> {
        let slots = Slots::open(&settings.results, settings.geometry).context("cannot set up the result slots")?;
        let slots = Arc::new(slots);
        let identity = match &settings.identity {
            IdentitySource::Ephemeral => LockedIdentity::ephemeral().context("the agent has no identity")?,
            IdentitySource::Directory(directory) => LockedIdentity::persistent(directory).map_err(|error| {
                let remedy = error.remedy(directory);
                anyhow::Error::from(error).context(format!("the agent has no identity ({remedy})"))
            })?,
        };
        let (events, received) = unbounded_channel();
        // Slots in memory get it when they are used.
        let to_come = if slots.in_memory() { settings.geometry.total_bytes() } else { 0 };
        ddlp_csd::memory::fit(&*dataset, to_come);
        // Sending fails only when the agent ends and nobody needs the event.
        let notify = Box::new(move |event| events.send(event).unwrap_or_default());
        let pool = Pool::start(dataset.clone(), slots.clone(), settings.threads, settings.throttle, notify);
        let pool = Arc::new(pool.with_context(|| format!("cannot start {} workers", settings.threads))?);
        let drive = DriveIdentity {
            dataset: *dataset.identity().as_bytes(),
            dataset_samples: dataset.len(),
            abilities: ddlp_dataset::abilities().to_vec(),
            agent: DriveIdentity::version_field(env!("CARGO_PKG_VERSION")),
            slot_bytes: settings.geometry.slot_bytes,
            slots: settings.geometry.slots,
            workers: settings.threads as u32,
        };
        let identity_page = drive.to_page();
        let subsystem = Subsystem::new(Config {
            identity: identity.identity.clone(),
            allowed_hosts: settings.allowed_hosts.clone(),
            dataset_blocks: Media::dataset_blocks(&*dataset),
            geometry: settings.geometry,
            drive,
            gauges: Arc::new(LiveGauges::start(pool.clone())),
        });
        let media = Arc::new(Media::new(dataset, identity_page, slots));
        let (listener, address) = listen(settings.listen).await?;
        let discovery = match settings.discovery {
            Some(port) => listen_for_discovery(address, port).await?,
            None => None,
        };
        let hub = Arc::new(Hub::new(subsystem, pool, media));
        let figures = |at| {
            let served = MetricsServer::start(at, AgentFigures(hub.clone()));
            served.with_context(|| format!("--metrics: the figures cannot be served at {at}"))
        };
        let metrics = settings.metrics.map(figures).transpose()?;
        let unseen = |error: &io::Error| tracing::debug!(%error, "`ddlp top` does not see this agent");
        let local_metrics = LocalServer::start(AgentFigures(hub.clone())).inspect_err(unseen).ok();
        let server = Arc::new(Server::new(hub.clone(), address.port()));
        let (discovery_listener, discovery) = discovery.unzip();
        let listeners = [Some(listener), discovery_listener].into_iter().flatten();
        let accepting = listeners.map(|listener| tokio::spawn(server.clone().accept(listener))).collect();
        let clockwork = tokio::spawn(clockwork(hub.clone(), received));
        let nqn = identity.identity.nqn.clone();
        Ok(Self {
            hub,
            address,
            discovery,
            nqn,
            accepting,
            clockwork,
            metrics,
            _local_metrics: local_metrics,
            _identity: identity,
        })
    }

    /// Returns the address at which the agent listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the separate address for discovery, if there is one.
    pub fn discovery(&self) -> Option<SocketAddr> {
        self.discovery
    }

    /// Returns the address of the figures, if they are served.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(MetricsServer::address)
    }

    /// Returns the NQN of the subsystem.
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    /// Refuses new work, lets running batches finish within `limit`, then closes all connections.
    pub async fn drain(self, limit: Duration) {
        self.accepting.iter().for_each(JoinHandle::abort);
        self.hub.drain();
        if !until(limit, || self.hub.is_idle()).await {
            tracing::warn!(?limit, "giving up batches that did not finish in time");
        }
        self.hub.close_all();
        until(CLOSE_TIME, || self.hub.connections() == 0).await;
        self.clockwork.abort();
    }
}

async fn listen(at: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let listener = bind(at).with_context(|| match at.port() {
        0 => format!("cannot listen at {at}"),
        port => format!(
            "cannot listen at {at}: choose another --listen address, or find the program that listens there (ss -ltnp \
            'sport = :{port}')"
        ),
    })?;
    let address = listener.local_addr().context("cannot read the address of the listener")?;
    Ok((listener, address))
}

/// Opens a listener whose queue of new connections is as long as the system allows (`net.core.somaxconn`), so that
/// hosts that connect all at once need not try again.
fn bind(at: SocketAddr) -> io::Result<TcpListener> {
    const LONGEST: u32 = i32::MAX as u32;
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As in `TcpListener::bind`: connections that are about to close do not keep a new agent from listening.
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(LONGEST)
}

/// Opens a second listener at the same address, for discovery. Failure to listen at a port is an error only if the user
/// asked for that port.
async fn listen_for_discovery(io: SocketAddr, wanted: DiscoveryPort) -> Result<Option<(TcpListener, SocketAddr)>> {
    match listen(SocketAddr::new(io.ip(), wanted.port)).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if wanted.required => Err(error.context("--discovery")),
        Err(error) => {
            let port = io.port();
            tracing::info!("no discovery port ({error:#}): hosts discover this agent at port {port}");
            Ok(None)
        }
    }
}

async fn until(limit: Duration, done: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !done() {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(DRAIN_LOOK).await;
    }
    true
}

/// Fails if this process may not open this many more files.
fn check_files(more: usize) -> Result<()> {
    let opened: io::Result<Vec<File>> = (0..more).map(|_| File::open("/dev/null")).collect();
    opened.map(drop).with_context(|| {
        format!(
            "the agent needs to open {more} files more than the system lets it: raise the limit (ulimit -n, or \
             LimitNOFILE of the service)"
        )
    })
}

/// Runs the agent until a signal arrives or the parent process ends.
pub fn serve(settings: &Settings) -> Result<()> {
    // Before the network runtime, which panics if it lacks files.
    check_files(FILES_AT_START)?;
    // Before any thread starts, so that all threads inherit the cores.
    pin(&settings.cores)?;
    let parent = settings.parent_pipe.map(|fd| watch_parent(fd).context("--parent-pipe")).transpose()?;
    let ready: Box<dyn Write> = match settings.ready_fd {
        Some(fd) => Box::new(File::from(crate::inherit::take(fd).with_context(|| format!("--ready-fd {fd}"))?)),
        None => Box::new(std::io::stdout()),
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(FILE_THREADS).build();
    let runtime = runtime.context("cannot start the network runtime")?;
    runtime.block_on(live(settings, parent, ready))?;
    // Workers may still be in the middle of a sample. Nothing that they hold outlives the process.
    runtime.shutdown_background();
    Ok(())
}

/// Serves until told to stop, then drains.
async fn live(settings: &Settings, parent: Option<UnboundedReceiver<()>>, ready: Box<dyn Write>) -> Result<()> {
    // The handlers of signals come after the start. Until then there is nothing to drain, and a signal ends the process
    // even while it waits for a file system.
    let agent = Agent::start(settings).await?;
    // An agent that cannot accept a connection would leave its hosts without an answer.
    check_files(FILES_OF_HOST + settings.threads)?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
    let discovery = agent.discovery().map(tracing::field::display);
    let metrics = agent.metrics().map(tracing::field::display);
    tracing::info!(listen = %agent.address(), discovery, metrics, nqn = agent.nqn(), "serving");
    announce(ready, &agent).context("cannot write the line that says that the agent is ready")?;
    if let Err(error) = notify(notify::READY) {
        tracing::warn!(%error, "cannot tell the service manager (NOTIFY_SOCKET) that the agent is ready");
    }
    let limit = tokio::select! {
        _ = terminate.recv() => DRAIN_TIME,
        _ = interrupt.recv() => DRAIN_TIME,
        // The parent has gone: nobody is left to take the results.
        () = gone(parent) => Duration::ZERO,
    };
    tracing::info!(?limit, "draining");
    if let Err(error) = notify(notify::STOPPING) {
        tracing::warn!(%error, "cannot tell the service manager that the agent is about to end");
    }
    tokio::select! {
        () = agent.drain(limit) => {}
        _ = terminate.recv() => tracing::warn!("second signal: ending at once"),
        _ = interrupt.recv() => tracing::warn!("second signal: ending at once"),
    }
    Ok(())
}

fn announce(mut to: Box<dyn Write>, agent: &Agent) -> Result<()> {
    let mut line = serde_json::to_string(&ReadyLine {
        listen: agent.address(),
        nqn: agent.nqn(),
        discovery: agent.discovery(),
        metrics: agent.metrics(),
    })?;
    line.push('\n');
    to.write_all(line.as_bytes())?;
    Ok(to.flush()?)
}

fn pin(cores: &[usize]) -> Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core).with_context(|| format!("--cores: there is no core {core}"))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| {
        format!("--cores {}: the agent may not run there; `nproc` and `lscpu` show the cores", list(cores))
    })
}

fn list(cores: &[usize]) -> String {
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// Returns a channel that closes when the parent closes its end of the pipe `fd`.
fn watch_parent(fd: RawFd) -> Result<UnboundedReceiver<()>> {
    let mut pipe = File::from(crate::inherit::take(fd).with_context(|| format!("descriptor {fd}"))?);
    let (sender, receiver) = unbounded_channel();
    let watch = move || {
        let mut byte = [0];
        while let Ok(1..) = pipe.read(&mut byte) {}
        drop(sender);
    };
    std::thread::Builder::new().name("parent".into()).spawn(watch)?;
    Ok(receiver)
}

async fn gone(parent: Option<UnboundedReceiver<()>>) {
    match parent {
        // Nothing is ever sent: this waits for the channel to close.
        Some(mut parent) => drop(parent.recv().await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts none of many connections. The system answers them as long as they fit into the listener's queue.
    #[tokio::test]
    async fn as_many_new_connections_wait_as_the_system_allows() {
        let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let many = allowed.trim().parse::<usize>().unwrap().min(400);
        let (_listener, address) = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let connect = |_| std::net::TcpStream::connect_timeout(&address, Duration::from_secs(60));
        let connected: Result<Vec<_>, _> = (0..many).map(connect).collect();
        assert_eq!(connected.unwrap().len(), many);
    }

    #[tokio::test]
    async fn a_taken_discovery_port_is_an_error_only_if_it_was_asked_for() {
        let (taken, io) = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let port = |required| DiscoveryPort { port: io.port(), required };
        assert!(listen_for_discovery(io, port(false)).await.unwrap().is_none());
        let error = listen_for_discovery(io, port(true)).await.unwrap_err();
        assert!(format!("{error:#}").contains(&io.to_string()), "{error:#}");
        drop(taken);
        let (_, found) = listen_for_discovery(io, port(false)).await.unwrap().expect("the port is free");
        assert_eq!(found, io);
    }
}
