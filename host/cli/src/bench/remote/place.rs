//! Where a dataset lies: the parts of its URL, and the servers behind it.

use anyhow::{Context, bail, ensure};

/// The parts of a URL.
pub struct Url<'a> {
    pub scheme: &'a str,
    /// Host and port of each server that the URL names.
    named: Vec<String>,
    pub path: &'a str,
}

impl<'a> Url<'a> {
    pub fn of(url: &'a str) -> anyhow::Result<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let port = match scheme {
            "http" => 80,
            "redis" => 6379,
            "cql" => 9042,
            _ => bail!("give a URL that begins with http://, redis:// or cql://; what goes by TLS cannot be delayed"),
        };
        let (hosts, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // A message must not show a password.
        ensure!(!hosts.is_empty() && !hosts.contains('@'), "give a URL with a host, and without user and password");
        let is_one = scheme == "redis" || !hosts.contains(',');
        ensure!(is_one, "name one host: the line leads to one server, and a cluster of Cassandra has to have one node");
        let server = |host: &str| match host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            true => host.to_owned(),
            false => format!("{host}:{port}"),
        };
        Ok(Self { scheme, named: hosts.split(',').map(server).collect(), path })
    }

    /// Returns the servers that have the dataset.
    pub fn servers(&self) -> anyhow::Result<Servers> {
        let alone = || Servers { all: vec![self.named[0].clone()], are_cluster: false };
        if self.scheme != "redis" {
            return Ok(alone());
        }
        let found = self.named.iter().map(|server| masters(server)).reduce(Result::or).expect("a URL names a server");
        Ok(found?.map_or_else(alone, |all| Servers { all, are_cluster: true }))
    }
}

/// The servers that have a dataset.
pub struct Servers {
    /// Host and port of each: one server, or the masters of a cluster of Redis servers.
    pub all: Vec<String>,
    pub are_cluster: bool,
}

/// Returns the masters of the cluster to which a Redis server belongs; `None` if it belongs to none.
fn masters(server: &str) -> anyhow::Result<Option<Vec<String>>> {
    let mut connection = redis::Client::open(format!("redis://{server}/"))
        .and_then(|client| client.get_connection())
        .with_context(|| format!("{server} cannot be asked for the nodes of its cluster"))?;
    let Ok(answer) = redis::cmd("CLUSTER").arg("SLOTS").query::<redis::Value>(&mut connection) else {
        // No cluster.
        return Ok(None);
    };
    let text = |value: &redis::Value| redis::from_redis_value::<String>(value.clone()).ok();
    let mut all: Vec<String> = Vec::new();
    for range in answer.as_sequence().unwrap_or_default() {
        let master = range.as_sequence().and_then(|range| range.get(2)?.as_sequence());
        let place = master.and_then(|master| Some(format!("{}:{}", text(master.first()?)?, text(master.get(1)?)?)));
        let place = place.filter(|place| !place.starts_with(':'));
        all.push(place.with_context(|| format!("{server} does not say where the nodes of its cluster are"))?);
    }
    all.sort();
    all.dedup();
    Ok(Some(all).filter(|all| !all.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_servers_and_a_path() {
        let of = |url| Url::of(url).map(|url| (url.scheme.to_owned(), url.named.join(" "), url.path.to_owned()));
        let parts = |scheme: &str, servers: &str, path: &str| (scheme.into(), servers.into(), path.into());
        assert_eq!(of("http://h/a/b.ddlp").unwrap(), parts("http", "h:80", "/a/b.ddlp"));
        assert_eq!(of("cql://h/k/x").unwrap(), parts("cql", "h:9042", "/k/x"));
        assert_eq!(of("redis://[::1]:7000/0/x").unwrap(), parts("redis", "[::1]:7000", "/0/x"));
        assert_eq!(of("redis://a,b:7000/0/x").unwrap(), parts("redis", "a:6379 b:7000", "/0/x"));
        for wrong in ["https://h/a", "a.ddlp", "http:///a", "redis://me:secret@h/0/x", "cql://a,b/k/x"] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
