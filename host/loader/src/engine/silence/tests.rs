//! Outages of the drive that holds the dataset, as reads and the drive's own thread notice them.

use super::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const SECOND: Duration = Duration::from_secs(1);

fn silences(total_s: u32, lasts_s: Option<u32>) -> Silences {
    let silence =
        |s| Silence { holder: "the drive tcp://x".into(), lasts: s * SECOND, patience: 60 * SECOND, failure: None };
    Silences { total: total_s * SECOND, now: lasts_s.map(silence) }
}

/// Observes silences, one a second. Returns the kinds of the faults that the report gets.
fn observed(record: &mut SilenceRecord, at: &mut Instant, states: &[Silences]) -> Vec<FaultKind> {
    let observe = |state| {
        *at += SECOND;
        record.observe(state, *at).map(|(kind, _)| kind)
    };
    states.iter().filter_map(observe).collect()
}

#[test]
fn an_outage_that_reads_notice_first_is_reported_as_a_silence_alone() {
    let (mut record, mut at) = (SilenceRecord::default(), Instant::now());
    let said = observed(&mut record, &mut at, &[silences(1, Some(1)), silences(2, Some(2))]);
    assert_eq!(said, [FaultKind::Lost]);
    assert!(!record.lose(1, at), "the report has it");
    assert!(!record.regain(1, at), "nor does it need the return");
    assert_eq!(observed(&mut record, &mut at, &[silences(3, None), silences(3, None)]), [FaultKind::Rejoined]);
    // The drive's thread had nothing to do, and notices late.
    assert!(!record.lose(1, at + NOTICED_WITHIN / 2) && !record.regain(1, at));
    assert!(record.lose(1, at + NOTICED_WITHIN) && record.regain(1, at), "another outage");
}

#[test]
fn an_outage_that_the_drives_thread_notices_first_is_reported_as_its_loss_alone() {
    let (mut record, mut at) = (SilenceRecord::default(), Instant::now());
    assert!(record.lose(1, at));
    assert!(observed(&mut record, &mut at, &[silences(1, Some(1))]).is_empty());
    assert!(record.regain(1, at), "the report has the loss, so it needs the return");
    // Reads are answered a little later.
    assert!(observed(&mut record, &mut at, &[silences(2, Some(2)), silences(3, None)]).is_empty());
    let next = [silences(4, Some(1)), silences(5, None)];
    assert_eq!(observed(&mut record, &mut at, &next), [FaultKind::Lost, FaultKind::Rejoined], "the next outage");
}

#[test]
fn an_outage_soon_after_another_one_is_reported_too() {
    let (mut record, mut at) = (SilenceRecord::default(), Instant::now());
    let said = observed(&mut record, &mut at, &[silences(1, Some(1)), silences(2, None)]);
    assert_eq!(said, [FaultKind::Lost, FaultKind::Rejoined]);
    assert!(!record.lose(1, at), "it may be the same outage");
    let said = observed(&mut record, &mut at, &[silences(3, Some(1)), silences(9, None)]);
    assert_eq!(said, [FaultKind::Lost, FaultKind::Rejoined]);
    // The drive's thread has given up; reads go on.
    let said = observed(&mut record, &mut at, &[silences(10, Some(1)), silences(11, None), silences(15, None)]);
    assert_eq!(said, [FaultKind::Lost, FaultKind::Rejoined, FaultKind::Lost]);
}

#[test]
fn a_silence_that_outlasts_the_drives_return_is_reported() {
    let (mut record, mut at) = (SilenceRecord::default(), Instant::now());
    assert!(record.lose(1, at));
    assert!(observed(&mut record, &mut at, &[silences(1, Some(1))]).is_empty());
    assert!(record.regain(1, at));
    assert!(observed(&mut record, &mut at, &[silences(2, Some(2))]).is_empty());
    at += NOTICED_WITHIN;
    let said = observed(&mut record, &mut at, &[silences(13, Some(13)), silences(14, Some(14)), silences(15, None)]);
    assert_eq!(said, [FaultKind::Lost, FaultKind::Rejoined]);
}

