//! The nodes of a cluster, and which of them is asked.
//!
//! Only nodes of one datacentre are asked: that of the node of the URL that answers first.

use super::super::super::server_path::{Failure, ServerPath};
use super::super::lines::{Lines, first_good};
use super::address::ClusterAddress;
use super::connection::Connection;
use super::frame::{Answer, Consistency, Execution, texts};
use super::ring::{Ring, Token};
use super::tls;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Time in which a node that could not be reached is asked last, at first and at most.
const AVOIDED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// A statement with its values.
pub struct Query<'q> {
    /// The statement.
    pub statement: &'q str,
    /// What it is executed with; `None` for a statement without values that need not be prepared.
    pub execution: Option<Execution<'q>>,
    /// The row concerned.
    pub token: Option<Token>,
    /// Bytes that it sends, or that the answer has.
    pub bytes: usize,
}

/// A cluster.
pub struct Cluster {
    pub path: ServerPath,
    pub address: Arc<ClusterAddress>,
    tls: Option<TlsConnector>,
    nodes: OnceCell<Nodes>,
}

/// The nodes that are asked.
struct Nodes {
    nodes: Vec<Node>,
    ring: Ring,
}

/// A node.
struct Node {
    host: String,
    lines: Lines<Connection>,
    avoided: Mutex<Avoided>,
}

/// Whether a node is asked last, since it could not be reached.
#[derive(Default)]
struct Avoided {
    until: Option<Instant>,
    pause: Duration,
}

impl Node {
    fn new(host: String) -> Self {
        Self { host, lines: Lines::default(), avoided: Mutex::default() }
    }

    fn is_avoided(&self, now: Instant) -> bool {
        self.avoided.lock().expect("no panic while the time is locked").until.is_some_and(|until| now < until)
    }

    fn note(&self, is_lost: bool) {
        let (first, most) = AVOIDED;
        let mut avoided = self.avoided.lock().expect("no panic while the time is locked");
        let now = Instant::now();
        if !is_lost {
            *avoided = Avoided::default();
        } else if avoided.until.is_none_or(|until| until <= now) {
            avoided.pause = (avoided.pause * 2).clamp(first, most);
            avoided.until = Some(now + avoided.pause);
        }
    }
}

impl Cluster {
    /// Prepares to ask a cluster, without connecting yet. The error says what to do.
    pub fn new(address: ClusterAddress) -> Result<Self, String> {
        address.login()?;
        let tls = if address.is_tls { Some(tls::connector()?) } else { None };
        let (path, address) = (ServerPath::start("ddlp-values")?, Arc::new(address));
        Ok(Self { path, address, tls, nodes: OnceCell::new() })
    }

