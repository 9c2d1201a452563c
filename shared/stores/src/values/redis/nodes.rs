//! The nodes that are asked: one server, the masters of a cluster, or the master that Sentinels name.
//!
//! A server counts as a node of a cluster once it sends a request on to another node. From then on, requests go by the
//! slots of their keys. `sentinels`: the master that Sentinels name counts as one that has all slots.

mod sentinels;

use super::super::super::server_path::Failure;
use super::super::lines::{CONNECT_WITHIN, Lines, first_good};
use super::address::ServerAddress;
use super::failure::{answer_of, judge};
use super::slots::{Place, Redirect, SlotMap, slot_of};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, RedisResult, Value, cmd, pipe};
use sentinels::Sentinels;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

/// Most nodes that a request is sent on to, one after the other.
const REDIRECTS_MAX: usize = 5;

/// A request that concerns one key.
pub struct Request<'r> {
    /// The key.
    pub key: &'r str,
    /// The commands, which are sent at once.
    pub commands: &'r [Cmd],
    /// Bytes that it sends, or that the answer has.
    pub bytes: usize,
}

/// One server, a cluster, or a master with its replicas.
pub struct Nodes {
    address: ServerAddress,
    nodes: Mutex<HashMap<Place, Arc<Node>>>,
    /// Whom to ask for the master, if the address names Sentinels.
    sentinels: Option<Sentinels>,
    /// The masters, if the servers are a cluster or Sentinels have named one.
    slots: RwLock<Option<Arc<SlotMap>>>,
    /// Number of times that other servers were masters than before.
    replaced: AtomicU64,
    /// Whether the masters have to be asked for again.
    is_stale: AtomicBool,
    refreshing: tokio::sync::Mutex<()>,
}

struct Node {
    client: Client,
    lines: Lines<MultiplexedConnection>,
}

impl Nodes {
    /// Prepares to ask the servers of an address, without connecting yet. The error says what to do.
    pub fn new(address: ServerAddress) -> Result<Self, String> {
        address.client(&address.places[0])?;
        let sentinels = Sentinels::new(&address)?;
        let is_stale = sentinels.is_some().into();
        let (nodes, slots, replaced, refreshing) = Default::default();
        Ok(Self { address, nodes, sentinels, slots, replaced, is_stale, refreshing })
    }

    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// Returns how often other servers have taken the places of masters.
    pub fn replaced(&self) -> u64 {
        self.replaced.load(Ordering::Relaxed)
    }

    /// Makes the attempt with this number of a request with this number. Follows the nodes that send it on.
    pub async fn attempt(&self, number: u64, attempt: usize, request: &Request<'_>) -> Result<Value, Failure> {
        if self.is_stale.load(Ordering::Relaxed) {
            self.refresh().await?;
        }
        let (mut place, mut is_asking) = (self.place_of(request.key, attempt), false);
        for _ in 0..REDIRECTS_MAX {
            match self.send(&place, number, request, is_asking).await? {
                Ok(answer) => return Ok(answer),
                Err(Redirect::Moved(to)) => {
                    self.is_stale.store(true, Ordering::Relaxed);
                    (place, is_asking) = (to, false);
                }
                Err(Redirect::Ask(to)) => (place, is_asking) = (to, true),
            }
        }
        Err(Failure::passing("the nodes of the cluster send a request on to each other".to_owned()))
    }

    fn masters(&self) -> Option<Arc<SlotMap>> {
        self.slots.read().expect("no panic while the slots are locked").clone()
    }

    fn place_of(&self, key: &str, attempt: usize) -> Place {
        let master = self.masters().and_then(|slots| slots.master(slot_of(key)).cloned());
        master.unwrap_or_else(|| self.address.places[attempt % self.address.places.len()].clone())
    }

    /// Asks all nodes, or all Sentinels, at the same time for the masters.
    async fn refresh(&self) -> Result<(), Failure> {
        let _held = self.refreshing.lock().await;
        if !self.is_stale.load(Ordering::Relaxed) {
            return Ok(());
        }
        let slots = match &self.sentinels {
            Some(sentinels) => SlotMap::of_one(self.named_by(sentinels).await?),
            None => {
                let mut places: HashSet<Place> = self.address.places.iter().cloned().collect();
                places.extend(self.masters().iter().flat_map(|slots| slots.masters().cloned().collect::<Vec<_>>()));
                first_good(places.iter().map(|place| self.slots_from(place)).collect()).await?
            }
        };
        let before = self.slots.write().expect("no panic while the slots are locked").replace(Arc::new(slots.clone()));
        let masters = |slots: &SlotMap| slots.masters().cloned().collect::<HashSet<_>>();
        if before.is_some_and(|before| masters(&before) != masters(&slots)) {
            self.replaced.fetch_add(1, Ordering::Relaxed);
        }
        self.is_stale.store(false, Ordering::Relaxed);
        Ok(())
    }

