//! An agent on a thread of this process.

use ddlp_dataset::Dataset;
use ddlp_device::agent::settings::IdentitySource;
use ddlp_device::agent::{Agent, Settings};
use ddlp_device::slots::{Backing, Geometry};
use ddlp_device::workers::Throttle;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

pub struct TestAgent {
    pub address: SocketAddr,
    pub nqn: String,
    stop: Option<oneshot::Sender<Duration>>,
    thread: Option<JoinHandle<()>>,
}

pub fn settings() -> Settings {
    Settings {
        dataset: "unused".into(),
        kind: None,
        listen: "127.0.0.1:0".parse().unwrap(),
        discovery: None,
        metrics: None,
        results: Backing::Memory,
        geometry: Geometry { slots: 4, slot_bytes: 1 << 20 },
        threads: 2,
        cores: Vec::new(),
        throttle: Throttle::FULL,
        identity: IdentitySource::Ephemeral,
        allowed_hosts: Vec::new(),
        parent_pipe: None,
        ready_fd: None,
    }
}

impl TestAgent {
    pub fn start(settings: Settings, dataset: Arc<dyn Dataset>) -> Self {
        let (ready, started) = channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let agent = Agent::start_with(&settings, dataset).await.unwrap();
                ready.send((agent.address(), agent.nqn().to_owned())).unwrap();
                let limit = stopped.await.unwrap_or_default();
                agent.drain(limit).await;
            });
        });
        let (address, nqn) = started.recv().expect("the agent starts");
        Self { address, nqn, stop: Some(stop), thread: Some(thread) }
    }

    pub fn at(&self) -> (SocketAddr, &str) {
        (self.address, &self.nqn)
    }

    /// Starts to drain.
    pub fn drain(&mut self, limit: Duration) {
        let _ = self.stop.take().unwrap().send(limit);
    }

    /// Waits for the agent's end.
    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            drop(self.stop.take());
            thread.join().unwrap();
        }
    }
}

impl Drop for TestAgent {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            drop(self.stop.take());
            let joined = thread.join();
            if !std::thread::panicking() {
                joined.unwrap();
            }
        }
    }
}