    /// Makes a request. Makes it again, of another node, after failures that may pass.
    pub async fn ask<T>(&self, query: &Query<'_>, take: impl FnMut(Answer<'_>) -> Option<T> + Send) -> io::Result<T> {
        self.ask_sized(query, take, |_| query.bytes).await
    }

    /// Makes a request as [`ask`](Self::ask) does. `size` says how many bytes were asked for, if only the answer tells.
    pub async fn ask_sized<T>(
        &self,
        query: &Query<'_>,
        mut take: impl FnMut(Answer<'_>) -> Option<T> + Send,
        size: impl Fn(&T) -> usize + Send,
    ) -> io::Result<T> {
        let mut attempts = self.path.request(&*self.address, query.bytes);
        for attempt in 0.. {
            let left = attempts.begin()?;
            let outcome = timeout(left, self.attempt(attempts.number(), attempt, query, &mut take)).await;
            let outcome = outcome.unwrap_or_else(|_| Err(Failure::slow(left)));
            let bytes = outcome.as_ref().map_or(0, &size);
            if let Some(outcome) = attempts.end_with(outcome, bytes).await {
                return outcome;
            }
        }
        unreachable!("attempts end")
    }

    /// Makes a request once; `None` if it fails.
    pub async fn ask_once<T>(&self, query: &Query<'_>, take: impl FnMut(Answer<'_>) -> Option<T> + Send) -> Option<T> {
        let mut attempts = self.path.request(&*self.address, query.bytes);
        let left = attempts.begin().ok()?;
        match timeout(left, self.attempt(attempts.number(), 0, query, take)).await {
            Ok(Ok(found)) => attempts.end(Ok(found)).await?.ok(),
            Ok(Err(failure)) => {
                tracing::debug!(%failure, "a request failed, and is made in another way");
                None
            }
            Err(_) => None,
        }
    }

    /// Makes the attempt with this number of a request with this number.
    pub async fn attempt<T>(
        &self,
        request: u64,
        attempt: usize,
        query: &Query<'_>,
        take: impl FnMut(Answer<'_>) -> Option<T> + Send,
    ) -> Result<T, Failure> {
        let nodes = self.nodes.get_or_try_init(|| self.find_nodes()).await?;
        let node = nodes.at(query.token, request, attempt);
        let connect = Connection::make(&self.address, &node.host, self.tls.as_ref());
        let mut take = take;
        let send = |connection: Connection| async move {
            match &query.execution {
                Some(execution) => connection.execute(query.statement, execution, &mut take).await,
                None => connection.query(query.statement, Consistency::LocalOne, &mut take).await,
            }
        };
        let outcome = node.lines.attempt(request, query.bytes, connect, send).await;
        node.note(outcome.as_ref().is_err_and(|failure| failure.is_lost));
        outcome
    }

    /// Asks all hosts of the URL at the same time for the nodes of their datacentre.
    async fn find_nodes(&self) -> Result<Nodes, Failure> {
        first_good(self.address.hosts.iter().map(|host| self.nodes_from(host)).collect()).await
    }

    async fn nodes_from(&self, host: &str) -> Result<Nodes, Failure> {
        let connection = Connection::make(&self.address, host, self.tls.as_ref()).await?;
        let local = "SELECT data_center, tokens FROM system.local WHERE key = 'local'";
        let local = connection.query(local, Consistency::LocalOne, |answer| member_rows(&answer, false)).await?;
        let peers = "SELECT data_center, tokens, rpc_address, peer FROM system.peers";
        let peers = connection.query(peers, Consistency::LocalOne, |answer| member_rows(&answer, true)).await?;
        let Some(asked) = local.into_iter().next() else {
            return Err(Failure::lasting(format!("{host} does not say which node of a cluster it is")));
        };
        // The node that was asked is reached as the URL has it, whatever address it has within the cluster.
        let mut members = vec![Member { host: Some(host.to_owned()), ..asked }];
        let (datacentre, hosts) = (members[0].datacentre.clone(), &self.address.hosts);
        members.extend(peers.into_iter().filter(|peer| peer.datacentre == datacentre && peer.host.is_some()));
        let ring = Ring::new(&members.iter().map(|member| member.tokens.clone()).collect::<Vec<_>>());
        tracing::debug!(datacentre, nodes = members.len(), hosts = hosts.len(), "found the nodes of a cluster");
        Ok(Nodes { nodes: members.into_iter().filter_map(|member| member.host.map(Node::new)).collect(), ring })
    }

    /// Waits until all nodes that are up know the tables, at most for some seconds.
    pub async fn agree_on_tables(&self) -> io::Result<()> {
        const ATTEMPTS: u32 = 50;
        for _ in 0..ATTEMPTS {
            let mut versions = Vec::new();
            for table in ["system.local", "system.peers"] {
                let statement = format!("SELECT schema_version FROM {table}");
                // Both of the same node, which knows its own version and, later, those of the others.
                let query = Query { statement: &statement, execution: None, token: Some(Token(0)), bytes: 0 };
                let cells = |answer: Answer<'_>| match answer {
                    Answer::Rows(rows) => Some(rows.into_iter().flatten().flatten().map(<[u8]>::to_vec).collect()),
                    _ => None,
                };
                let found: Vec<Vec<u8>> = self.ask(&query, cells).await?;
                versions.extend(found);
            }
            if versions.windows(2).all(|two| two[0] == two[1]) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // A node that is down never agrees.
        Ok(())
    }
}

