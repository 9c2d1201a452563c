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
        let is_not_ready = busy.pause.is_some();
        return Failure { pushes_back: true, is_not_ready, pause: busy.pause, ..Failure::passing(busy.to_string()) };
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

/// Returns why a request failed: what the server says, or the innermost cause.
pub(super) fn reason(error: &StoreError) -> String {
    let what = match error {
        StoreError::NotFound { .. } => return "there is no such object".into(),
        StoreError::PermissionDenied { .. } => "the server denies access",
        StoreError::Unauthenticated { .. } => "the server wants other credentials",
        _ => "",
    };
    let innermost = sources(error).last().map(ToString::to_string).unwrap_or_default();
    match (what, explanation(&innermost)) {
        ("", Some(said)) => format!("the server answered {said}"),
        // A server's answer may have lines of markup.
        ("", None) => first_line(&innermost),
        (what, Some(said)) => format!("{what} ({said})"),
        (what, None) => what.to_owned(),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

/// Returns code and message of a store's answer in XML, if there are any. The rest of such an answer may be secret.
fn explanation(answer: &str) -> Option<String> {
    let element = |name: &str| {
        let (_, behind) = answer.split_once(&format!("<{name}>"))?;
        behind.split_once(&format!("</{name}>")).map(|(text, _)| first_line(text))
    };
    let code = element("Code")?;
    Some(element("Message").map_or(code.clone(), |message| format!("{code}: {message}")))
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
