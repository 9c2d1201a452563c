//! Failures of requests to a cluster: which may pass, and what they say.

use super::super::super::server_path::Failure;
use super::super::client_certificate::{is_refusal, refused};
use super::address::{ClusterAddress, PASSWORD};
use std::io;

/// Error code of a statement that the server does not know any more.
pub const UNPREPARED: i32 = 0x2500;

/// Judges an error that a server answers.
pub fn judge(code: i32, said: &str, address: &ClusterAddress) -> Failure {
    let said: String = said.lines().next().unwrap_or_default().chars().take(200).collect();
    let keyspace = &address.keyspace;
    let passing = || Failure::passing(format!("the server answered: {said}"));
    let lasting = |help: &str| Failure::lasting(format!("the server answered: {said}; {help}"));
    match code {
        // Roles cannot be looked up while too few nodes are up.
        0x0100 if said.starts_with("Unable to perform authentication") => passing(),
        0x0100 => Failure::lasting(format!(
            "the server refuses the login ({said}): the password is what the environment variable {PASSWORD} has, and \
             the role stands in the URL, as in cql://USER@HOST/{keyspace}/{}",
            address.name
        )),
        // Overloaded, and answers of replicas that did not come in time.
        0x1001 | 0x1100 | 0x1200 => Failure { pushes_back: true, ..passing() },
        // A failure of the server itself, too few replicas, bootstrapping, truncating, replicas that failed, and a
        // statement that is to be prepared again.
        0x0000 | 0x1000 | 0x1002 | 0x1003 | 0x1300 | 0x1500 | UNPREPARED => passing(),
        // Another node knows the table: it was found before anything was asked of it.
        0x2200 if said.contains("does not exist") || said.contains("doesn't exist") => passing(),
        0x000a => lasting("it has to speak version 4 of the CQL protocol"),
        0x2100 => lasting(&format!(
            "reading needs SELECT on the tables of the dataset, and pushing also CREATE and MODIFY on the keyspace \
             (GRANT … ON KEYSPACE {keyspace} TO …)"
        )),
        _ => lasting("check the URL, and that the dataset's tables are those that `ddlp push` makes"),
    }
}

/// The server wants a password, and the URL names no role.
pub fn no_login(address: &ClusterAddress) -> Failure {
    Failure::lasting(format!(
        "the server wants a password: name the role in the URL, as in cql://USER@HOST/{}/{}, and put its password into \
         the environment variable {PASSWORD}",
        address.keyspace, address.name
    ))
}

/// The server's bytes are not those of the protocol.
pub fn malformed() -> Failure {
    Failure { is_lost: true, ..Failure::passing("the server's answer is not of the CQL protocol".to_owned()) }
}

/// Judges a failure of a connection.
pub fn judge_io(error: &io::Error, is_tls: bool) -> Failure {
    let lost = |what| Failure { is_lost: true, ..Failure::passing(what) };
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(problem @ rustls::Error::InvalidCertificate(_)) => Failure::lasting(format!(
            "{problem}; SSL_CERT_FILE names a file with the certificates to trust, if the server has one of its own"
        )),
        Some(problem) if is_refusal(problem) => refused(problem),
        Some(rustls::Error::InvalidMessage(_)) => {
            Failure::lasting("the server does not speak TLS at this port: begin the URL with cql://".to_owned())
        }
        Some(problem) => lost(problem.to_string()),
        None if !is_tls && matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof) => {
            lost(format!("{error} (a server that wants TLS ends connections without it: cqls://)"))
        }
        None => lost(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_may_pass_are_told_from_those_that_need_help() {
        let address = ClusterAddress::parse("cql://me@host/photos/train").unwrap();
        for (code, pushes_back) in [(0x1000, false), (0x1001, true), (0x1200, true), (0x1300, false), (0, false)] {
            let failure = judge(code, "of a test", &address);
            assert!(failure.may_pass && !failure.is_lost && failure.pushes_back == pushes_back, "{failure}");
        }
        assert!(judge(0x0100, "Unable to perform authentication: too few", &address).may_pass);
        assert!(judge(0x2200, "table photos_data does not exist", &address).may_pass);
        for (code, part) in [
            (0x0100, PASSWORD),
            (0x000a, "version 4"),
            (0x2100, "GRANT … ON KEYSPACE photos"),
            (0x2200, "check the URL"),
            (0x7777, "check the URL"),
        ] {
            let failure = judge(code, "of a test", &address);
            assert!(!failure.may_pass && failure.to_string().contains(part), "{failure}");
        }
        let failure = judge_io(&io::ErrorKind::ConnectionReset.into(), false);
        assert!(failure.may_pass && failure.is_lost && failure.to_string().contains("cqls://"), "{failure}");
        let unknown = io::Error::other(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer));
        let failure = judge_io(&unknown, true);
        assert!(!failure.may_pass && failure.to_string().contains("SSL_CERT_FILE"), "{failure}");
    }
}
