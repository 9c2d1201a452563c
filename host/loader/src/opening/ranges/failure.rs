//! Failures of requests: which may pass, and what they say.

use super::super::server_path::Failure;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::{ClientOptions, Error as StoreError};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

/// Longest pause that a server may ask for between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Judges the error of a request. `help` says what to do if it will not pass.
pub(super) fn judge(error: &StoreError, help: impl FnOnce() -> String) -> Failure {
    let sources = || sources(error);
    if let Some(busy) = sources().find_map(|source| source.downcast_ref::<Busy>()) {
        return Failure { pushes_back: true, pause: busy.pause, ..Failure::passing(busy.to_string()) };
    }
    let what = reason(error);
    match error {
        StoreError::Precondition { .. } => changed(),
        StoreError::NotSupported { .. } => {
            Failure::lasting(format!("{what}: the server does not serve ranges of a file"))
        }
        _ if sources().any(is_of_certificate) => Failure::lasting(format!(
            "{what}; SSL_CERT_FILE names a file with the certificates to trust, if the server has one of its own"
        )),
        _ if sources().any(|source| source.is::<HttpError>()) => Failure::passing(what),
        _ => Failure::lasting(format!("{what}; {}", help())),
    }
}

/// The object is another one.
pub(super) fn changed() -> Failure {
    Failure::lasting("the object was replaced after it was opened: start the run again".to_owned())
}

/// The answer has other bytes than asked for.
pub(super) fn wrong(what: &str) -> Failure {
    Failure::passing(format!("the server sent {what}"))
}

/// Returns why a request failed: the innermost cause, and the status line if a server answered.
pub(super) fn reason(error: &StoreError) -> String {
    match error {
        StoreError::NotFound { .. } => return "there is no such object".into(),
        StoreError::PermissionDenied { .. } => return "the server denies access".into(),
        StoreError::Unauthenticated { .. } => return "the server wants other credentials".into(),
        _ => {}
    }
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    // A server's answer may have lines of markup.
    innermost.to_string().lines().next().unwrap_or_default().chars().take(200).collect()
}

/// Returns an error and its causes.
fn sources<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Returns whether an error says that a server's certificate is not trusted. What lies in an I/O error is not among its
/// causes.
fn is_of_certificate(error: &(dyn Error + 'static)) -> bool {
    match error.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref().is_some_and(|inner| is_of_certificate(inner)),
        None => matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_))),
    }
}

/// The server cannot answer now.
#[derive(Debug)]
struct Busy {
    status: String,
    pause: Option<Duration>,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered {}", self.status)
    }
}

impl Error for Busy {}

/// Makes clients that turn answers which may pass into errors.
#[derive(Debug)]
pub(super) struct Judge;

impl HttpConnector for Judge {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        ReqwestConnector::default().connect(options).map(|client| HttpClient::new(Judged(client)))
    }
}

#[derive(Debug)]
struct Judged(HttpClient);

impl HttpService for Judged {
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
    {
        Box::pin(async move {
            let answer = self.0.execute(request).await?;
            let status = answer.status();
            if !status.is_server_error() && !matches!(status.as_u16(), 408 | 425 | 429) {
                return Ok(answer);
            }
            let asked = answer.headers().get("retry-after").and_then(|value| value.to_str().ok());
            let pause = asked.and_then(|value| value.trim().parse().ok()).map(Duration::from_secs);
            let busy = Busy { status: status.to_string(), pause: pause.map(|pause| pause.min(PAUSE_MAX)) };
            Err(HttpError::new(HttpErrorKind::Interrupted, busy))
        })
    }
}
