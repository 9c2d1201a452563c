//! TLS towards a cluster, with a certificate of the client if the environment names one.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::env;
use std::ffi::OsString;
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// The environment variables that name the files of the client's certificate, with those up to the authority, and of
/// its key.
pub const CERTIFICATE: &str = "SSL_CLIENT_CERT_FILE";
pub const KEY: &str = "SSL_CLIENT_KEY_FILE";

/// Creates what makes connections secure. The error says what to do.
pub fn connector() -> Result<TlsConnector, String> {
    // The program may have chosen one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (known, _) = roots.add_parsable_certificates(found.certs);
    if known == 0 {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(format!("no certificates to trust were found{why}: SSL_CERT_FILE names a file with them"));
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match (file_of(CERTIFICATE), file_of(KEY)) {
        (None, None) => config.with_no_client_auth(),
        (Some(certificate), Some(key)) => {
            let certificates = CertificateDer::pem_file_iter(&certificate).and_then(Iterator::collect);
            let certificates: Vec<_> = certificates.map_err(|error| unreadable(CERTIFICATE, &certificate, &error))?;
            let key = PrivateKeyDer::from_pem_file(&key).map_err(|error| unreadable(KEY, &key, &error))?;
            let used = config.with_client_auth_cert(certificates, key);
            used.map_err(|error| {
                format!("the certificate of {CERTIFICATE} cannot be used with the key of {KEY}: {error}")
            })?
        }
        (named, _) => {
            let (there, missing) = if named.is_some() { (CERTIFICATE, KEY) } else { (KEY, CERTIFICATE) };
            return Err(format!("{there} is set, but not {missing}: a certificate of the client needs both"));
        }
    };
    Ok(Arc::new(config).into())
}

/// Returns whether an environment variable names a file.
pub fn is_named(variable: &str) -> bool {
    file_of(variable).is_some()
}

fn file_of(variable: &str) -> Option<OsString> {
    env::var_os(variable).filter(|file| !file.is_empty())
}

fn unreadable(variable: &str, file: &OsString, error: &rustls::pki_types::pem::Error) -> String {
    format!("{variable} names {}, which cannot be used as a PEM file: {error}", file.display())
}
