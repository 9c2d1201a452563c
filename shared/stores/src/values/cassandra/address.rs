//! URLs of datasets in Cassandra or ScyllaDB. A URL has no password, because logs and reports show it.

use super::super::user_of;
use std::env;
use std::fmt;

/// The environment variable with the password.
pub const PASSWORD: &str = "CASSANDRA_PASSWORD";
/// How a URL names a table that others made.
const TABLE_SHAPE: &str = "cql://HOST[,HOST…][:PORT]/KEYSPACE/TABLE, or cqls:// for TLS";
/// How a URL names a dataset.
const SHAPE: &str = "cql://HOST[,HOST…][:PORT]/KEYSPACE/NAME, or cqls:// for TLS, such as cql://10.0.0.7/photos/train";
const DEFAULT_PORT: u16 = 9042;
/// Longest name of a dataset: names of tables have at most 48 letters, and the longest ends with `_metadata`.
const NAME_MAX: usize = 39;
/// Longest name of a keyspace or a table.
const KEYSPACE_MAX: usize = 48;

/// The address of a dataset. It has no secret.
#[derive(Clone, Debug)]
pub struct ClusterAddress {
    url: String,
    pub is_tls: bool,
    /// The role's name.
    pub user: Option<String>,
    /// Nodes to ask first.
    pub hosts: Vec<String>,
    /// Port of all nodes.
    pub port: u16,
    pub keyspace: String,
    /// The dataset's name, with which the names of its tables begin; of a table that others made, its name.
    pub name: String,
}

/// Returns whether a dataset's place is the URL of one in Cassandra or ScyllaDB.
pub fn is_url(place: &str) -> bool {
    scheme_of(place).is_some()
}

fn scheme_of(place: &str) -> Option<(bool, &str)> {
    let (plain, tls) = (place.strip_prefix("cql://"), place.strip_prefix("cqls://"));
    plain.map(|rest| (false, rest)).or(tls.map(|rest| (true, rest)))
}

/// Returns whether a name has only letters, digits and `_`.
pub fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl ClusterAddress {
    /// Reads the URL of a dataset. The error says what to do.
    pub fn parse(url: &str) -> Result<Self, String> {
        Self::parse_as(url, ("name of the dataset", NAME_MAX), &format!("name the dataset as {SHAPE}"))
    }

    /// Reads the URL of a table that others made. The error says what to do.
    pub fn parse_table(url: &str) -> Result<Self, String> {
        Self::parse_as(url, ("name of the table", KEYSPACE_MAX), &format!("name the table as {TABLE_SHAPE}"))
    }

    fn parse_as(url: &str, (what, most): (&str, usize), shape: &str) -> Result<Self, String> {
        let shape = || shape.to_owned();
        let (is_tls, rest) = scheme_of(url).ok_or_else(shape)?;
        let (user, rest) = user_of(rest, PASSWORD, shape)?;
        let (servers, path) = rest.split_once('/').ok_or_else(shape)?;
        let (hosts, port) = hosts_of(servers).ok_or_else(shape)?;
        let (keyspace, name) = path.split_once('/').ok_or_else(shape)?;
        for (what, text, most) in [("keyspace", keyspace, KEYSPACE_MAX), (what, name, most)] {
            if text.len() > most || !is_plain(text) {
                return Err(format!("the {what} may have letters, digits and _, at most {most} of them; {}", shape()));
            }
        }
        let (user, keyspace, name) = (user.map(str::to_owned), keyspace.to_owned(), name.to_owned());
        Ok(Self { url: url.to_owned(), is_tls, user, hosts, port, keyspace, name })
    }

    /// Returns user and password. The error says what to do.
    pub fn login(&self) -> Result<Option<(String, String)>, String> {
        let password = env::var(PASSWORD).ok().filter(|password| !password.is_empty());
        match (&self.user, password) {
            (None, _) => Ok(None),
            (Some(user), Some(password)) => Ok(Some((user.clone(), password))),
            (Some(user), None) => Err(format!("the URL names the user {user}: put the password into {PASSWORD}")),
        }
    }
}

/// Returns the hosts and their port.
fn hosts_of(servers: &str) -> Option<(Vec<String>, u16)> {
    let mut port = None;
    let mut hosts = Vec::new();
    for server in servers.split(',') {
        if port.is_some() {
            return None;
        }
        let (host, rest) = match server.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => server.split_at(server.find(':').unwrap_or(server.len())),
        };
        if host.is_empty() || host.contains(['?', '#', '%', '[']) {
            return None;
        }
        hosts.push(host.to_owned());
        port = match rest.strip_prefix(':') {
            Some(number) => Some(number.parse().ok().filter(|port| *port > 0)?),
            None if rest.is_empty() => None,
            None => return None,
        };
    }
    Some((hosts, port.unwrap_or(DEFAULT_PORT)))
}

/// The URL.
impl fmt::Display for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_nodes_keyspace_and_dataset() {
        for (url, user, hosts, port) in [
            ("cql://10.0.0.7/photos/train", None, &["10.0.0.7"][..], 9042),
            ("cqls://a,b.example,c:9142/photos/train", None, &["a", "b.example", "c"], 9142),
            ("cql://me@[::1]:7/photos/train", Some("me"), &["::1"], 7),
            ("cql://[::1],[::2]/photos/train", None, &["::1", "::2"], 9042),
        ] {
            let address = ClusterAddress::parse(url).unwrap();
            assert_eq!((address.user.as_deref(), address.port), (user, port), "{url}");
            assert_eq!(address.hosts, hosts, "{url}");
            assert_eq!((&*address.keyspace, &*address.name), ("photos", "train"), "{url}");
            assert_eq!(address.is_tls, url.starts_with("cqls"), "{url}");
        }
    }

    #[test]
    fn passwords_and_incomplete_urls_are_refused() {
        for (url, part) in [
            ("cql://me:sesame@host/k/a", PASSWORD),
            ("cql://@host/k/a", "cql://HOST"),
            ("cql://host/k", "cql://HOST"),
            ("cql://host", "cql://HOST"),
            ("cql:///k/a", "cql://HOST"),
            ("cql://a,,b/k/a", "cql://HOST"),
            ("cql://a:1,b/k/a", "cql://HOST"),
            ("cql://a:0/k/a", "cql://HOST"),
            ("cql://a:b/k/a", "cql://HOST"),
            ("cql://[::1/k/a", "cql://HOST"),
            ("cql://host//a", "the keyspace may have"),
            ("cql://host/k/a-b", "the name of the dataset may have"),
            ("cql://host/k/a/b", "the name of the dataset may have"),
            ("cql://host/k/a?password=sesame", "the name of the dataset may have"),
            (&format!("cql://host/k/{}", "a".repeat(40)), "at most 39"),
        ] {
            let said = ClusterAddress::parse(url).unwrap_err();
            assert!(said.contains(part), "{url}: {said}");
            assert!(!said.contains("sesame"), "{said}");
        }
    }
}
