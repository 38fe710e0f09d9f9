//! Views and their parts in the mutable tables.

use super::*;

impl Draft {
    /// Adds a cluster-wide view or search index.
    ///
    /// It does not check for an existing row, because views are few: the reader of a database's
    /// design documents knows which of its signatures already have a row.
    pub fn add_view(&mut self, db: DbIx, view: View) -> TargetIx {
        let kind = if view.search_index.is_some() { TargetKind::Search } else { TargetKind::View };
        let at = self.store_view(view);
        self.get_or_add_row((Some(kind), NodeIx::CLUSTER, db.0, at))
    }

    /// The part of a view that indexes one shard on one node, created if new.
    pub fn get_or_add_part(
        &mut self,
        node: NodeIx,
        db: DbIx,
        range: Option<Range>,
        signature: Signature,
    ) -> TargetIx {
        if let Some(ix) = self.find_part(node, db, range, signature) {
            return ix;
        }
        let hash = self.hasher.hash_one((node, db.0, range, signature));
        let at = self.store_view(View { signature, range, ..self.empty_part.clone() });
        let ix = self.get_or_add_row((Some(TargetKind::View), node, db.0, at));
        let (now, hasher) = (&self.current, &self.hasher);
        // A part without a row is never looked up again.
        let hash_of = |at: &u32| part_at(now, *at).map_or(0, |part| hasher.hash_one(part));
        self.by_part.insert_unique(hash, ix.row(), hash_of);
        ix
    }

    /// The part of a view that indexes one shard on one node, if it exists.
    pub fn find_part(
        &self,
        node: NodeIx,
        db: DbIx,
        range: Option<Range>,
        signature: Signature,
    ) -> Option<TargetIx> {
        let wanted = (node, db.0, range, signature);
        let hash = self.hasher.hash_one(wanted);
        let found = self.by_part.find(hash, |at| part_at(&self.current, *at) == Some(wanted));
        found.map(|at| self.current.latest_ix(*at))
    }

    fn store_view(&mut self, view: View) -> u32 {
        let view = Arc::new(view);
        match self.free_views.pop() {
            Some(free) => {
                if let Some(row) = self.current.views.get_mut(free as usize) {
                    *row = view;
                }
                free
            }
            None => row_index(self.current.views.push(view)),
        }
    }

    /// Sets an index's attributes; the sums of its parts are kept.
    pub fn set_view(&mut self, ix: TargetIx, view: View) {
        let parts = self.current.target(ix).and_then(TargetRef::view).map(|view| view.part_sums);
        self.replace_view(ix, View { part_sums: parts.unwrap_or_default(), ..view });
    }

    /// Sets the sums of a view's parts.
    pub fn set_parts(&mut self, ix: TargetIx, parts: PartSums) {
        let Some(view) = self.current.target(ix).and_then(TargetRef::view) else { return };
        if view.part_sums != parts {
            let view = View { part_sums: parts, ..view.clone() };
            self.replace_view(ix, view);
        }
    }

    fn replace_view(&mut self, ix: TargetIx, view: View) {
        let Some(row) = self.current.target(ix).and_then(|_| self.current.rows.get(ix.as_usize()))
        else {
            return;
        };
        if !matches!(row.kind, Some(TargetKind::View | TargetKind::Search)) {
            return;
        }
        let at = row.range_or_view_index as usize;
        if self.current.views.get(at).is_some_and(|stored| **stored == view) {
            return;
        }
        let counted = self.counted(ix);
        // The sums of the view's parts are included in the totals.
        self.remove_from_sums(ix);
        if let Some(stored) = self.current.views.get_mut(at) {
            *stored = Arc::new(view);
        }
        self.add_to_sums(ix);
        self.mark_changed(ix);
        self.count_change(ix, counted, None);
        self.count_design_found(ix);
    }
}
