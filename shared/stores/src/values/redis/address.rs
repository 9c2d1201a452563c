//! URLs of datasets in Redis or Valkey. A URL has no password, because logs and reports show it: the password comes
//! from the environment variable of `redis-cli`, and the login of Sentinels from two others.

use super::super::client_certificate::{CERTIFICATE, KEY, files, unusable};
use super::super::user_of;
use super::slots::Place;
use redis::{Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, TlsCertificates};
use std::env;
use std::fmt;
use std::fs;

/// The environment variable with the password.
pub const PASSWORD: &str = "REDISCLI_AUTH";
/// The environment variables with the login of the Sentinels.
pub const SENTINEL_PASSWORD: &str = "REDIS_SENTINEL_PASSWORD";
pub const SENTINEL_USER: &str = "REDIS_SENTINEL_USERNAME";
/// How a URL names a dataset.
const SHAPE: &str = "redis://HOST:PORT/DB/NAME, or rediss:// for TLS, such as redis://localhost:6379/0/train; nodes of \
                     a cluster as redis://HOST:PORT,HOST:PORT/0/NAME; with Sentinels as \
                     redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB/NAME";
/// The schemes of URLs, whether they are TLS, and whether they name Sentinels.
const SCHEMES: [(&str, bool, bool); 4] = [
    ("redis://", false, false),
    ("rediss://", true, false),
    ("redis+sentinel://", false, true),
    ("rediss+sentinel://", true, true),
];
const SERVER_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;

/// The address of a dataset. It has no secret.
#[derive(Clone, Debug)]
pub struct ServerAddress {
    url: String,
    is_tls: bool,
    user: Option<String>,
    /// The server, nodes of a cluster, or Sentinels.
    pub places: Vec<Place>,
    /// The name by which Sentinels know the master, if the places are Sentinels.
    pub service: Option<String>,
    db: i64,
    /// The dataset's name, with which its keys begin.
    pub name: String,
}

/// Returns whether a dataset's place is the URL of one in Redis or Valkey.
pub fn is_url(place: &str) -> bool {
    scheme_of(place).is_some()
}

/// Returns whether a URL is TLS, whether it names Sentinels, and what follows its scheme.
fn scheme_of(place: &str) -> Option<(bool, bool, &str)> {
    let of = |(scheme, is_tls, is_sentinel)| Some((is_tls, is_sentinel, place.strip_prefix(scheme)?));
    SCHEMES.into_iter().find_map(of)
}

impl ServerAddress {
    /// Reads a URL. The error says what to do.
    pub fn parse(url: &str) -> Result<Self, String> {
        let shape = || format!("name the dataset as {SHAPE}");
        let (is_tls, is_sentinel, rest) = scheme_of(url).ok_or_else(shape)?;
        let (user, rest) = user_of(rest, PASSWORD, shape)?;
        let (servers, path) = rest.split_once('/').ok_or_else(shape)?;
        let (service, path) = match is_sentinel {
            true => path.split_once('/').map(|(service, path)| (Some(service), path)).ok_or_else(shape)?,
            false => (None, path),
        };
        let (db, name) = path.split_once('/').ok_or_else(shape)?;
        let port = if is_sentinel { SENTINEL_PORT } else { SERVER_PORT };
        let places = servers.split(',').map(|server| server_of(server, port)).collect::<Option<_>>();
        let places = places.ok_or_else(shape)?;
        let db = db.parse().ok().filter(|db| *db >= 0).ok_or_else(shape)?;
        let has_only = |text: &str, others: &[u8]| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
        };
        if service.is_some_and(|service| !has_only(service, b"-_.")) {
            return Err(format!("the name of the service may have letters, digits, and - _ .; {}", shape()));
        }
        if !has_only(name, b"-_./") {
            return Err(format!("the name of the dataset may have letters, digits, and - _ . /; {}", shape()));
        }
        let [user, service] = [user, service].map(|text| text.map(str::to_owned));
        Ok(Self { url: url.to_owned(), is_tls, user, places, service, db, name: name.to_owned() })
    }

    /// Creates the client of a node, with the password that the environment names. The error says what to do.
    pub fn client(&self, node: &Place) -> Result<Client, String> {
        let mut login = RedisConnectionInfo::default().set_db(self.db);
        let password = variable(PASSWORD);
        if let Some(user) = &self.user {
            let missing = || format!("the URL names the user {user}: put the password into {PASSWORD}");
            login = login.set_username(user).set_password(password.as_deref().ok_or_else(missing)?);
        } else if let Some(password) = &password {
            login = login.set_password(password);
        }
        self.client_with(node, login)
    }

    /// Creates the client of a Sentinel, with the login that the environment names. The error says what to do.
    pub fn sentinel_client(&self, sentinel: &Place) -> Result<Client, String> {
        let mut login = RedisConnectionInfo::default();
        match (variable(SENTINEL_USER), variable(SENTINEL_PASSWORD)) {
            (Some(_), None) => return Err(format!("{SENTINEL_USER} is set, but not {SENTINEL_PASSWORD}")),
            (user, Some(password)) => {
                login = user.into_iter().fold(login, |login, user| login.set_username(user)).set_password(password);
            }
            (None, None) => {}
        }
        self.client_with(sentinel, login)
    }

    fn client_with(&self, place: &Place, login: RedisConnectionInfo) -> Result<Client, String> {
        // The program may have chosen one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let Place { host, port } = place.clone();
        let place = match self.is_tls {
            true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host, port),
        };
        let settings = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let info = place.into_connection_info().map_err(|error| error.to_string())?;
        let info = info.set_redis_settings(login.set_skip_set_lib_name()).set_tcp_settings(settings);
        let client_tls = if self.is_tls { client_certificate()? } else { None };
        let client = match client_tls {
            None => Client::open(info),
            client_tls => Client::build_with_tls(info, TlsCertificates { client_tls, root_cert: None }),
        };
        client.map_err(|error| error.to_string())
    }
}

