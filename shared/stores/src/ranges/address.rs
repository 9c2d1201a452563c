//! URLs of packs in object stores and on web servers, and a client for each. `profile`: keys from `~/.aws`.

mod profile;

use super::failure::Judge;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::ClientConfigKey;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{ObjectStore, RetryConfig};
use std::env;
use std::fmt;

/// The schemes, and what a URL of each names.
const SCHEMES: [(&str, Kind); 5] =
    [("s3", Kind::S3), ("gs", Kind::Google), ("az", Kind::Azure), ("https", Kind::Web), ("http", Kind::Web)];

/// Settings of all clients. A request's own limit is shorter.
const CLIENT: [(ClientConfigKey, &str); 3] = [
    (ClientConfigKey::ConnectTimeout, "5 seconds"),
    (ClientConfigKey::Timeout, "1 hour"),
    (ClientConfigKey::UserAgent, concat!("ddlp/", env!("CARGO_PKG_VERSION"))),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    S3,
    Google,
    Azure,
    Web,
}

/// The address of an object. It has no secret.
#[derive(Debug)]
pub(super) struct StoreAddress {
    url: String,
    kind: Kind,
    /// Server, bucket or container: the part between the scheme and the path.
    authority: String,
    /// The object within its server, bucket or container.
    pub path: Path,
}

/// Returns whether a dataset's place is a URL of a scheme that [`StoreAddress`] takes.
pub fn is_url(place: &str) -> bool {
    scheme_of(place).is_some()
}

fn scheme_of(place: &str) -> Option<(Kind, &str)> {
    let (scheme, rest) = place.split_once("://")?;
    let (_, kind) = SCHEMES.into_iter().find(|(name, _)| *name == scheme)?;
    Some((kind, rest))
}

