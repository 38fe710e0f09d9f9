//! On which nodes smoosh's channels are taken over.

use crate::{
    exposition::{Writer, families as f},
    takeover::Takeovers,
};

/// Writes one sample a node that was looked at.
pub(super) fn write(writer: &mut Writer, takeovers: &Takeovers) {
    let mut samples = writer.family(&f::SMOOSH_TAKEN_OVER);
    for (node, state) in &takeovers.nodes {
        samples.sample(&[node], state.is_taken_over());
    }
}