impl Nodes {
    /// Returns the node for an attempt of a request: first the owner of the row, then the other replicas.
    fn at(&self, token: Option<Token>, request: u64, attempt: usize) -> &Node {
        let count = self.nodes.len();
        let order = match token {
            Some(token) => self.ring.order(token),
            None => (0..count).map(|number| (number + request as usize) % count).collect(),
        };
        let now = Instant::now();
        let (avoided, asked): (Vec<usize>, Vec<usize>) =
            order.into_iter().partition(|number| self.nodes[*number].is_avoided(now));
        let order = [asked, avoided].concat();
        &self.nodes[order[attempt % count]]
    }
}

/// A member of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    host: Option<String>,
    datacentre: String,
    tokens: Vec<Token>,
}

/// Reads members from rows of datacentre, tokens and, for peers, address for clients and address within the cluster.
fn member_rows(answer: &Answer<'_>, are_peers: bool) -> Option<Vec<Member>> {
    let Answer::Rows(rows) = answer else { return None };
    let member = |row: &Vec<Option<&[u8]>>| {
        let text = |cell: Option<&[u8]>| Some(std::str::from_utf8(cell?).ok()?.to_owned());
        let tokens = texts(row.get(1).copied()?.unwrap_or(&[0; 4]))?;
        let tokens = tokens.into_iter().map(|token| token.parse().ok().map(Token)).collect::<Option<_>>()?;
        let address = |cell: Option<&[u8]>| match cell?.len() {
            4 => Some(IpAddr::from(<[u8; 4]>::try_from(cell?).ok()?)),
            16 => Some(IpAddr::from(<[u8; 16]>::try_from(cell?).ok()?)),
            _ => None,
        };
        let host = if are_peers {
            // A node that listens at all addresses is reached at the one within the cluster.
            let named = address(row.get(2).copied()?).filter(|address| !address.is_unspecified());
            named.or_else(|| address(row.get(3).copied()?)).map(|address| address.to_string())
        } else {
            None
        };
        Some(Member { host, datacentre: text(row[0]).unwrap_or_default(), tokens })
    };
    rows.iter().map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_cannot_be_reached_is_asked_last_until_it_answers() {
        let ring = Ring::new(&[vec![Token(0)], vec![Token(10)], vec![Token(20)]]);
        let nodes = Nodes { nodes: ["a", "b", "c"].map(|host| Node::new(host.to_owned())).into(), ring };
        let order = || [0, 1, 2, 3].map(|attempt| nodes.at(Some(Token(5)), 0, attempt).host.clone());
        assert_eq!(order(), ["b", "c", "a", "b"]);
        nodes.nodes[1].note(true);
        assert_eq!(order(), ["c", "a", "b", "c"]);
        nodes.nodes[1].note(false);
        assert_eq!(order(), ["b", "c", "a", "b"]);
        assert_eq!(nodes.at(None, 4, 0).host, "b");
    }

    #[test]
    fn members_are_reached_where_they_listen_for_clients() {
        let tokens: &[u8] = b"\0\0\0\x02\0\0\0\x02-7\0\0\0\x013";
        let row = |rpc: &'static [u8]| vec![Some(&b"dc1"[..]), Some(tokens), Some(rpc), Some(&[10, 0, 0, 1][..])];
        let rows = Answer::Rows(vec![row(&[127, 0, 0, 2]), row(&[0; 4])]);
        let members = member_rows(&rows, true).unwrap();
        let hosts: Vec<_> = members.iter().map(|member| member.host.as_deref().unwrap()).collect();
        assert_eq!(hosts, ["127.0.0.2", "10.0.0.1"]);
        assert_eq!((&*members[0].datacentre, &*members[0].tokens), ("dc1", &[Token(-7), Token(3)][..]));
        assert_eq!(member_rows(&Answer::Rows(vec![vec![None]]), true), None);
    }
}
