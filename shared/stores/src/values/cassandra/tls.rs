//! TLS towards a cluster, with a certificate of the client if the environment names one.

use super::super::client_certificate::{CERTIFICATE, KEY, files, unusable};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use tokio_rustls::TlsConnector;

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
    let config = match files()? {
        None => config.with_no_client_auth(),
        Some([certificate, key]) => {
            let certificates = CertificateDer::pem_file_iter(&certificate).and_then(Iterator::collect);
            let certificates: Vec<_> = certificates.map_err(|error| unusable(CERTIFICATE, &certificate, &error))?;
            let key = PrivateKeyDer::from_pem_file(&key).map_err(|error| unusable(KEY, &key, &error))?;
            let used = config.with_client_auth_cert(certificates, key);
            used.map_err(|error| {
                format!("the certificate of {CERTIFICATE} cannot be used with the key of {KEY}: {error}")
            })?
        }
    };
    Ok(Arc::new(config).into())
}
