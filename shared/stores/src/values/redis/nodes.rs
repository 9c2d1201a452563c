//! The nodes that are asked: one server, or the masters of a cluster.
//!
//! A server counts as a node of a cluster once it sends a request on to another node. From then on, requests go by the
//! slots of their keys.

use super::super::super::server_path::Failure;
use super::super::lines::{CONNECT_WITHIN, Lines, first_good};
use super::address::ServerAddress;
use super::failure::{answer_of, judge};
use super::slots::{Place, Redirect, SlotMap, slot_of};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisResult, Value, cmd, pipe};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
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

/// One server, or a cluster.
pub struct Nodes {
    address: ServerAddress,
    nodes: Mutex<HashMap<Place, Arc<Node>>>,
    /// The masters, if the servers are a cluster.
    slots: RwLock<Option<Arc<SlotMap>>>,
    /// Whether the masters have to be asked for again.
    is_stale: AtomicBool,
    refreshing: tokio::sync::Mutex<()>,
}

struct Node {
    place: Place,
    client: Client,
    lines: Lines<MultiplexedConnection>,
}

impl Nodes {
    /// Prepares to ask the servers of an address, without connecting yet. The error says what to do.
    pub fn new(address: ServerAddress) -> Result<Self, String> {
        address.client(&address.places[0])?;
        let (nodes, slots, is_stale, refreshing) = Default::default();
        Ok(Self { address, nodes, slots, is_stale, refreshing })
    }

    pub fn address(&self) -> &ServerAddress {
        &self.address
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

    /// Asks all nodes at the same time for the masters.
    async fn refresh(&self) -> Result<(), Failure> {
        let _held = self.refreshing.lock().await;
        if !self.is_stale.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut places: HashSet<Place> = self.address.places.iter().cloned().collect();
        places.extend(self.masters().iter().flat_map(|slots| slots.masters().cloned().collect::<Vec<_>>()));
        let slots = first_good(places.iter().map(|place| self.slots_from(place)).collect()).await?;
        *self.slots.write().expect("no panic while the slots are locked") = Some(slots.into());
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
        let send = |mut connection| async move {
            match sent(&mut connection, request.commands, is_asking).await {
                Ok(answer) => Ok(Ok(answer)),
                Err(error) => {
                    let (code, details) = answer_of(&error);
                    let redirect = Redirect::parse(&code, details.strip_prefix(&*code).unwrap_or(&details), place);
                    redirect.map(Err).ok_or_else(|| judge(&error, &self.address))
                }
            }
        };
        let outcome = node.lines.attempt(number, request.bytes, self.connect(&node), send).await;
        if outcome.as_ref().is_err_and(|failure| failure.is_lost) && self.masters().is_some() {
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
        let client = self.address.client(place).map_err(Failure::lasting)?;
        let node = Arc::new(Node { place: place.clone(), client, lines: Lines::default() });
        nodes.insert(place.clone(), node.clone());
        Ok(node)
    }

    async fn connect(&self, node: &Node) -> Result<MultiplexedConnection, Failure> {
        // Requests have limits of their own, by which answers that wait behind others are not cut off.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_WITHIN)).set_response_timeout(None);
        let made = node.client.get_multiplexed_async_connection_with_config(&config).await;
        made.map_err(|error| {
            let mut failure = judge(&error, &self.address);
            if self.masters().is_some() {
                let Place { host, port } = &node.place;
                failure.what = format!("{host}:{port}: {failure}");
            }
            failure
        })
    }
}

/// Sends commands, and returns the answer, or the answers of several. A node that gets a slot wants to be told that it
/// is asked on purpose.
async fn sent(connection: &mut MultiplexedConnection, commands: &[Cmd], is_asking: bool) -> RedisResult<Value> {
    if let ([command], false) = (commands, is_asking) {
        return command.query_async(connection).await;
    }
    let mut all = pipe();
    for command in commands {
        if is_asking {
            all.cmd("ASKING").ignore();
        }
        all.add_command(command.clone());
    }
    let answer: Value = all.query_async(connection).await?;
    Ok(match answer {
        Value::Array(mut answers) if commands.len() == 1 && answers.len() == 1 => answers.remove(0),
        answer => answer,
    })
}
