use super::*;

fn id(batch: u32) -> BatchId {
    BatchId { epoch: 0, batch }
}

/// Claims a batch that begins at once.
fn claim(prong: &mut Prong, id: BatchId, now: f64) {
    prong.claim_ahead(id, now);
    prong.begin(id, now);
}

#[test]
fn time_per_batch_is_measured_between_completions() {
    let mut prong = Prong::default();
    claim(&mut prong, id(0), 0.0);
    claim(&mut prong, id(1), 0.0);
    prong.done(id(0), 2.0, true);
    assert_eq!(prong.batch_s, Some(2.0));
    prong.done(id(1), 4.0, true);
    assert_eq!(prong.batch_s, Some(2.0), "the second waited for the first");
}

#[test]
fn backlog_counts_the_batches_behind_an_overdue_one() {
    let mut prong = Prong { batch_s: Some(1.0), ..Prong::default() };
    assert_eq!(prong.backlog_s(0.0), Some(0.0));
    claim(&mut prong, id(0), 0.0);
    claim(&mut prong, id(1), 0.0);
    assert_eq!(prong.backlog_s(0.5), Some(1.5));
    assert_eq!(prong.backlog_s(9.0), Some(1.0));
    assert_eq!(prong.remaining_s(0, 9.0), Some(-8.0));
}

#[test]
fn a_batch_during_which_the_prong_had_to_wait_shows_no_rate() {
    let mut prong = measured();
    prong.disturb();
    prong.claim_ahead(id(3), 11.0);
    prong.done(id(0), 13.0, true);
    assert_eq!(prong.batch_s, Some(1.0));
    prong.stopped(id(1), 16.0);
    assert_eq!(prong.batch_s, Some(1.0));
    prong.done(id(2), 17.0, true);
    prong.begin(id(3), 17.0);
    prong.done(id(3), 19.0, true);
    assert_eq!(prong.batch_s, Some(1.25), "it began after the wait");
}

/// A prong whose batches take a second each, with three in work since the time 10.
fn measured() -> Prong {
    let mut prong = Prong { batch_s: Some(1.0), turned_at: 10.0, ..Prong::default() };
    (0..3).for_each(|batch| claim(&mut prong, id(batch), 10.0));
    prong
}

#[test]
fn one_stall_is_no_rate_and_two_in_a_row_are() {
    let mut prong = measured();
    prong.done(id(0), 15.0, true);
    assert_eq!(prong.batch_s, Some(1.0));
    prong.done(id(1), 20.0, true);
    assert_eq!(prong.batch_s, Some(2.0));
    let mut prong = measured();
    prong.done(id(0), 15.0, true);
    prong.done(id(1), 16.0, true);
    prong.done(id(2), 21.0, true);
    assert_eq!(prong.batch_s, Some(1.0), "two stalls with a batch between them");
    let mut prong = measured();
    prong.done(id(0), 14.0, true);
    assert_eq!(prong.batch_s, Some(1.75), "slow, and no stall");
}

#[test]
fn a_short_batch_shows_no_rate() {
    let mut prong = measured();
    prong.done(id(0), 10.1, false);
    assert_eq!(prong.batch_s, Some(1.0));
    prong.done(id(1), 11.1, true);
    assert_eq!(prong.batch_s, Some(1.0), "counted from the end of the short one");
}

#[test]
fn a_probe_is_the_rate_and_is_not_cancelled() {
    let mut prong = Prong { batch_s: Some(50.0), ..Prong::default() };
    claim(&mut prong, id(0), 10.0);
    prong.probe = Some(id(0));
    prong.cancel(id(0));
    assert_eq!(prong.cancels, []);
    prong.done(id(0), 11.0, true);
    assert_eq!((prong.batch_s, prong.probe), (Some(1.0), None));
    claim(&mut prong, id(1), 11.0);
    prong.cancel(id(1));
    assert_eq!(prong.cancels, [id(1)]);
}

#[test]
fn a_batch_that_was_stopped_shows_how_slow_the_prong_is_at_least() {
    let mut prong = measured();
    prong.stopped(id(0), 12.0);
    assert_eq!(prong.batch_s, Some(1.25));
    let mut prong = measured();
    prong.stopped(id(0), 10.5);
    assert_eq!(prong.batch_s, Some(1.0), "the batch might have taken as long as any");
    let mut prong = measured();
    prong.stopped(id(2), 13.0);
    assert_eq!(prong.batch_s, Some(1.0), "the prong had not come to the batch");
    let mut unknown = Prong::default();
    claim(&mut unknown, id(0), 10.0);
    unknown.stopped(id(0), 15.0);
    assert_eq!(unknown.batch_s, Some(5.0));
}

#[test]
fn a_batch_counts_from_when_the_prong_turned_to_it() {
    let mut prong = measured();
    prong.forget(id(0), 12.0);
    prong.forget(id(2), 12.5);
    prong.done(id(1), 13.0, true);
    assert_eq!(prong.batch_s, Some(1.0));
}

#[test]
fn a_batch_counts_from_its_beginning() {
    let mut prong = Prong { batch_s: Some(1.0), ..Prong::default() };
    (0..3).for_each(|batch| prong.claim_ahead(id(batch), 0.0));
    assert!(!prong.is_working() && prong.will_begin(id(2)));
    assert_eq!(prong.backlog_s(50.0), Some(3.0), "it takes as long whenever it begins");
    prong.begin(id(2), 100.0);
    assert!(prong.is_working() && !prong.will_begin(id(2)));
    let order: Vec<u32> = prong.outstanding.iter().map(|work| work.id.batch).collect();
    assert_eq!(order, [2, 0, 1], "what has begun comes first");
    assert_eq!(prong.remaining_s(2, 100.5), Some(2.5));
    prong.begin(id(0), 100.5);
    prong.forget(id(1), 100.6);
    prong.done(id(2), 101.0, true);
    assert_eq!(prong.batch_s, Some(1.0), "neither the time before it began counts, nor what was given up");
    prong.done(id(0), 103.0, true);
    assert_eq!(prong.batch_s, Some(1.0 + NEWEST));
}

#[test]
fn a_batch_that_never_began_changes_no_rate() {
    let mut prong = Prong { batch_s: Some(1.0), ..Prong::default() };
    (0..2).for_each(|batch| prong.claim_ahead(id(batch), 0.0));
    prong.stopped(id(0), 50.0);
    prong.done(id(1), 60.0, true);
    assert_eq!((prong.batch_s, prong.outstanding.len()), (Some(1.0), 0));
}
