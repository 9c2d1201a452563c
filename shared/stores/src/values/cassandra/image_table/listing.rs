//! Lists the rows of a table with their labels and times of writing: range by range of the tokens, page by page.

use super::super::cluster::{Cluster, Query};
use super::super::frame::{Answer, Consistency, Execution, Page};
use super::super::ring::Token;
use super::key;
use super::layout::{LabelType, Layout, ListStatement};
use ddlp_dataset::image_table::TableRow;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ranges of tokens that are listed one by one.
const RANGES: u64 = 64;
/// Ranges that are listed at the same time.
const RANGES_AT_ONCE: usize = 16;
/// Rows of a page of keys and labels.
const PAGE_ROWS: i32 = 5000;
/// Rows of a page with times of writing. To tell the time, a cluster reads the image, and a node has all images of a
/// page in memory at once.
const PAGE_ROWS_WITH_IMAGES: i32 = 32;
/// Rows of a page once a page with more has failed, as when the images are large.
const PAGE_ROWS_LEAST: i32 = 4;
/// Bytes of a page, for how long it may take.
const PAGE_BYTES: usize = 4 << 20;

/// What a statement finds of a row.
struct Found {
    key: Vec<u8>,
    label: Option<String>,
    version: Option<i64>,
}

/// Returns all rows in the order of their keys, or what is wrong with one.
pub async fn rows(cluster: &Cluster, layout: &Layout) -> io::Result<Result<Vec<TableRow>, String>> {
    let mut found = Vec::new();
    for list in &layout.lists {
        match list_all(cluster, layout, list).await? {
            Ok(rows) => found.push(rows),
            Err(what) => return Ok(Err(what)),
        }
    }
    let versions = (found.len() > 1).then(|| found.pop()).flatten();
    let versions: Option<HashMap<_, _>> =
        versions.map(|rows| rows.into_iter().map(|row| (row.key, row.version)).collect());
    let rows = found.pop().unwrap_or_default().into_iter().map(|Found { key, label, version }| {
        let version = match &versions {
            Some(versions) => versions.get(&key).copied().flatten(),
            None => version,
        };
        TableRow { key, label, version }
    });
    let mut rows: Vec<TableRow> = rows.collect();
    rows.sort_by(|one, other| {
        key::compare(&layout.key, &one.key, &other.key).then_with(|| one.label.cmp(&other.label))
    });
    // A table of labels may have a longer key than the images.
    if let Some([row, _]) = rows.array_windows().find(|[one, next]| one.key == next.key) {
        let name = layout.name(&row.key);
        return Ok(Err(format!("row {name} has several labels: name a table with one row for each image")));
    }
    Ok(Ok(rows))
}

/// Returns what a statement finds in all ranges, or what is wrong with a row.
async fn list_all(cluster: &Cluster, layout: &Layout, list: &ListStatement) -> io::Result<Result<Vec<Found>, String>> {
    let listed = AtomicU64::new(0);
    let ranges = (0..RANGES).map(|number| list_range(cluster, layout, list, number, &listed));
    let mut ranges = stream::iter(ranges).buffer_unordered(RANGES_AT_ONCE);
    let mut all = Vec::new();
    while let Some(rows) = ranges.try_next().await? {
        for row in rows {
            match row {
                Ok(row) => all.push(row),
                Err(what) => return Ok(Err(what)),
            }
        }
    }
    Ok(Ok(all))
}

/// Returns the border before a range of tokens; every token is larger than the first one.
fn border(number: u64) -> i64 {
    let width = u128::from(number) << (u64::BITS - RANGES.trailing_zeros());
    (i128::from(i64::MIN) + width.cast_signed()).try_into().unwrap_or(i64::MAX)
}

async fn list_range(
    cluster: &Cluster,
    layout: &Layout,
    list: &ListStatement,
    number: u64,
    listed: &AtomicU64,
) -> io::Result<Vec<Result<Found, String>>> {
    let (after, last) = (border(number).to_be_bytes(), border(number + 1));
    let last_cell = last.to_be_bytes();
    let values = [Some(&after[..]), Some(&last_cell[..])];
    let mut rows = if list.has_version { PAGE_ROWS_WITH_IMAGES } else { PAGE_ROWS };
    let (mut found, mut end) = (Vec::new(), None::<Vec<u8>>);
    loop {
        let page = Some(Page { rows, after: end.as_deref() });
        // One replica may lack rows, and then this would be another dataset.
        let execution = Some(Execution { page, ..Execution::reading(&values, Consistency::LocalQuorum) });
        let query = Query { statement: &list.statement, execution, token: Some(Token(last)), bytes: PAGE_BYTES };
        let read = |answer: Answer<'_>| read_page(layout, list, answer);
        let asked = match rows {
            PAGE_ROWS_LEAST => cluster.ask_sized(&query, read, |_| 0).await?,
            _ => match cluster.ask_once(&query, read).await {
                Some(page) => page,
                None => {
                    rows = PAGE_ROWS_LEAST;
                    continue;
                }
            },
        };
        let (page, next) = asked;
        let total = listed.fetch_add(page.len() as u64, Ordering::Relaxed) + page.len() as u64;
        tracing::debug!(total, "listed rows of a table");
        found.extend(page);
        match next {
            Some(next) => end = Some(next),
            None => return Ok(found),
        }
    }
}

/// The rows of a page, and where it ends if more rows follow.
type Listed = (Vec<Result<Found, String>>, Option<Vec<u8>>);

fn read_page(layout: &Layout, list: &ListStatement, answer: Answer<'_>) -> Option<Listed> {
    let (rows, end) = match answer {
        Answer::Rows(rows) => (rows, None),
        Answer::Page(rows, end) => (rows, Some(end.to_vec())),
        _ => return None,
    };
    let rows = rows.iter().map(|row| read_row(layout, list, row)).collect::<Option<_>>()?;
    Some((rows, end))
}

/// Reads a row, or says what is wrong with it.
fn read_row(layout: &Layout, list: &ListStatement, row: &[Option<&[u8]>]) -> Option<Result<Found, String>> {
    let (cells, rest) = row.split_at_checked(layout.key.len())?;
    let Some(cells) = cells.iter().copied().collect::<Option<Vec<&[u8]>>>() else {
        return Some(Err("a row has no whole key, as one of static columns alone: delete it".to_owned()));
    };
    if !layout.key.iter().zip(&cells).all(|(kind, cell)| kind.fits(cell)) {
        return None;
    }
    let mut rest = rest.iter();
    let label = if list.has_label { *rest.next()? } else { None };
    let version = if list.has_version { *rest.next()? } else { None };
    let label = match label {
        // As the text '' of a column of numbers, which Cassandra allows.
        Some([]) if layout.label == Some(LabelType::Number) => None,
        Some(cell) => Some(layout.label?.text(cell)?),
        None => None,
    };
    let version = match version {
        Some(cell) => Some(i64::from_be_bytes(cell.try_into().ok()?)),
        None => None,
    };
    Some(Ok(Found { key: key::joined(cells.into_iter()), label, version }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_have_every_token_once() {
        assert_eq!((border(0), border(RANGES / 2), border(RANGES)), (i64::MIN, 0, i64::MAX));
        assert!((0..RANGES).all(|number| border(number) < border(number + 1)));
    }
}
