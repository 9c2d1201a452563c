//! The certificate that a client shows to a server with TLS, if the environment names one.

use super::super::server_path::Failure;
use std::env;
use std::ffi::OsString;

/// The environment variables that name the files of the client's certificate, with those up to the authority, and of
/// its key.
pub const CERTIFICATE: &str = "SSL_CLIENT_CERT_FILE";
pub const KEY: &str = "SSL_CLIENT_KEY_FILE";

/// Returns the files of certificate and key. The error says what to do.
pub fn files() -> Result<Option<[OsString; 2]>, String> {
    match (file_of(CERTIFICATE), file_of(KEY)) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some([certificate, key])),
        (named, _) => {
            let (there, missing) = if named.is_some() { (CERTIFICATE, KEY) } else { (KEY, CERTIFICATE) };
            Err(format!("{there} is set, but not {missing}: a certificate of the client needs both"))
        }
    }
}

fn file_of(variable: &str) -> Option<OsString> {
    env::var_os(variable).filter(|file| !file.is_empty())
}

/// The file that a variable names cannot be used.
pub fn unusable(variable: &str, file: &OsString, error: &dyn std::error::Error) -> String {
    format!("{variable} names {}, which cannot be used as a PEM file: {error}", file.display())
}

/// Returns whether a server ends a connection because the two do not agree. Any other alert may pass: a server that
/// shuts down sends some, too.
pub fn is_refusal(problem: &rustls::Error) -> bool {
    use rustls::AlertDescription as Alert;
    let rustls::Error::AlertReceived(alert) = problem else { return false };
    matches!(
        alert,
        Alert::HandshakeFailure
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::CertificateRequired
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::ProtocolVersion
            | Alert::InsufficientSecurity
    )
}

/// The server ends a connection because the two do not agree ([`is_refusal`]).
pub fn refused(problem: &rustls::Error) -> Failure {
    let help = match file_of(CERTIFICATE) {
        Some(_) => format!(
            "it does not accept the certificate of {CERTIFICATE}: an authority that the server trusts has to have \
             signed it, and it has to be valid now"
        ),
        None => format!(
            "if it wants a certificate of the client, {CERTIFICATE} and {KEY} name the files of certificate and key"
        ),
    };
    Failure::lasting(format!("the server ends the TLS connection ({problem}): {help}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::AlertDescription as Alert;

    #[test]
    fn a_server_that_shuts_down_has_not_refused_the_certificate() {
        for (alert, is_refused) in [
            (Alert::CertificateRequired, true),
            (Alert::HandshakeFailure, true),
            (Alert::InternalError, false),
            (Alert::UserCanceled, false),
            (Alert::CloseNotify, false),
        ] {
            assert_eq!(is_refusal(&rustls::Error::AlertReceived(alert)), is_refused, "{alert:?}");
        }
    }
}