    async fn slots_from(&self, place: &Place) -> Result<SlotMap, Failure> {
        let mut commands = [cmd("CLUSTER")];
        commands[0].arg("SLOTS");
        let Ok(answer) = self.send(place, 0, &Request { key: "", commands: &commands, bytes: 0 }, false).await? else {
            return Err(Failure::passing("no node says which nodes the cluster has".to_owned()));
        };
        let malformed = || Failure::passing("the answer of CLUSTER SLOTS is malformed".to_owned());
        SlotMap::parse(&answer, place).ok_or_else(malformed)
    }

    /// Sends a request to one node.
    async fn send(
        &self,
        place: &Place,
        number: u64,
        request: &Request<'_>,
        is_asking: bool,
    ) -> Result<Result<Value, Redirect>, Failure> {
        let node = self.node(place)?;
        let first = match (&self.sentinels, is_asking) {
            (Some(_), _) => First::Role,
            (None, true) => First::Asking,
            (None, false) => First::Nothing,
        };
        let send = |mut connection| async move {
            match sent(&mut connection, request.commands, first).await {
                Ok(Some(answer)) => Ok(Ok(answer)),
                Ok(None) => Err(sentinels::is_no_master(place)),
                Err(error) => {
                    let (code, details) = answer_of(&error);
                    let redirect = Redirect::parse(&code, details.strip_prefix(&*code).unwrap_or(&details), place);
                    redirect.map(Err).ok_or_else(|| judge(&error, &self.address))
                }
            }
        };
        let connect = node.connect(|error| self.not_connected(place, error));
        let outcome = node.lines.attempt(number, request.bytes, connect, send).await;
        if let Err(failure) = &outcome
            && (self.sentinels.is_some() || (failure.is_lost && self.masters().is_some()))
        {
            // A replica may have become the master.
            self.is_stale.store(true, Ordering::Relaxed);
        }
        outcome
    }

    fn node(&self, place: &Place) -> Result<Arc<Node>, Failure> {
        let mut nodes = self.nodes.lock().expect("no panic while the nodes are locked");
        if let Some(node) = nodes.get(place) {
            return Ok(node.clone());
        }
        let node = Arc::new(Node::new(self.address.client(place).map_err(Failure::lasting)?));
        nodes.insert(place.clone(), node.clone());
        Ok(node)
    }

    /// Judges why a connection to a node was not made. If there are several nodes, says which one.
    fn not_connected(&self, place: &Place, error: &RedisError) -> Failure {
        let failure = judge(error, &self.address);
        if self.masters().is_some() || self.sentinels.is_some() { failure.of(place) } else { failure }
    }
}

impl Node {
    fn new(client: Client) -> Self {
        Self { client, lines: Lines::default() }
    }

    async fn connect(&self, judge: impl FnOnce(&RedisError) -> Failure) -> Result<MultiplexedConnection, Failure> {
        // Requests have limits of their own, by which answers that wait behind others are not cut off.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_WITHIN)).set_response_timeout(None);
        let made = self.client.get_multiplexed_async_connection_with_config(&config).await;
        made.map_err(|error| judge(&error))
    }
}

/// What is sent in front of a command.
#[derive(Clone, Copy, PartialEq)]
enum First {
    Nothing,
    /// That the node is asked on purpose: it gets the slot.
    Asking,
    /// Whether the node is a master.
    Role,
}

/// Sends commands, and returns the answer, or the answers of several; `None` if the node was asked for its role, and is
/// no master.
async fn sent(connection: &mut MultiplexedConnection, commands: &[Cmd], first: First) -> RedisResult<Option<Value>> {
    if let ([command], First::Nothing) = (commands, first) {
        return command.query_async(connection).await.map(Some);
    }
    let mut all = pipe();
    if first == First::Role {
        all.cmd("ROLE");
    }
    for command in commands {
        if first == First::Asking {
            all.cmd("ASKING").ignore();
        }
        all.add_command(command.clone());
    }
    let answer: Value = all.query_async(connection).await?;
    let Value::Array(mut answers) = answer else { return Ok(Some(answer)) };
    if first == First::Role && !sentinels::is_master(&answers.remove(0)) {
        return Ok(None);
    }
    Ok(Some(if commands.len() == 1 && answers.len() == 1 { answers.remove(0) } else { Value::Array(answers) }))
}