impl StoreAddress {
    /// Reads a URL. The error says what to do.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (kind, rest) = scheme_of(url).ok_or("it is no URL of an object store or web server")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return Err("a URL has no credentials, because logs and reports show it: take the part with @ out".into());
        }
        if path.contains(['?', '#']) {
            let help = "a URL has no ? and no #, because logs and reports show it: for an object that is not public, \
                        give the store's credentials in the environment";
            return Err(help.into());
        }
        if authority.is_empty() || path.is_empty() || path.ends_with('/') {
            return Err(format!("name the pack as {}", Self::shape(kind)));
        }
        let path = Path::from_url_path(path).map_err(|error| error.to_string())?;
        Ok(Self { url: url.to_owned(), kind, authority: authority.to_owned(), path })
    }

    fn shape(kind: Kind) -> &'static str {
        match kind {
            Kind::S3 => "s3://BUCKET/PATH",
            Kind::Google => "gs://BUCKET/PATH",
            Kind::Azure => "az://CONTAINER/PATH",
            Kind::Web => "https://SERVER/PATH",
        }
    }

    /// Returns whether objects can be put there.
    pub fn is_writable(&self) -> bool {
        self.kind != Kind::Web
    }

    /// Creates the client, with the credentials that the environment names. The error says what to do.
    pub fn store(&self, retry: RetryConfig) -> Result<Box<dyn ObjectStore>, String> {
        // The program may have chosen one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let built: object_store::Result<Box<dyn ObjectStore>> = match self.kind {
            Kind::S3 => {
                let mut builder = AmazonS3Builder::from_env().with_bucket_name(&self.authority).with_retry(retry);
                if let Some(keys) = profile::keys()? {
                    builder = keys.apply(builder);
                }
                for (key, value) in CLIENT {
                    builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
                }
                let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
                builder = builder.with_allow_http(endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")));
                builder.with_http_connector(Judge).build().map(|store| Box::new(store) as _)
            }
            Kind::Google => {
                let mut builder =
                    GoogleCloudStorageBuilder::from_env().with_bucket_name(&self.authority).with_retry(retry);
                for (key, value) in CLIENT {
                    builder = builder.with_config(GoogleConfigKey::Client(key), value);
                }
                builder.with_http_connector(Judge).build().map(|store| Box::new(store) as _)
            }
            Kind::Azure => {
                let mut builder =
                    MicrosoftAzureBuilder::from_env().with_container_name(&self.authority).with_retry(retry);
                for (key, value) in CLIENT {
                    builder = builder.with_config(AzureConfigKey::Client(key), value);
                }
                let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
                builder = builder.with_allow_http(endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")));
                builder.with_http_connector(Judge).build().map(|store| Box::new(store) as _)
            }
            Kind::Web => {
                let scheme = self.url.split_once("://").map_or("https", |(scheme, _)| scheme);
                let mut builder =
                    HttpBuilder::new().with_url(format!("{scheme}://{}", self.authority)).with_retry(retry);
                for (key, value) in CLIENT {
                    builder = builder.with_config(key, value);
                }
                let plain = (scheme == "http").to_string();
                builder = builder.with_config(ClientConfigKey::AllowHttp, plain);
                builder.with_http_connector(Judge).build().map(|store| Box::new(store) as _)
            }
        };
        built.map_err(|error| format!("{}; {}", super::failure::reason(&error), self.credentials()))
    }

    /// Returns what helps if a request fails with this error.
    pub fn help(&self, error: &object_store::Error) -> String {
        match error {
            object_store::Error::NotFound { .. } => format!("check the name: {}", Self::shape(self.kind)),
            // Credentials that cannot be got have no kind of their own.
            _ => self.credentials().to_owned(),
        }
    }

    /// Says where credentials come from.
    fn credentials(&self) -> &'static str {
        match self.kind {
            Kind::S3 => {
                "credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, from AWS_PROFILE in ~/.aws, from a \
                 web identity or from the instance; AWS_SKIP_SIGNATURE=true reads public objects; AWS_REGION and \
                 AWS_ENDPOINT_URL name another region and another server"
            }
            Kind::Google => {
                "credentials come from GOOGLE_APPLICATION_CREDENTIALS, from GOOGLE_SERVICE_ACCOUNT, from gcloud or \
                 from the instance; GOOGLE_SKIP_SIGNATURE=true reads public objects"
            }
            Kind::Azure => {
                "AZURE_STORAGE_ACCOUNT_NAME names the account, and credentials come from AZURE_STORAGE_ACCOUNT_KEY, \
                 AZURE_STORAGE_SAS_KEY, from a client secret or from the instance; AZURE_SKIP_SIGNATURE=true reads \
                 public objects"
            }
            Kind::Web => "a web server has to serve it without credentials",
        }
    }
}

/// The URL.
impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// Returns a variable of the environment, unless it is empty.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_paths_and_drives() {
        for url in ["s3://bucket/a.ddlp", "gs://b/c/d.ddlp", "az://box/x", "https://host:8443/a b.ddlp", "http://h/x"] {
            assert!(is_url(url) && StoreAddress::parse(url).is_ok(), "{url}");
        }
        for other in ["tcp://10.0.0.7:4420/nqn.2024-01.a:b", "/data/s3://x", "photos.ddlp", "ftp://host/x", "s3:/b/x"] {
            assert!(!is_url(other), "{other}");
        }
    }

    #[test]
    fn secrets_and_incomplete_urls_are_refused() {
        for (url, part) in [
            ("https://me:word@host/x.ddlp", "take the part with @ out"),
            ("https://host/x.ddlp?X-Amz-Signature=abc", "credentials in the environment"),
            ("https://host/x.ddlp#a", "no #"),
            ("s3://bucket", "s3://BUCKET/PATH"),
            ("s3://bucket/folder/", "s3://BUCKET/PATH"),
            ("gs:///x", "gs://BUCKET/PATH"),
        ] {
            let said = StoreAddress::parse(url).unwrap_err();
            assert!(said.contains(part), "{url}: {said}");
            assert!(!said.contains("word") && !said.contains("abc"), "{said}");
        }
    }
}
