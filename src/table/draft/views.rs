//! Views and their parts in the mutable tables.

use super::*;

impl Draft {
    /// Adds a cluster-wide view or search index.
    ///
    /// Views are few; the reader of a database's design documents knows which of its signatures
    /// already have a row.
    pub fn add_view(&mut self, db: DbIx, view: View) -> Ix {
        let kind = if view.search.is_some() { Kind::Search } else { Kind::View };
        let at = self.view_place(view);
        self.row((Some(kind), NodeIx::CLUSTER, db.0, at))
    }

    /// The part of a view that indexes one shard on one node, created if new.
    pub fn part(
        &mut self,
        node: NodeIx,
        db: DbIx,
        range: Option<Range>,
        signature: Signature,
    ) -> Ix {
        if let Some(ix) = self.find_part(node, db, range, signature) {
            return ix;
        }
        let hash = self.hasher.hash_one((node, db.0, range, signature));
        let at = self.view_place(View { signature, range, ..self.blank.clone() });
        let ix = self.row((Some(Kind::View), node, db.0, at));
        let (now, hasher) = (&self.now, &self.hasher);
        self.by_part.insert_unique(hash, ix.place(), |at| hasher.hash_one(part_at(now, *at)));
        ix
    }

    /// The same, if it exists.
    #[must_use]
    pub fn find_part(
        &self,
        node: NodeIx,
        db: DbIx,
        range: Option<Range>,
        signature: Signature,
    ) -> Option<Ix> {
        let wanted = (node, db.0, range, signature);
        let hash = self.hasher.hash_one(wanted);
        let found = self.by_part.find(hash, |at| part_at(&self.now, *at) == Some(wanted));
        found.map(|at| self.now.ix_at(*at))
    }

    fn view_place(&mut self, view: View) -> u32 {
        let view = Arc::new(view);
        match self.free_views.pop() {
            Some(free) => {
                if let Some(row) = self.now.views.get_mut(free as usize) {
                    *row = view;
                }
                free
            }
            None => place(self.now.views.push(view)),
        }
    }

    /// Sets an index's attributes; the sums of its parts are kept.
    pub fn set_view(&mut self, ix: Ix, view: View) {
        let parts = self.now.target(ix).and_then(TargetRef::view).map(|view| view.parts);
        self.put_view(ix, View { parts: parts.unwrap_or_default(), ..view });
    }

    /// Sets the sums of a view's parts.
    pub fn set_parts(&mut self, ix: Ix, parts: PartSums) {
        let Some(view) = self.now.target(ix).and_then(TargetRef::view) else { return };
        if view.parts != parts {
            let view = View { parts, ..view.clone() };
            self.put_view(ix, view);
        }
    }

    fn put_view(&mut self, ix: Ix, view: View) {
        let Some(row) = self.now.target(ix).and_then(|_| self.now.rows.get(ix.as_usize())) else {
            return;
        };
        if !matches!(row.kind, Some(Kind::View | Kind::Search)) {
            return;
        }
        let at = row.extra as usize;
        if self.now.views.get(at).is_some_and(|known| **known == view) {
            return;
        }
        // The sums of its parts count in the totals.
        self.uncount(ix);
        if let Some(known) = self.now.views.get_mut(at) {
            *known = Arc::new(view);
        }
        self.count(ix);
        self.mark(ix);
    }
}
