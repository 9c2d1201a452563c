use super::*;
use crate::delivery::{BufferNeed, BufferReturned, DeliveryTarget, HostPool};
use ddlp_csd::slot::Outcome;
use std::sync::Arc;

fn pool() -> HostPool {
    HostPool::new(BufferNeed { count: 1, bytes: 4096, table: Arc::default(), returned: BufferReturned::default() })
}

fn claims(rows: usize) -> RowClaims {
    RowClaims::new(pool().take().unwrap().unwrap(), rows, 8)
}

fn record(number: usize) -> SampleRecord {
    let number = number as u64;
    SampleRecord { sample_id: number, index: number, outcome: Outcome::Prepared, warned: false }
}

#[test]
fn threads_fill_every_row_once_and_one_gets_the_buffer() {
    let claims = claims(200);
    let mut whole: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut whole = None;
                    while let Some(mut taken) = claims.take(3) {
                        taken.make(|(number, row)| {
                            assert_eq!(row, [0; 8], "row {number} is written once");
                            row.fill(number as u8 + 1);
                            Some(record(number))
                        });
                        if let PutBack::Complete(buffer, records) = claims.put_back(taken) {
                            whole = Some((buffer, records));
                        }
                    }
                    whole
                })
            })
            .collect();
        workers.into_iter().filter_map(|worker| worker.join().unwrap()).collect()
    });
    let [(buffer, records)] = &mut whole[..] else { panic!("{} threads got the buffer", whole.len()) };
    let expected: Vec<u8> = (0..200u32).flat_map(|number| [number as u8 + 1; 8]).collect();
    assert_eq!(buffer.bytes_mut()[..1600], expected);
    assert_eq!(records, &mut Some((0..200).map(record).collect()));
}

#[test]
fn records_are_not_whole_when_a_row_was_not_made() {
    let claims = claims(4);
    let (mut first, mut second) = (claims.take(3).unwrap(), claims.take(3).unwrap());
    second.make(|(number, _)| Some(record(number)));
    first.make(|(number, _)| (number < 2).then(|| record(number)));
    assert!(matches!(claims.put_back(second), PutBack::Pending));
    assert!(matches!(claims.put_back(first), PutBack::Complete(_, None)));
}

#[test]
fn a_closed_buffer_is_back_after_the_last_row() {
    let pool = pool();
    let open = RowClaims::new(pool.take().unwrap().unwrap(), 10, 8);
    let taken = open.take(4).unwrap();
    assert!(!open.close(), "rows are out");
    assert!(open.take(1).is_none());
    assert_eq!(pool.free(), 0);
    assert!(matches!(open.put_back(taken), PutBack::Closed));
    assert_eq!(pool.free(), 1);
    assert!(claims(10).close());
}