#[test]
fn a_silence_that_was_noticed_after_its_end_is_reported_once() {
    let (mut record, mut at) = (SilenceRecord::default(), Instant::now());
    assert_eq!(observed(&mut record, &mut at, &[silences(2, None), silences(2, None)]), [FaultKind::Lost]);
    assert!(record.lose(2, at + NOTICED_WITHIN), "a loss without a silence");
    assert!(record.regain(1, at), "a pause of another drive ends");
    assert_eq!(observed(&mut record, &mut at, &[silences(4, None)]), [FaultKind::Rejoined]);
    assert!(!record.regain(2, at), "the return is reported");
}

/// An outage of the drive as everybody meets it, in milliseconds since its beginning.
#[derive(Clone, Copy, Debug)]
struct Outage {
    /// When the CPU's reads get an answer again, if they wait for the drive.
    answered: Option<u64>,
    /// When the drive's thread notices the loss of its association, unless the association outlasts the outage.
    lost: Option<u64>,
    /// When the thread has another association, or gives the drive up.
    regained: Option<u64>,
    is_given_up: bool,
    /// Whether the run looks at the silence only after its end.
    is_seen_late: bool,
}

impl Outage {
    fn draw(rng: &mut ChaCha8Rng, was_given_up: bool) -> Self {
        let mut below = |n: u64| u64::from(rng.next_u32()) % n;
        let lasts = 1200 + below(40_000);
        let lost = (below(4) > 0 && !was_given_up).then(|| [below(lasts), lasts + below(8000)][below(2) as usize]);
        Self {
            answered: (below(4) > 0).then(|| lasts + below(1500)),
            lost,
            regained: lost.map(|lost| lost.max(lasts) + below(2000)),
            is_given_up: lost.is_some() && below(8) == 0,
            is_seen_late: below(6) == 0,
        }
    }

    /// Plays the outage, and returns what the report says. `past` is the time of earlier silences.
    fn play(
        &self,
        record: &mut SilenceRecord,
        begun: Instant,
        past: &mut u64,
        rng: &mut ChaCha8Rng,
    ) -> Vec<(FaultKind, String)> {
        let mut said = Vec::new();
        let look = 50 + u64::from(rng.next_u32()) % 900;
        for ms in 0..60_000 {
            let now = begun + Duration::from_millis(ms);
            let lasts = Duration::from_millis(ms);
            // A wait of less than a second is no silence.
            let silence = self.answered.filter(|&answered| (1000..answered).contains(&ms));
            let total = *past + self.answered.map_or(0, |answered| if ms < 1000 { 0 } else { ms.min(answered) });
            let silence = silence.map(|_| Silence {
                holder: "the drive tcp://x".into(),
                lasts,
                patience: 60 * SECOND,
                failure: None,
            });
            let silences = Silences { total: Duration::from_millis(total), now: silence };
            let may_look = !self.is_seen_late || self.answered.is_none_or(|answered| ms >= answered);
            if self.lost == Some(ms) && record.lose(1, now) {
                said.push((FaultKind::Lost, "the association is lost".to_owned()));
            }
            if (ms.is_multiple_of(look) && may_look) || self.regained == Some(ms) {
                said.extend(record.observe(&silences, now));
            }
            if self.regained == Some(ms) && self.is_given_up {
                record.give_up(1);
            } else if self.regained == Some(ms) && record.regain(1, now) {
                said.push((FaultKind::Rejoined, "the drive works again".to_owned()));
            }
        }
        *past += self.answered.unwrap_or(0);
        said
    }
}

#[test]
fn each_outage_is_reported_once_whoever_notices_it_first() {
    for seed in 0..150 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut record, mut at, mut past, mut is_given_up) = (SilenceRecord::default(), Instant::now(), 0, false);
        for _ in 0..4 {
            let outage = Outage::draw(&mut rng, is_given_up);
            let said = outage.play(&mut record, at, &mut past, &mut rng);
            at += 90 * SECOND;
            let kinds: Vec<FaultKind> = said.iter().map(|&(kind, _)| kind).collect();
            is_given_up |= outage.is_given_up;
            let is_right = match &kinds[..] {
                [] => outage.answered.is_none() && outage.lost.is_none(),
                [FaultKind::Lost] => said[0].1.contains("did not answer for") || outage.is_given_up,
                kinds => kinds == [FaultKind::Lost, FaultKind::Rejoined],
            };
            assert!(is_right, "seed {seed}: {said:?} of {outage:?}");
        }
    }
}
