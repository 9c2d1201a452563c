//! Running the same work for many items on a few threads, and choosing the number of threads.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Scope};

/// Most threads for work that waits for the file system more than it computes.
const LISTING_THREADS_MAX: usize = 8;

/// Returns the number of threads to use: `asked`, or one per core if that is 0.
pub(crate) fn threads(asked: usize) -> usize {
    match asked {
        0 => thread::available_parallelism().map_or(1, |cores| cores.get()),
        asked => asked,
    }
}

/// Starts up to `threads` threads, each with the work that `next` returns for it. Fails if the system refuses the first
/// thread, and continues with fewer if it refuses a later one.
pub(crate) fn spawn<'scope, W: FnOnce() + Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    threads: usize,
    mut next: impl FnMut() -> W,
) -> io::Result<()> {
    for number in 0..threads {
        match thread::Builder::new().spawn_scoped(scope, next()) {
            Ok(_) => {}
            Err(_) if number > 0 => break,
            Err(error) => {
                let message = format!(
                    "the system refuses a thread ({error}): raise the limits (ulimit -v, ulimit -u, or those of the \
                     control group)"
                );
                return Err(io::Error::new(error.kind(), message));
            }
        }
    }
    Ok(())
}

/// Applies `work` to each item on several threads, including this one. The results are in the order of the items.
pub(crate) fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let listing = threads(0).min(LISTING_THREADS_MAX);
    let take_items = || {
        loop {
            let position = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(position) else { break };
            let result = work(item);
            done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((position, result));
        }
    };
    thread::scope(|scope| {
        // Without further threads, this one takes all items.
        let _ = spawn(scope, listing.min(items.len()).saturating_sub(1), || &take_items);
        take_items();
    });
    let mut done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_unstable_by_key(|&(position, _)| position);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_keep_the_order_of_the_items() {
        let items: Vec<u64> = (0..1000).collect();
        assert_eq!(super::map(&items, |item| item * 3), items.iter().map(|item| item * 3).collect::<Vec<_>>());
        assert_eq!(super::map(&[], |item: &u64| *item), Vec::<u64>::new());
    }
}
