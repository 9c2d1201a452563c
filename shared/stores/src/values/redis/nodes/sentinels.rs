//! The master that Sentinels name.
//!
//! A Sentinel may not have heard yet that a replica has become the master, and a server that was the master may still
//! answer. So the master is one that a Sentinel names and that says so itself, and each request asks it again.

use super::super::super::super::server_path::Failure;
use super::super::address::ServerAddress;
use super::super::failure::judge_sentinel;
use super::super::slots::Place;
use super::{Node, Nodes, Request};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{FromRedisValue, Value, cmd};

/// The Sentinels of a master and its replicas.
pub struct Sentinels {
    service: String,
    nodes: Vec<(Place, Node)>,
}

impl Sentinels {
    /// Prepares to ask the Sentinels of an address; `None` if it names none. The error says what to do.
    pub fn new(address: &ServerAddress) -> Result<Option<Self>, String> {
        let Some(service) = address.service.clone() else { return Ok(None) };
        let node = |place: &Place| Ok((place.clone(), Node::new(address.sentinel_client(place)?)));
        let nodes = address.places.iter().map(node).collect::<Result<_, String>>()?;
        Ok(Some(Self { service, nodes }))
    }

    /// Asks a Sentinel for the place of the master; `None` if it does not know the service.
    async fn ask(&self, (place, node): &(Place, Node), address: &ServerAddress) -> Result<Option<Place>, Failure> {
        let mut command = cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let judged = |error: &redis::RedisError| judge_sentinel(error, address).of(place);
        let send = |mut connection| async move {
            let answer: Value = command.query_async(&mut connection).await.map_err(|error| judged(&error))?;
            master_of(&answer).ok_or_else(|| Failure::passing(format!("{place}: the answer is malformed")))
        };
        node.lines.attempt(0, 0, node.connect(judged), send).await
    }
}

impl Nodes {
    /// Asks all Sentinels at the same time. Returns the first master that says itself that it is one.
    pub(super) async fn named_by(&self, sentinels: &Sentinels) -> Result<Place, Failure> {
        let asked = sentinels.nodes.iter().map(|sentinel| async move {
            let Some(place) = sentinels.ask(sentinel, &self.address).await? else { return Ok(None) };
            let confirmed = self.send(&place, 0, &Request { key: "", commands: &[], bytes: 0 }, false).await;
            // The Sentinels run, and will name another master if this one is lost.
            confirmed.map(|_| Some(place)).map_err(|failure| Failure { is_not_ready: failure.may_pass, ..failure })
        });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let (mut is_unknown, mut failure) = (false, None::<Failure>);
        while let Some(outcome) = asked.next().await {
            match outcome {
                Ok(Some(master)) => return Ok(master),
                Ok(None) => is_unknown = true,
                Err(found) => failure = failure.into_iter().chain([found]).reduce(graver),
            }
        }
        let unknown = format!("the Sentinels watch no master with the name {}: check the URL", sentinels.service);
        Err(match failure {
            None => Failure::lasting(unknown),
            Some(failure) if is_unknown && failure.may_pass && !failure.is_not_ready => {
                Failure { what: format!("{failure}; {unknown}"), ..failure }
            }
            Some(failure) => failure,
        })
    }
}

/// Returns the failure that says more: one of the master, which another server may replace, or one that will not pass.
fn graver(one: Failure, other: Failure) -> Failure {
    let rank = |failure: &Failure| (failure.is_not_ready, !failure.may_pass);
    if rank(&one) >= rank(&other) { one } else { other }
}

/// Reads a Sentinel's answer: host and port of the master; `Some(None)` if the Sentinel does not know the service, and
/// `None` if the answer is malformed.
fn master_of(answer: &Value) -> Option<Option<Place>> {
    if *answer == Value::Nil {
        return Some(None);
    }
    let (host, port) = <(String, String)>::from_redis_value_ref(answer).ok()?;
    Some(Some(Place { host, port: port.parse().ok()? }))
}

/// Returns whether a server's answer to `ROLE` says that it is a master.
pub fn is_master(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    parts.first().is_some_and(|role| String::from_redis_value_ref(role).is_ok_and(|role| role == "master"))
}

/// The server is no master: it was one, or will be one.
pub fn is_no_master(place: &Place) -> Failure {
    let what = format!("{place} is a replica, and no other server has become the master yet");
    Failure { is_lost: true, ..Failure::passing(what) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_sentinel_names_a_master_or_none() {
        let place = |host: &str, port| Some(Some(Place { host: host.to_owned(), port }));
        assert_eq!(master_of(&Value::Array(vec![text("::1"), text("6379")])), place("::1", 6379));
        assert_eq!(master_of(&Value::Nil), Some(None));
        for wrong in [text("a"), Value::Array(vec![text("a")]), Value::Array(vec![text("a"), text("70000")])] {
            assert_eq!(master_of(&wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn only_a_master_says_that_it_is_one() {
        assert!(is_master(&Value::Array(vec![text("master"), Value::Int(0), Value::Array(vec![])])));
        for role in ["slave", "sentinel"] {
            assert!(!is_master(&Value::Array(vec![text(role), Value::Int(0)])));
        }
        assert!(!is_master(&Value::Nil) && !is_master(&Value::Array(vec![])));
    }

    #[test]
    fn what_the_master_says_is_graver_than_a_sentinel_that_refuses_and_that_than_a_lost_one() {
        let lost = || Failure::passing("lost".to_owned());
        let not_ready = || Failure { is_not_ready: true, ..Failure::passing("not ready".to_owned()) };
        let refused = || Failure::lasting("refused".to_owned());
        for (one, other, graver_one) in [(lost(), not_ready(), "not ready"), (not_ready(), refused(), "not ready")] {
            assert_eq!(graver(one, other).what, graver_one);
        }
        assert_eq!(graver(refused(), lost()).what, "refused");
    }
}
