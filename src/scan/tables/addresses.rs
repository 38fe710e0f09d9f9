//! Where nodes listen themselves, as far as that was found.

use crate::table::Node;
use couchdb_client::OwnAddress;

/// Notes where `node` listens, and says once of a node that this process serves that there is
/// nothing to note.
pub(super) fn note(node: &mut Node, found: OwnAddress) {
    let ungiven = |address: &OwnAddress| matches!(address, OwnAddress::Ungiven);
    if node.served && ungiven(&found) && !ungiven(&node.own_address) {
        tracing::warn!(node = %node.name, "no direct address: list it under couchdb.nodes");
    }
    node.own_address = found;
}
