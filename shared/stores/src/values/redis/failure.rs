//! Failures of requests to a key-value server: which may pass, and what they say.

use super::super::super::server_path::Failure;
use super::super::client_certificate::{is_refusal, refused};
use super::address::{PASSWORD, SENTINEL_PASSWORD, SENTINEL_USER, ServerAddress};
use redis::{ErrorKind, RedisError};
use std::error::Error;
use std::io;
use std::sync::Arc;

/// Judges the error of a request.
pub fn judge(error: &RedisError, address: &ServerAddress) -> Failure {
    let lost = |what| Failure { is_lost: true, ..Failure::passing(what) };
    match tls_problem(error) {
        Some(problem @ rustls::Error::InvalidCertificate(_)) => {
            return Failure::lasting(format!(
                "{problem}; SSL_CERT_FILE names a file with the certificates to trust, if the server has one of its own"
            ));
        }
        Some(problem) if is_refusal(problem) => return refused(problem),
        _ => {}
    }
    let (code, said) = answer_of(error);
    let lasting = |help: String| Failure::lasting(format!("the server answered {said}; {help}"));
    match &*code {
        _ if said.contains("max number of clients") => lost(format!("the server answered {said}")),
        _ if error.kind() == ErrorKind::AuthenticationFailed => credentials(&said),
        "NOAUTH" | "WRONGPASS" => credentials(&said),
        "NOPERM" => lasting(
            "reading needs the commands GET, GETRANGE and EXISTS, and pushing also SET, STRLEN and UNLINK, \
             for keys that begin with the dataset's name, CLUSTER SLOTS in a cluster, and ROLE with Sentinels \
             (ACL SETUSER)"
                .to_owned(),
        ),
        "WRONGTYPE" => lasting(format!(
            "a key that begins with {} was not written by `ddlp push`: choose another name",
            address.name
        )),
        "OOM" => lasting(
            "its memory is full: raise its maxmemory, remove other data, or push fewer bytes, for instance as \
             --format pcr with few scan groups or by smaller images"
                .to_owned(),
        ),
        // The master has become a replica meanwhile.
        "READONLY" if address.service.is_some() => lost(format!("the server answered {said}")),
        "READONLY" => lasting("it is a replica: push to its primary".to_owned()),
        "MISCONF" => lasting("it cannot save its data: look into its log".to_owned()),
        "LOADING" | "BUSY" | "TRYAGAIN" | "MASTERDOWN" | "NOREPLICAS" | "CLUSTERDOWN" => {
            Failure { is_not_ready: true, ..Failure::passing(format!("the server answered {said}")) }
        }
        "" if matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse) => lost(said),
        "ERR" if is_unknown_command(&said) => lasting(
            "check the URL, and the server's version; a URL that names Sentinels begins with redis+sentinel://"
                .to_owned(),
        ),
        _ => lasting("check the URL, and the server's version".to_owned()),
    }
}

/// Judges the error of a request to a Sentinel.
pub fn judge_sentinel(error: &RedisError, address: &ServerAddress) -> Failure {
    let (code, said) = answer_of(error);
    match &*code {
        _ if error.kind() == ErrorKind::AuthenticationFailed => sentinel_credentials(&said),
        "NOAUTH" | "WRONGPASS" | "NOPERM" => sentinel_credentials(&said),
        "ERR" if is_unknown_command(&said) => Failure::lasting(format!(
            "the server is no Sentinel (it answered {said}): the URL names Sentinels, whose port is 26379 unless it \
             says another"
        )),
        _ => judge(error, address),
    }
}

fn is_unknown_command(said: &str) -> bool {
    said.to_lowercase().contains("unknown command")
}

/// A Sentinel wants another login.
fn sentinel_credentials(said: &str) -> Failure {
    Failure::lasting(format!(
        "the Sentinel refuses the login ({said}): its password is what the environment variable {SENTINEL_PASSWORD} \
         has, and an ACL user, with the right to SENTINEL GET-MASTER-ADDR-BY-NAME, what {SENTINEL_USER} has"
    ))
}

/// The server wants another password.
fn credentials(said: &str) -> Failure {
    Failure::lasting(format!(
        "the server refuses the login ({said}): the password is what the environment variable {PASSWORD} has, and \
         an ACL user stands in the URL, as in redis://USER@HOST:PORT/DB/NAME"
    ))
}

/// Returns the code of a server's error, and what the error says.
pub fn answer_of(error: &RedisError) -> (String, String) {
    let first = error.clone().into_server_errors().and_then(|errors| errors.first().map(|(_, first)| first.clone()));
    let (code, text) = match first {
        Some(first) => (first.code().to_owned(), format!("{} {}", first.code(), first.details().unwrap_or_default())),
        None => (
            error.code().unwrap_or_default().to_owned(),
            error.detail().map_or_else(|| error.to_string(), str::to_owned),
        ),
    };
    (code, text.lines().next().unwrap_or_default().trim_end().chars().take(200).collect())
}

/// Returns what is wrong with TLS, if that is the error.
fn tls_problem(error: &RedisError) -> Option<&rustls::Error> {
    let shared = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    let inner = shared.downcast_ref::<io::Error>()?.get_ref()?;
    inner.downcast_ref::<rustls::Error>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::make_extension_error;

    #[test]
    fn answers_that_may_pass_are_told_from_those_that_need_help() {
        let address = ServerAddress::parse("redis://host/0/train").unwrap();
        let of = |code: &str| judge(&make_extension_error(code.into(), Some("of a test".into())), &address);
        for code in ["LOADING", "MASTERDOWN", "TRYAGAIN", "BUSY", "CLUSTERDOWN"] {
            let failure = of(code);
            assert!(failure.may_pass && !failure.is_lost, "{failure}");
        }
        for (code, part) in [
            ("WRONGPASS", "REDISCLI_AUTH"),
            ("NOPERM", "ACL SETUSER"),
            ("OOM", "raise its maxmemory"),
            ("READONLY", "push to its primary"),
            ("WRONGTYPE", "begins with train"),
            ("ERR", "check the URL"),
        ] {
            let failure = of(code);
            assert!(!failure.may_pass && failure.to_string().contains(part), "{failure}");
        }
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let failure = judge(&refused.into(), &address);
        assert!(failure.may_pass && failure.is_lost, "{failure}");
    }

    #[test]
    fn a_master_of_sentinels_that_became_a_replica_is_lost() {
        let address = ServerAddress::parse("redis+sentinel://host/mymaster/0/train").unwrap();
        let failure = judge(&make_extension_error("READONLY".into(), None), &address);
        assert!(failure.may_pass && failure.is_lost, "{failure}");
    }

    #[test]
    fn what_a_sentinel_answers_says_what_to_do() {
        let address = ServerAddress::parse("redis+sentinel://host/mymaster/0/train").unwrap();
        for (code, said, part) in [
            ("NOAUTH", "Authentication required.", "REDIS_SENTINEL_PASSWORD"),
            ("NOPERM", "no permissions", "REDIS_SENTINEL_USERNAME"),
            ("ERR", "unknown command 'SENTINEL', with args", "no Sentinel"),
        ] {
            let failure = judge_sentinel(&make_extension_error(code.into(), Some(said.into())), &address);
            assert!(!failure.may_pass && failure.to_string().contains(part), "{failure}");
        }
    }
}
