//! What an operator ordered to be compacted, until it starts or nobody waits for it any more.

use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// An order to compact one target before all others, through the same gates and limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ordered {
    /// When it was given.
    pub at: Moment,
    /// Until when it waits for a limit; what has not started by then is forgotten.
    pub until: Moment,
    /// Who gave it, and from where.
    pub by: String,
    /// Whether it also counts where no channel takes the target for its sizes, and where the
    /// target rests after failures or a compaction of no use. Lifts nothing else.
    pub force: bool,
}
