//! The thread that moves the bytes of requests.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::unconstrained;

/// A thread that moves the bytes of requests. Any thread may wait for these, also one that runs tokio's tasks.
pub(super) struct RequestThread(Option<Runtime>);

impl RequestThread {
    /// Starts the thread.
    pub fn start(name: &str) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(1).thread_name(name).enable_all();
        builder.build().map(|runtime| Self(Some(runtime)))
    }

    /// Returns the future for any thread and executor to poll. Its requests, timers and connections belong to this
    /// thread.
    pub fn serve<'f, T>(&self, future: impl Future<Output = T> + Send + 'f) -> impl Future<Output = T> + Send + 'f {
        let handle = self.0.as_ref().expect("the runtime is there until the value is dropped").handle().clone();
        // Polled within a task of the caller's, it would spend that task's budget, and then stay pending.
        Served { handle, future: Some(Box::pin(unconstrained(future))) }
    }
}

impl Drop for RequestThread {
    fn drop(&mut self) {
        // The value may be dropped in a task, which must not wait for a runtime's end.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// A future that is polled and dropped with a runtime at hand.
struct Served<F> {
    handle: Handle,
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Served<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let _entered = this.handle.enter();
        let future = this.future.as_mut().expect("a future is polled until it is ready");
        let polled = future.as_mut().poll(context);
        if polled.is_ready() {
            this.future = None;
        }
        polled
    }
}

impl<F> Drop for Served<F> {
    fn drop(&mut self) {
        let _entered = self.handle.enter();
        // A request that is given up returns its connection.
        self.future = None;
    }
}
