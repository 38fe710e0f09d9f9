//! Writes one database's part of the stream.

use crate::{
    couch::{Couch, Failure},
    shapes::Shape,
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::time::{self, Instant};

/// The interval between two requests.
const TICK: Duration = Duration::from_secs(2);

/// Letters of which snappy can compress little.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The timing and the seed of one database's writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) start: Instant,
    pub(crate) seconds: u64,
    pub(crate) per_second: f64,
    pub(crate) seed: u64,
}

/// The outcome of the writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) docs: u64,
    pub(crate) refused: u64,
    /// The maximum delay of a request after its time.
    pub(crate) late: Duration,
}

impl Written {
    pub(crate) fn add(&mut self, other: Self) {
        self.docs += other.docs;
        self.refused += other.refused;
        self.late = self.late.max(other.late);
    }
}

/// Random-looking numbers, the same for the same seed (`SplitMix64`).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.roll() % end.max(1) as u64).unwrap_or_default()
    }

    fn text(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 10);
        while text.len() < bytes {
            let roll = self.roll();
            // Six bits per letter.
            let letter = |at: u32| LETTERS[usize::from((roll >> (6 * at)).to_le_bytes()[0] % 64)];
            text.extend((0..10).map(|at| char::from(letter(at))));
        }
        text
    }
}

/// The existing documents, each with its id and revision.
type Docs = Vec<(String, String)>;

/// The next document to write; a changed or deleted one is removed from the list.
fn next(dice: &mut Dice, shape: &Shape, docs: &mut Docs) -> Value {
    let roll = dice.roll() % 100;
    let full = docs.len() >= shape.at_most;
    let bytes = shape.bytes / 2 + dice.below(shape.bytes);
    let body = |id: &str, dice: &mut Dice| json!({"_id": id, "kind": dice.below(16), "at": dice.below(1 << 30), "text": dice.text(bytes)});
    if !docs.is_empty() && (roll < shape.changes || full) {
        let (id, rev) = docs.swap_remove(dice.below(docs.len()));
        let mut doc = body(&id, dice);
        doc["_rev"] = rev.into();
        doc
    } else if !docs.is_empty() && roll < shape.changes + shape.deletes {
        let (id, rev) = docs.swap_remove(dice.below(docs.len()));
        json!({"_id": id, "_rev": rev, "_deleted": true})
    } else {
        body(&format!("{:016x}", dice.roll()), dice)
    }
}

/// Writes until the plan's end.
pub(crate) async fn write(couch: Arc<Couch>, shape: Shape, plan: Plan) -> Result<Written, Failure> {
    let mut dice = Dice(plan.seed);
    let (mut docs, mut owed) = (Docs::new(), 0.0);
    let mut written = Written::default();
    let ticks = plan.seconds / TICK.as_secs();
    for tick in 0..ticks {
        let due = plan.start + TICK * u32::try_from(tick)?;
        time::sleep_until(due).await;
        written.late = written.late.max(due.elapsed());
        owed += plan.per_second * TICK.as_secs_f64();
        let mut batch = Vec::new();
        while owed >= 1.0 {
            owed -= 1.0;
            batch.push(next(&mut dice, &shape, &mut docs));
        }
        if batch.is_empty() {
            continue;
        }
        let gone: Vec<bool> = batch.iter().map(|doc| doc["_deleted"] == true).collect();
        let rows = couch.write(&shape, batch).await?;
        for (row, gone) in rows.into_iter().zip(gone) {
            written.docs += 1;
            match row {
                Some(_) if gone => {}
                Some(kept) => docs.push(kept),
                None => written.refused += 1,
            }
        }
        if shape.view {
            couch.touch_view(&shape).await?;
        }
    }
    Ok(written)
}