/// Returns the certificate to show to servers. The error says what to do.
fn client_certificate() -> Result<Option<ClientTlsConfig>, String> {
    let Some([certificate, key]) = files()? else { return Ok(None) };
    let read = |variable, file| fs::read(file).map_err(|error| unusable(variable, file, &error));
    let (client_cert, client_key) = (read(CERTIFICATE, &certificate)?, read(KEY, &key)?);
    Ok(Some(ClientTlsConfig { client_cert, client_key }))
}

/// Returns what an environment variable has, unless that is nothing.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the place of a server, which listens at the port `otherwise` unless it says another.
fn server_of(server: &str, otherwise: u16) -> Option<Place> {
    let (host, port) = match server.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => server.split_once(':').map_or((server, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Some(otherwise), |port| port.parse().ok())?;
    (!host.is_empty() && !host.contains(['?', '#', '%'])).then(|| Place { host: host.to_owned(), port })
}

/// The URL.
impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_server_database_and_dataset() {
        for (url, host, port, db, name) in [
            ("redis://10.0.0.7/0/train", "10.0.0.7", 6379, 0, "train"),
            ("rediss://host:6380/3/photos/train.v2", "host", 6380, 3, "photos/train.v2"),
            ("redis://me@host:1/0/a", "host", 1, 0, "a"),
            ("redis://[::1]:7/0/a-b_c", "::1", 7, 0, "a-b_c"),
            ("redis://[::1]/0/a", "::1", 6379, 0, "a"),
        ] {
            let address = ServerAddress::parse(url).unwrap();
            let [Place { host: found, port: at }] = &address.places[..] else { panic!("{url}") };
            assert_eq!((&**found, *at, address.db, &*address.name), (host, port, db, name), "{url}");
            assert_eq!(address.is_tls, url.starts_with("rediss"), "{url}");
        }
        let cluster = ServerAddress::parse("redis://a:7000,b,[::1]:7/0/train").unwrap();
        let places: Vec<_> = cluster.places.iter().map(|place| (&*place.host, place.port)).collect();
        assert_eq!(places, [("a", 7000), ("b", 6379), ("::1", 7)]);
        assert_eq!(ServerAddress::parse("redis://me@h/0/a").unwrap().user.as_deref(), Some("me"));
    }

    #[test]
    fn urls_name_sentinels_and_the_service_that_they_watch() {
        for (url, is_tls) in [
            ("redis+sentinel://me@a:7000,b,[::1]:7/my.master/3/photos/train", false),
            ("rediss+sentinel://me@a:7000,b,[::1]:7/my.master/3/photos/train", true),
        ] {
            let address = ServerAddress::parse(url).unwrap();
            let places: Vec<_> = address.places.iter().map(|place| (&*place.host, place.port)).collect();
            assert_eq!(places, [("a", 7000), ("b", 26_379), ("::1", 7)]);
            let (user, service) = (address.user.as_deref(), address.service.as_deref());
            assert_eq!((user, service, address.db, &*address.name), (Some("me"), Some("my.master"), 3, "photos/train"));
            assert_eq!((address.is_tls, address.to_string()), (is_tls, url.to_owned()));
        }
        assert_eq!(ServerAddress::parse("redis://a/0/train").unwrap().service, None);
    }

    #[test]
    fn passwords_and_incomplete_urls_are_refused() {
        for (url, part) in [
            ("redis://me:sesame@host/0/a", "REDISCLI_AUTH"),
            ("redis://:sesame@host/0/a", "REDISCLI_AUTH"),
            ("redis://me:ses@me/@host/0/a", "REDISCLI_AUTH"),
            ("redis://@host/0/a", "redis://HOST:PORT/DB/NAME"),
            ("redis://host", "redis://HOST:PORT/DB/NAME"),
            ("redis://host/train", "redis://HOST:PORT/DB/NAME"),
            ("redis://host/x/train", "redis://HOST:PORT/DB/NAME"),
            ("redis://host/-1/train", "redis://HOST:PORT/DB/NAME"),
            ("redis://a,,b/0/train", "redis://HOST:PORT/DB/NAME"),
            ("redis://host:port/0/train", "redis://HOST:PORT/DB/NAME"),
            ("redis:///0/train", "redis://HOST:PORT/DB/NAME"),
            ("redis://host/0/", "redis://HOST:PORT/DB/NAME"),
            ("redis://host/0/a?password=sesame", "letters, digits"),
            ("redis://host/0/a b", "letters, digits"),
            ("redis+sentinel://me:sesame@host/mymaster/0/a", "REDISCLI_AUTH"),
            ("redis+sentinel://host/0/a", "redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB/NAME"),
            ("redis+sentinel://host/mymaster/x/a", "redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB/NAME"),
            ("redis+sentinel:///mymaster/0/a", "redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB/NAME"),
            ("redis+sentinel://host//0/a", "the name of the service"),
            ("redis+sentinel://host/my master/0/a", "the name of the service"),
        ] {
            let said = ServerAddress::parse(url).unwrap_err();
            assert!(said.contains(part), "{url}: {said}");
            assert!(!said.contains("sesame"), "{said}");
        }
    }
}
