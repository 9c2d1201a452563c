//! Causes of errors: a cause that several errors share, and an error in words with its causes.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The cause of an error: another error, or words. Its clones share the cause, so that many can be told of one failure.
/// Two causes are equal if they say the same.
#[derive(Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl<C: Into<Box<dyn Error + Send + Sync>>> From<C> for Cause {
    fn from(cause: C) -> Self {
        Self(Arc::from(cause.into()))
    }
}

/// The source that `thiserror` finds is the cause itself, so that it can be downcast.
impl Deref for Cause {
    type Target = dyn Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.to_string() == other.to_string()
    }
}

impl Eq for Cause {}

/// Returns the messages of an error and its causes. Leaves out a cause with which the message above already ends, since
/// some libraries' errors repeat their causes.
pub fn messages(error: &dyn Error) -> Vec<String> {
    let mut messages = vec![error.to_string()];
    let mut source = error.source();
    while let Some(cause) = source {
        let message = cause.to_string();
        if !messages.last().is_some_and(|above| above.ends_with(&message)) {
            messages.push(message);
        }
        source = cause.source();
    }
    messages
}

/// Describes an error and its causes in one line: `cannot read a.ddlp: permission denied`.
pub fn with_causes(error: &dyn Error) -> String {
    messages(error).join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// An error that says `0`, and has the cause `1`.
    #[derive(Debug)]
    struct Failure(&'static str, Cause);

    impl fmt::Display for Failure {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Failure {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&*self.1)
        }
    }

    #[test]
    fn causes_are_named_once_and_can_be_downcast() {
        let cause = Cause::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        let error = Failure("no run", Failure("no drive: connection refused", cause.clone()).into());
        assert_eq!(messages(&error), ["no run", "no drive: connection refused"]);
        assert_eq!(with_causes(&Failure("no drive", cause.clone())), "no drive: connection refused");
        let found = error.source().unwrap().source().unwrap().downcast_ref::<io::Error>().unwrap();
        assert_eq!(found.kind(), io::ErrorKind::ConnectionRefused);
        assert!(cause == Cause::from("connection refused") && cause != Cause::from("reset"));
    }
}
